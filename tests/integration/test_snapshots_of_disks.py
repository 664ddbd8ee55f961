"""Snapshots: ordered, by schedule, kept, dropped, and begun from."""

from __future__ import annotations

from datetime import datetime

import pytest

from starverse.domain.catalog.disks import SNAPSHOTS_MAX
from starverse.testing.http_sites import Person, Site


@pytest.fixture
def owner(site: Site) -> Person:
    person = site.register()
    person.post("/disks", {"name": "home", "gib": 5})
    site.world.follow_disks()
    return person


def storage(site: Site, owner: Person, name: str = "home"):  # type: ignore[no-untyped-def]
    return site.world.engine.storage.trees[owner.get(f"/disks/{name}")["id"]]


def names(owner: Person) -> list[tuple[str, str]]:
    return [(one["name"], one["state"]) for one in owner.get("/disks/home/snapshots")["items"]]


def test_a_disk_begins_as_a_snapshot_of_another(site: Site, owner: Person) -> None:
    storage(site, owner).content = "as it was"
    made = owner.post("/disks/home/snapshots", {"name": "before"})
    site.world.follow_disks()
    storage(site, owner).content = "changed"
    assert names(owner) == [("before", "made")]

    body = {"name": "again", "gib": 5, "from_snapshot": made["id"]}
    owner.post("/disks", body)
    site.world.follow_disks()
    assert storage(site, owner, "again").content == "as it was"
    assert owner.get("/disks/again")["made_from"] == made["id"]
    wrong = owner.client.post("/api/v1/disks", json={**body, "name": "b", "kind": "block"})
    assert wrong.status_code == 422
    stranger = site.register("stranger@example.org")
    assert stranger.client.post("/api/v1/disks", json={**body, "name": "x"}).status_code == 404


def test_a_name_is_had_once_and_is_free_again_once_dropped(site: Site, owner: Person) -> None:
    owner.post("/disks/home/snapshots", {"name": "one"})
    assert owner.client.post("/api/v1/disks/home/snapshots", json={"name": "one"}).status_code == 409
    assert owner.client.delete("/api/v1/disks/home/snapshots/one").status_code == 409, "it is being made"
    site.world.follow_disks()
    assert owner.client.delete("/api/v1/disks/home/snapshots/one").status_code == 204
    assert owner.client.delete("/api/v1/disks/home/snapshots/one").status_code == 404
    site.world.follow_disks()
    assert storage(site, owner).snapshots == {}
    owner.post("/disks/home/snapshots", {"name": "one"})


def test_a_repeated_order_is_one_snapshot(site: Site, owner: Person) -> None:
    headers = {"Idempotency-Key": "s-1"}
    answers = [
        owner.client.post("/api/v1/disks/home/snapshots", json={}, headers=headers).json()["id"]
        for _ in range(2)
    ]
    assert len(set(answers)) == 1


def test_a_copy_that_fails_says_why_and_can_be_dropped(site: Site, owner: Person) -> None:
    site.world.engine.storage.fails["take_snapshot"] = "train.log kept changing while it was copied"
    owner.post("/disks/home/snapshots", {"name": "one"})
    site.world.follow_disks()
    (failed,) = owner.get("/disks/home/snapshots")["items"]
    assert (failed["state"], "kept changing" in failed["message"]) == ("failed", True)
    assert owner.client.delete("/api/v1/disks/home/snapshots/one").status_code == 204


def test_there_is_an_end_to_snapshots(site: Site, owner: Person) -> None:
    for number in range(SNAPSHOTS_MAX):
        owner.post("/disks/home/snapshots", {"name": f"s{number}"})
    assert owner.client.post("/api/v1/disks/home/snapshots", json={"name": "more"}).status_code == 429


def test_a_schedule_makes_them_in_the_local_night_and_keeps_the_newest(site: Site, owner: Person) -> None:
    changed = owner.client.patch(
        "/api/v1/disks/home", json={"snapshot_schedule": "0 3 * * *", "snapshots_kept": 2}
    ).json()
    due = datetime.fromisoformat(changed["snapshot_due_at"])
    assert due == datetime.fromisoformat("2026-03-11T03:00:00+08:00")
    owner.post("/disks/home/snapshots", {"name": "mine"})
    for _ in range(4):
        site.clock.advance(days=1)
        for _ in range(2):
            site.world.follow_disks()
            site.world.follow_disks()
    found = [name for name, state in names(owner) if state == "made"]
    assert found[0] == "mine"
    assert [name[:18] for name in found[1:]] == ["scheduled-20260313", "scheduled-20260314"]
    assert len(storage(site, owner).snapshots) == 3

    site.clock.advance(days=20)  # a server that was away makes one, not twenty
    site.world.follow_disks()
    site.world.follow_disks()
    assert len([one for one in names(owner) if one[0].startswith("scheduled")]) == 2
    off = owner.client.patch("/api/v1/disks/home", json={"snapshot_schedule": ""}).json()
    assert (off["snapshot_schedule"], off["snapshot_due_at"]) == (None, None)


@pytest.mark.parametrize(
    "line", ["nonsense", "* * *", "0 3 31 2 *", "60 * * * *", "@daily x", "*/14 * * * *"]
)
def test_no_cron_line_is_refused(owner: Person, line: str) -> None:
    answer = owner.client.patch("/api/v1/disks/home", json={"snapshot_schedule": line})
    assert answer.status_code == 422, answer.text
