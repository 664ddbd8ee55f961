"""A disk from its order to its end: made, charged to the second, resized, deleted, restored, purged."""

from __future__ import annotations

from datetime import datetime
from fractions import Fraction

import pytest
from sqlalchemy import select

from starverse.db import disks
from starverse.db.disk_tables import disk_charges
from starverse.domain.catalog.disks import DiskState
from starverse.domain.money import Money
from starverse.testing.http_sites import Person, Site

MARCH_SECONDS = 31 * 86_400


def rounds(site: Site, *names: str) -> None:
    for name in names:
        if name == "disks":
            site.world.follow_disks()
        else:
            site.world.run_reconciler(name)


def made_disk(site: Site, owner: Person, name: str = "home", gib: int = 60, kind: str = "shared") -> str:
    """The id of a disk that is ready."""
    disk = owner.post("/disks", {"name": name, "kind": kind, "gib": gib})
    assert disk["state"] == "making"
    rounds(site, "disks")
    assert owner.get(f"/disks/{disk['id']}")["state"] == "ready"
    return str(disk["id"])


def rich(site: Site, email: str = "wang@example.org") -> Person:
    person = site.register(email)
    assert person.post("/topups", {"amount": "100.00"})
    return person


def charged(site: Site) -> Money:
    with site.platform.database.read() as connection:
        return Money(sum(row.total_micro.micro for row in connection.execute(select(disk_charges))))


def cost(gib_seconds: int, price_micro: int = 200_000) -> Money:
    """What so many GiB-seconds beyond the free ones cost in March, rounded down."""
    exact = Fraction(price_micro * gib_seconds, MARCH_SECONDS)
    return Money(exact.numerator // exact.denominator)


def test_a_disk_is_charged_from_when_it_is_ready_for_what_is_beyond_the_free_gib(site: Site) -> None:
    owner = rich(site)
    disk_id = made_disk(site, owner, gib=60)
    assert site.world.engine.storage.trees[disk_id].tree.gib == 60

    site.clock.advance(hours=5, minutes=30)
    rounds(site, "disk_meter")
    assert charged(site) == cost(10 * 5 * 3600)

    bill = owner.get("/bill")
    assert bill["total_micro"] == charged(site).micro
    assert [(line["disk"], line["total_micro"]) for line in bill["disks"]] == [("home", charged(site).micro)]
    explained = owner.get(f"/charges/{bill['disks'][0]['id']}")
    assert explained["subject"] == "disk"
    assert any("50 of 60 GiB are free" in step for step in explained["steps"])
    assert sum(t["amount_micro"] for t in explained["transfers"]) == charged(site).micro
    site.world.assert_sound()


def test_resizes_count_from_their_second_and_a_deleted_disk_costs_nothing(site: Site) -> None:
    owner = rich(site)
    disk_id = made_disk(site, owner, gib=60)
    site.clock.advance(minutes=10)
    assert owner.client.patch(f"/api/v1/disks/{disk_id}", json={"gib": 80}).json()["gib"] == 80
    site.clock.advance(minutes=20)
    assert owner.client.delete(f"/api/v1/disks/{disk_id}").json()["state"] == "deleted"
    site.clock.advance(hours=2)
    rounds(site, "disk_meter")
    assert charged(site) == cost(10 * 600 + 30 * 1200)

    site.clock.advance(days=2)
    back = owner.post(f"/disks/{disk_id}:restore", status=200)
    assert (back["state"], back["gib"], back["name"]) == ("ready", 80, "home")
    site.clock.advance(hours=1)
    site.clock.at = site.clock.at.replace(minute=0, second=0)
    for body in (None, {"name": "other"}):
        refused = owner.client.post(f"/api/v1/disks/{disk_id}:restore", json=body)
        assert refused.status_code == 409
        assert "not deleted" in refused.json()["detail"]
    restored = datetime.fromisoformat(str(back["created_at"]))
    assert restored < site.clock.now()
    before = charged(site)
    rounds(site, "disk_meter")
    assert charged(site) > before


def test_the_free_gib_of_a_team_fall_to_its_oldest_disks_first(site: Site) -> None:
    owner = rich(site)
    first = made_disk(site, owner, "one", 40)
    site.clock.advance(seconds=1)
    second = made_disk(site, owner, "two", 40)
    usage = {
        name: owner.get(f"/disks/{key}/usage")["free_gib"] for name, key in [("a", first), ("b", second)]
    }
    assert usage == {"a": 40, "b": 10}
    site.clock.advance(minutes=30)
    owner.client.delete(f"/api/v1/disks/{first}")
    site.clock.advance(hours=1)
    rounds(site, "disk_meter")
    # the second pays 30 GiB until the first is gone, and nothing from then on
    assert charged(site) == cost(30 * 1800)


def test_a_disk_stays_when_the_money_is_gone_and_the_rest_is_written_off(site: Site) -> None:
    owner = site.register()  # the sign-up credit is all there is
    made_disk(site, owner, gib=700)
    for _ in range(4):
        site.clock.advance(days=2)
        rounds(site, "disk_meter", "disks")
    wallet, bill = owner.get("/wallet"), owner.get("/bill", params={"month": "2026-03"})
    assert wallet["free_micro"] == 0
    assert bill["credit_micro"] == 10_000_000
    assert bill["written_off_micro"] == bill["total_micro"] - 10_000_000 > 0
    assert owner.get("/disks/home")["state"] == "ready"
    refused = owner.client.post("/api/v1/disks", json={"name": "more", "gib": 100})
    assert refused.status_code == 402, refused.text
    site.world.assert_sound()


def test_after_seven_days_a_deleted_disk_is_gone_for_good(site: Site) -> None:
    owner = rich(site)
    disk_id = made_disk(site, owner)
    owner.client.delete(f"/api/v1/disks/{disk_id}")
    site.clock.advance(days=6, hours=23)
    rounds(site, "disks")
    assert disk_id in site.world.engine.storage.trees
    listed = owner.get("/disks", params={"deleted": True})["items"]
    assert [one["id"] for one in listed] == [disk_id]
    assert owner.get("/disks")["items"] == []

    site.clock.advance(hours=1)
    assert owner.client.post(f"/api/v1/disks/{disk_id}:restore").status_code == 404
    rounds(site, "disks")
    assert disk_id not in site.world.engine.storage.trees
    assert owner.client.get(f"/api/v1/disks/{disk_id}").status_code == 404
    with site.platform.database.read() as connection:
        gone = disks.get(connection, disk_id)
    assert gone is not None
    assert gone.state is DiskState.PURGED
    assert gone.purged_at is not None


def test_a_repeated_order_is_answered_by_its_disk_and_a_name_is_had_once(site: Site) -> None:
    owner = rich(site)
    body = {"name": "数据 盘", "gib": 10}
    headers = {"Idempotency-Key": "k-1"}
    first = owner.client.post("/api/v1/disks", json=body, headers=headers)
    again = owner.client.post("/api/v1/disks", json=body, headers=headers)
    assert first.json()["id"] == again.json()["id"]
    assert owner.client.post("/api/v1/disks", json=body).status_code == 409
    owner.client.delete(f"/api/v1/disks/{first.json()['id']}")
    rounds(site, "disks")
    owner.client.delete(f"/api/v1/disks/{first.json()['id']}")
    other = owner.post("/disks", body)
    taken = owner.client.post(f"/api/v1/disks/{first.json()['id']}:restore")
    assert taken.status_code == 409
    back = owner.post(f"/disks/{first.json()['id']}:restore", {"name": "older"}, status=200)
    assert back["name"] == "older"
    assert other["id"] != back["id"]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a:b", "-x", " x", "x\n", "x" * 65, "\u202eevil", "a\0"]
)
def test_a_name_that_would_be_no_folder_is_refused(site: Site, name: str) -> None:
    owner = rich(site)
    answer = owner.client.post("/api/v1/disks", json={"name": name, "gib": 1})
    assert answer.status_code == 422, answer.text


