"""Instances over HTTP: shapes, refusals, keys that make a repeat safe, versions, other teams."""

from __future__ import annotations

import pytest

from starverse.engines.fake import FakeRun
from starverse.testing.http_sites import PREFIX, Person, Site

FOR_EVER = FakeRun(run_seconds=float("inf"))


@pytest.fixture
def owner(site: Site) -> Person:
    site.world.plan("box", FOR_EVER)
    return site.register("owner@example.org")


def test_an_instance_goes_from_launch_to_release_over_http(site: Site, owner: Person) -> None:
    body = {"card": "rtx4090", "name": "box", "ttl_seconds": 7200, "idle_stop": 0, "restart": "elsewhere"}
    made = owner.post("/instances", body)
    assert (made["state"], made["card"], made["cards"], made["tariff"]) == (
        "queued",
        "rtx4090",
        1,
        "on_demand",
    )
    assert made["price_hour"] == "1.66" and made["price_hour_micro"] == 1_660_000
    assert made["policy"] == {"idle_stop": 0, "ttl_seconds": 7200, "restart": "elsewhere"}
    assert made["ssh"]["user"] == "box"
    site.world.run(3)
    shown = owner.get("/instances/box")
    assert shown["state"] == "running" and shown["node"] == "n1" and shown["idle"]["verdict"] == "active"
    assert owner.get(f"/instances/{made['number']}")["id"] == made["id"]
    assert owner.get("/instances")["items"][0]["id"] == made["id"]
    assert owner.get("/instances?state=stopped")["items"] == []
    assert owner.get("/instances/box/activity") == {"items": [], "next_cursor": None}
    owner.post("/instances/box:stop", {}, status=202)
    site.world.run(3)
    assert owner.get("/instances/box")["release_at"] is not None
    assert owner.post("/instances/box:start", {"no_gpu": True}, status=202)["price_hour"] == "0.498"
    site.world.run(3)
    owner.post("/instances/box:stop", status=202)
    site.world.run(3)
    assert owner.post("/instances/box:resize", {"cards": 2}, status=202)["cards"] == 2
    assert owner.post("/instances/box:extend", {"days": 5}, status=202)["state"] == "stopped"
    assert owner.client.delete(f"{PREFIX}/instances/box").status_code == 204
    assert owner.client.get(f"{PREFIX}/instances/box").status_code == 404
    assert owner.get(f"/instances/{made['id']}")["state"] == "released"
    assert [one["id"] for one in owner.get("/instances?all=true")["items"]] == [made["id"]]


