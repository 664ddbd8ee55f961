"""What operators do: price books, accounts, gifts, datasets, nodes, the ledger check, events."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from sqlalchemy import update

from starverse.db import instances
from starverse.db.tables import accounts
from starverse.domain.pricing.price_book_yaml import shipped_price_book_text
from starverse.domain.workloads.states import InstanceState
from starverse.engines.fake import FakeRun
from starverse.testing.http_sites import PASSWORD, PREFIX, Person, Site

NEXT = shipped_price_book_text().replace("2026-03-01T00:00:00+08:00", "2026-04-01T00:00:00+08:00")


@pytest.fixture
def operator(site: Site) -> Person:
    return site.operator()


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    """A host folder to put on the shelf."""
    folder = tmp_path / "digits"
    (folder / "raw").mkdir(parents=True)
    (folder / "digits.csv").write_text("0,1,2\n")
    (folder / "raw/图像.bin").write_bytes(bytes(range(256)))
    return folder


def dataset(path: Path, **fields: str) -> dict[str, str]:
    about = {"name": "digits", "title": "Digits", "source": "UCI", "licence": "CC BY 4.0"}
    return {**about, "path": str(path), **fields}


def publish(operator: Person, text: str | bytes) -> tuple[int, dict[str, object]]:
    answer = operator.client.post(
        f"{PREFIX}/admin/price-books", content=text, headers={"Content-Type": "text/yaml"}
    )
    return answer.status_code, answer.json()


def test_a_price_book_is_published_for_the_future_only(site: Site, operator: Person) -> None:
    status, made = publish(operator, NEXT)
    assert (status, made["in_effect"]) == (201, False)
    listed = operator.get("/admin/price-books")["items"]
    assert [book["in_effect"] for book in listed] == [False, True]
    assert operator.get(f"/admin/price-books/{made['id']}")["yaml"] == NEXT
    assert publish(operator, NEXT)[0] == 409
    status, problem = publish(operator, shipped_price_book_text())
    assert status == 422
    assert "effective_from" in str(problem["faults"])
    site.clock.advance(days=30)
    assert [book["in_effect"] for book in operator.get("/admin/price-books")["items"]] == [True, False]


@pytest.mark.parametrize("text", ["", "[", "a: b", NEXT.replace("0.50", "zero"), b"\xff\xfe"])
def test_a_malformed_book_is_refused_and_the_one_in_effect_stays(operator: Person, text: str | bytes) -> None:
    status, problem = publish(operator, text)
    assert status == 422
    assert problem["faults"]
    assert len(operator.get("/admin/price-books")["items"]) == 1


def test_accounts_are_changed_against_the_version_that_was_read(site: Site, operator: Person) -> None:
    person = site.register()
    path = f"{PREFIX}/admin/accounts/{person.email}"
    read = operator.client.get(path)
    tag = read.headers["etag"]
    changed = operator.client.patch(path, json={"member": "edu"}, headers={"If-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag
    late = operator.client.patch(path, json={"operator": True}, headers={"If-Match": tag})
    assert late.status_code == 412
    assert operator.client.get(path).json()["operator"] is False
    assert operator.client.patch(path, json={"member": "vip"}).status_code == 422
    assert operator.client.patch(path, json={"member": ""}).json()["member"] is None


def test_a_disabled_account_is_out_at_once(site: Site, operator: Person) -> None:
    person = site.register()
    path = f"{PREFIX}/admin/accounts/{person.email}"
    assert operator.client.patch(path, json={"disabled": True}).status_code == 200
    assert person.client.get(f"{PREFIX}/me").status_code == 401
    login = {"email": person.email, "password": PASSWORD}
    assert site.client().post(f"{PREFIX}/sessions", json=login).status_code == 403
    operator.client.patch(path, json={"disabled": False, "password": "another long password"})
    assert site.client().post(f"{PREFIX}/sessions", json=login).status_code == 401
    login["password"] = "another long password"
    assert site.client().post(f"{PREFIX}/sessions", json=login).status_code == 201


def test_what_a_disabled_account_runs_stops_and_others_go_on(site: Site, operator: Person) -> None:
    wang, li = site.register(), site.register("li@example.org")
    site.world.plan("box", FakeRun(run_seconds=float("inf")))
    for person in (wang, li):
        person.post("/instances", {"card": "rtx4090", "name": "box"})
    site.world.run(5)
    number = li.get("/instances/box")["number"]
    operator.client.patch(f"{PREFIX}/admin/accounts/{wang.email}", json={"disabled": True})
    site.world.run(60)
    stopped = operator.get("/instances/1")
    assert (stopped["state"], stopped["reason"]) == ("stopped", "account_disabled")
    assert stopped["message"] == "its account was disabled by operator@localhost"
    assert li.get("/instances/box")["state"] == "running"
    assert site.world.run_reconciler("disabled") == ""
    operator.post(f"/instances/{number}:stop", status=202)
    site.world.run(60)
    assert li.get("/instances/box")["state"] == "stopped"


def test_a_server_that_dies_before_it_has_ended_the_work_ends_it_later(site: Site) -> None:
    wang = site.register()
    site.world.plan("box", FakeRun(run_seconds=float("inf")))
    wang.post("/instances", {"card": "rtx4090", "name": "box"})
    site.world.run(5)
    with site.world.platform.database.write() as connection:
        connection.execute(update(accounts).where(accounts.c.email == wang.email).values(disabled=True))
    assert site.world.run_reconciler("disabled") == "ended the work of 1 disabled accounts"
    assert site.world.run_reconciler("disabled") == ""
    site.world.run(60)
    with site.world.platform.database.read() as connection:
        states = {one.state for one in instances.in_state(connection, *InstanceState)}
    assert states == {InstanceState.STOPPED}


def test_nobody_takes_their_own_rights_away(operator: Person) -> None:
    path = f"{PREFIX}/admin/accounts/{operator.email}"
    for change in ({"operator": False}, {"disabled": True}):
        assert operator.client.patch(path, json=change).status_code == 409
    assert operator.get("/admin/status")["engine"]["name"] == "fake"


def test_an_operator_is_made_by_an_operator(site: Site, operator: Person) -> None:
    person = site.register()
    assert person.client.get(f"{PREFIX}/admin/status").status_code == 403
    operator.client.patch(f"{PREFIX}/admin/accounts/{person.email}", json={"operator": True})
    assert person.client.get(f"{PREFIX}/admin/status").status_code == 200
    scoped = person.post("/tokens", {"name": "team only", "team": person.team})["token"]
    assert site.client(scoped).get(f"{PREFIX}/admin/status").status_code == 403


def test_gifts_stand_in_the_wallet_with_their_expiry(site: Site, operator: Person) -> None:
    person = site.register()
    path = f"/admin/teams/{person.team}/grants"
    expiry = "2026-04-01T00:00:00Z"
    body = {"kind": "credit", "amount": "5.00", "reason": "thanks", "expires_at": expiry}
    key = {"Idempotency-Key": "gift"}
    assert operator.post(path, body, headers=key) == operator.post(path, body, headers=key)
    operator.post(path, {"kind": "coupon", "amount": "50.00", "reason": "referral"})
    wallet = person.get("/wallet")
    assert (wallet["free"], wallet["cash"]) == ("15.00", "0.00"), "a coupon pays shares only"
    assert wallet["credits"][0]["expires_at"] == expiry, "what expires first is shown first"
    assert wallet["coupons"][0]["left"] == "50.00"
    for wrong in (
        {**body, "amount": "0.00"},
        {**body, "kind": "cash"},
        {**body, "reason": " "},
        {**body, "expires_at": "2026-01-01T00:00:00Z"},
    ):
        assert operator.client.post(PREFIX + path, json=wrong).status_code == 422
    assert operator.client.post(f"{PREFIX}/admin/teams/none/grants", json=body).status_code == 404
    check = operator.get("/admin/ledger/check")
    assert check["holds"] is True
    assert {"sum_zero", "within_limits"} <= {found["name"] for found in check["invariants"]}
    accounts = {account["id"]: account for account in operator.get("/admin/ledger/accounts")["items"]}
    assert accounts["gifts"]["posted_micro"] == 65_000_000
    teams = operator.get("/admin/teams")["items"]
    assert {team["name"]: team["free"] for team in teams}[person.team] == "15.00"


def test_a_dataset_is_copied_verified_and_found_damaged(site: Site, operator: Person, shelf: Path) -> None:
    person = site.register()
    made = operator.post("/datasets", dataset(shelf))
    assert (made["version"], made["state"], made["files"], made["bytes"]) == (1, "verified", 2, 262)
    place = site.platform.paths.dataset(made["id"])
    assert (place / "raw/图像.bin").read_bytes() == bytes(range(256))
    assert (place / "digits.csv").stat().st_mode & 0o222 == 0
    (shelf / "digits.csv").write_text("changed at the source\n")
    assert operator.post("/datasets/digits:verify", status=200)["state"] == "verified", "it is a copy"
    shown = person.get("/datasets/digits")
    assert [file["path"] for file in shown["manifest"]["files"]] == ["digits.csv", "raw/图像.bin"]
    assert person.get("/datasets")["items"][0]["manifest_digest"] == made["manifest_digest"]

    os.chmod(place / "digits.csv", 0o644)  # noqa: PTH101
    (place / "digits.csv").write_text("0,1,3\n")
    found = operator.post("/datasets/digits:verify", status=200)
    assert found["state"] == "damaged"
    assert [(fault["path"], fault["kind"]) for fault in found["faults"]] == [("digits.csv", "hash")]
    script = "#!/bin/bash\n#SBATCH --gres=gpu:rtx4090:1\n"
    body = {"script": script, "argv": ["--dataset", "digits"]}
    assert person.client.post(f"{PREFIX}/jobs", json=body).status_code == 422
    second = operator.post("/datasets", dataset(shelf))
    assert second["version"] == 2
    assert person.post("/jobs", body)["jobs_count"] == 1


def test_a_repeated_add_is_answered_by_the_first_and_copies_nothing(
    site: Site, operator: Person, shelf: Path
) -> None:
    once = {"Idempotency-Key": "add-1"}
    made = operator.post("/datasets", dataset(shelf), headers=once)
    (shelf / "raw/图像.bin").unlink()
    (shelf / "digits.csv").unlink()
    assert operator.post("/datasets", dataset(shelf), headers=once) == made, "the source is not read again"
    other = operator.client.post(f"{PREFIX}/datasets", json=dataset(shelf) | {"name": "x"}, headers=once)
    assert other.status_code == 409
    left = [path.name for path in site.platform.paths.dataset("x").parent.iterdir()]
    assert left == [made["id"]]


def test_a_folder_too_deep_is_no_dataset(operator: Person, shelf: Path) -> None:
    deep = shelf.joinpath(*["d"] * 100)
    deep.mkdir(parents=True)
    (deep / "f").write_text("x")
    answer = operator.client.post(f"{PREFIX}/datasets", json=dataset(shelf))
    assert answer.status_code == 422
    assert "levels" in answer.json()["faults"][0]["expected"]


def test_a_damaged_dataset_is_mended_by_the_very_content_it_had(
    site: Site, operator: Person, shelf: Path
) -> None:
    made = operator.post("/datasets", dataset(shelf))
    place = site.platform.paths.dataset(made["id"]) / "digits.csv"
    place.chmod(0o644)
    place.write_text("0,1,3\n")
    again = operator.client.post(f"{PREFIX}/datasets", json=dataset(shelf))
    assert again.status_code == 409, "nobody knows of the damage yet"
    operator.post("/datasets/digits:verify", status=200)
    mended = operator.post("/datasets", dataset(shelf))
    assert (mended["version"], mended["state"]) == (2, "verified")
    assert mended["manifest_digest"] == made["manifest_digest"]
    assert operator.client.post(f"{PREFIX}/datasets", json=dataset(shelf)).status_code == 409


def test_what_cannot_be_on_the_shelf_is_refused_whole(site: Site, operator: Person, shelf: Path) -> None:
    def refused(path: Path, **fields: str) -> int:
        return int(operator.client.post(f"{PREFIX}/datasets", json=dataset(path, **fields)).status_code)

    assert refused(shelf, name="../evil") == 422
    assert refused(shelf, licence="") == 422
    assert refused(Path("relative")) == 422
    assert refused(shelf / "..") == 422
    assert refused(shelf / "missing") == 422
    assert refused(site.platform.settings.data) == 422
    assert refused(site.platform.settings.data.parent) == 422
    (shelf.parent / "link").symlink_to(shelf)
    assert refused(shelf.parent / "link") == 422
    (shelf / "inside").symlink_to("digits.csv")
    assert refused(shelf) == 422
    (shelf / "inside").unlink()
    os.mkfifo(shelf / "pipe")
    assert refused(shelf) == 422
    (shelf / "pipe").unlink()
    (shelf / "line\nbreak").write_text("x")
    assert refused(shelf) == 422
    (shelf / "line\nbreak").unlink()
    empty = shelf.parent / "empty"
    empty.mkdir()
    assert refused(empty) == 422
    assert operator.post("/datasets", dataset(shelf))["version"] == 1
    assert refused(shelf) == 409, "the same content again"
    left = list((site.platform.settings.data / "datasets").iterdir())
    assert len(left) == 1, "refused ones leave nothing behind"


def test_a_node_is_drained_against_the_version_read(operator: Person) -> None:
    path = f"{PREFIX}/admin/nodes/n1"
    tag = operator.client.get(path).headers["etag"]
    drained = operator.client.patch(path, json={"drained": True}, headers={"If-Match": tag})
    assert (drained.status_code, drained.json()["drained"]) == (200, True)
    assert operator.client.patch(path, json={"drained": False}, headers={"If-Match": tag}).status_code == 412
    assert operator.client.patch(path, json={"drained": False}, headers={"If-Match": "*"}).status_code == 200
    assert operator.client.patch(f"{PREFIX}/admin/nodes/n9", json={"drained": True}).status_code == 404
    assert operator.client.patch(path, json={"drained": "yes"}).status_code == 422


def test_what_operators_did_is_in_the_events(site: Site, operator: Person) -> None:
    person = site.register()
    operator.client.patch(f"{PREFIX}/admin/nodes/n1", json={"drained": True})
    operator.client.patch(f"{PREFIX}/admin/accounts/{person.email}", json={"password": "a new long password"})
    events = operator.get("/admin/events?limit=2")
    assert [event["subject_kind"] for event in events["items"]] == ["account", "node"]
    assert "a new long password" not in str(operator.get("/admin/events"))
    older = operator.get(f"/admin/events?cursor={events['next_cursor']}")["items"]
    assert older[0]["id"] < events["items"][-1]["id"]
    assert operator.get("/admin/events?subject=n1")["items"][0]["kind"] == "drained"
    assert operator.client.get(f"{PREFIX}/admin/events?cursor=x").status_code == 422