def test_a_disk_that_storage_cannot_make_is_told_costs_nothing_and_can_be_dropped(site: Site) -> None:
    owner = rich(site)
    site.world.engine.storage.fails["make"] = "the platform's storage is full"
    disk = owner.post("/disks", {"name": "home", "gib": 100})
    rounds(site, "disks")
    failed = owner.get(f"/disks/{disk['id']}")
    assert (failed["state"], failed["message"]) == ("failed", "the platform's storage is full")
    site.clock.advance(hours=3)
    rounds(site, "disk_meter")
    assert charged(site) == Money(0)
    assert owner.client.delete("/api/v1/disks/home").status_code == 200
    site.world.engine.storage.fails.clear()
    made_disk(site, owner)


def test_a_change_based_on_an_old_look_is_refused(site: Site) -> None:
    owner = rich(site)
    made_disk(site, owner)
    etag = owner.client.get("/api/v1/disks/home").headers["ETag"]
    headers = {"If-Match": etag}
    assert owner.client.patch("/api/v1/disks/home", json={"gib": 70}, headers=headers).status_code == 200
    assert owner.client.patch("/api/v1/disks/home", json={"gib": 90}, headers=headers).status_code == 412


def test_what_a_charge_says_adds_up_over_the_end_of_a_local_month(site: Site) -> None:
    owner = rich(site)
    site.clock.at = datetime.fromisoformat("2026-03-31T15:00:00+00:00")  # 23:00 in Shanghai
    made_disk(site, owner, gib=150)
    site.clock.advance(hours=2)
    rounds(site, "disk_meter")
    march = owner.get("/bill", params={"month": "2026-03"})["total_micro"]
    april = owner.get("/bill", params={"month": "2026-04"})["total_micro"]
    assert march == cost(100 * 3600).micro
    exact = Fraction(200_000 * 100 * 3600, MARCH_SECONDS) + Fraction(200_000 * 100 * 3600, 30 * 86_400)
    assert march + april == exact.numerator // exact.denominator