def test_a_repeat_with_the_same_key_makes_nothing_more(site: Site, owner: Person) -> None:
    headers = {"Idempotency-Key": "once"}
    body = {"card": "rtx4090", "name": "box"}
    first = owner.post("/instances", body, headers=headers)
    assert owner.post("/instances", body, headers=headers)["id"] == first["id"]
    assert len(owner.get("/instances")["items"]) == 1
    other = owner.client.post(f"{PREFIX}/instances", json={"card": "rtx4090"}, headers=headers)
    assert other.status_code == 409
    site.world.run(3)
    owner.post("/instances/box:stop", status=202)
    site.world.run(3)
    again = {"Idempotency-Key": "start once"}
    owner.post("/instances/box:start", {}, status=202, headers=again)
    site.world.run(3)
    owner.post("/instances/box:start", {}, status=202, headers=again)
    assert len(site.world.engine.launchers) == 2


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"card": "h100"}, "card"),
        ({"card": "rtx4090", "cards": 9}, "cards"),
        ({"card": "rtx4090", "name": "two words"}, "name"),
        ({"card": "rtx4090", "name": "我的机器"}, "name"),
        ({"card": "rtx4090", "name": "x" * 255}, "name"),
        ({"card": "rtx4090", "name": "123"}, "name"),
        ({"card": "rtx4090", "name": "../up"}, "name"),
        ({"card": "rtx4090", "name": "-oProxyCommand=x"}, "name"),
        ({"card": "rtx4090", "image": "nowhere"}, "image"),
        ({"card": "rtx4090", "datasets": ["nothing"]}, "datasets"),
        ({"card": "rtx4090", "disks": [{"name": "nothing"}]}, "disks"),
        ({"card": "rtx4090", "secrets": ["NOTHING"]}, "secrets"),
        ({"card": "rtx4090", "zone": "moon"}, "zone"),
        ({"card": "rtx4090", "idle_stop": "never"}, "idle_stop"),
        ({"card": "rtx4090", "idle_stop": -1}, "idle_stop"),
        ({"card": "rtx4090", "idle_stop": True}, "idle_stop"),
        ({"card": "rtx4090", "ttl_seconds": 0}, "ttl_seconds"),
        ({"card": "rtx4090", "restart": "maybe"}, "restart"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_made(
    site: Site, owner: Person, body: dict[str, object], field: str
) -> None:
    answer = owner.client.post(f"{PREFIX}/instances", json=body)
    assert answer.status_code == 422, answer.text
    assert any(fault["field"].startswith(field) for fault in answer.json()["faults"]), answer.text
    assert owner.get("/instances")["items"] == []


def test_no_cards_and_no_money_have_codes_of_their_own(site: Site, owner: Person) -> None:
    dear = owner.client.post(f"{PREFIX}/instances", json={"card": "rtx4090", "cards": 8})
    assert (dear.status_code, dear.json()["code"]) == (402, "not_enough_money")
    owner.post("/instances", {"card": "rtx4090", "cards": 5, "name": "box"})
    site.world.run(3)
    rival = site.register("rival@example.org")
    full = rival.client.post(f"{PREFIX}/instances", json={"card": "rtx4090", "cards": 4})
    assert (full.status_code, full.json()["code"]) == (507, "no_capacity")
    taken = owner.client.post(f"{PREFIX}/instances", json={"card": "rtx4090", "name": "box"})
    assert taken.status_code in (402, 409)


def test_changes_are_made_on_the_version_that_was_read(site: Site, owner: Person) -> None:
    owner.post("/instances", {"card": "rtx4090", "name": "box"})
    read = owner.client.get(f"{PREFIX}/instances/box")
    site.world.run(3)
    headers = {"If-Match": read.headers["ETag"]}
    for wanted in ("off", "default", 0, 600, "unset"):
        answer = owner.client.patch(f"{PREFIX}/instances/box", json={"idle_stop": wanted}, headers=headers)
        assert answer.status_code == 200, "what is seen of it is no change of it"
        assert answer.json()["policy"]["idle_stop"] == wanted
        headers = {"If-Match": answer.headers["ETag"]}
    old = {"If-Match": read.headers["ETag"] + "x"}
    assert (
        owner.client.patch(f"{PREFIX}/instances/box", json={"ttl_seconds": 5}, headers=old).status_code == 412
    )
    changed = owner.client.patch(f"{PREFIX}/instances/box", json={"ttl_seconds": 5, "name": "lab"})
    assert changed.json()["policy"]["ttl_seconds"] == 5
    assert owner.client.patch(f"{PREFIX}/instances/lab", json={"ttl_seconds": None}).json()["policy"] == {
        "idle_stop": "unset",
        "ttl_seconds": None,
        "restart": "stay",
    }


def test_another_team_sees_nothing_and_changes_nothing(site: Site, owner: Person) -> None:
    made = owner.post("/instances", {"card": "rtx4090", "name": "box"})
    site.world.run(3)
    stranger = site.register("stranger@example.org")
    for ref in ("box", str(made["number"]), made["id"]):
        for method, path, body in (
            ("GET", "", None),
            ("GET", "/activity", None),
            ("PATCH", "", {"idle_stop": "off"}),
            ("DELETE", "", None),
            ("POST", ":start", {}),
            ("POST", ":stop", {}),
            ("POST", ":resize", {"cards": 1}),
            ("POST", ":clone", {}),
            ("POST", ":extend", {"days": 1}),
            ("POST", ":save-image", {"name": "mine"}),
        ):
            answer = stranger.client.request(method, f"{PREFIX}/instances/{ref}{path}", json=body)
            assert answer.status_code == 404, f"{method} {path}: {answer.status_code} {answer.text}"
    assert stranger.get("/instances")["items"] == []
    assert owner.get("/instances/box")["state"] == "running"


def test_starts_of_instances_are_in_no_list_of_jobs(site: Site, owner: Person) -> None:
    owner.post("/instances", {"card": "rtx4090", "name": "box"})
    site.world.run(3)
    assert owner.get("/jobs")["items"] == []
    site.world.run(100, step=50)
    assert owner.get("/bill")["open"][0]["job"] == "instance box"
