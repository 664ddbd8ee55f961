"""Every route: described as checked in, authorised, hidden from other teams. None can be forgotten."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute, RouteContext, iter_route_contexts

from starverse.app import auth
from starverse.domain.ids import AccountId, AllocationId, TeamId
from starverse.http.app import bare_app
from starverse.http.openapi import description_text, main
from starverse.http.routing import API_PREFIX
from starverse.http.security import PUBLIC_ROUTES, authorisations_of
from starverse.testing.given_disks import given_disk, given_sync
from starverse.testing.http_sites import Person, Site

DESCRIPTION = Path(__file__).parents[2] / "docs" / "openapi.json"
SCRIPT = "#!/bin/bash\n#SBATCH --gres=gpu:rtx4090:1\necho hello\n"
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJfyo1n/Gzp+vb93Fwz8DiNGwb3jVZ5hxcBBwgTcuCsQ wang@laptop"

OWN = {
    ("GET", "/me"): None,
    ("GET", "/tokens"): None,
    ("POST", "/tokens"): {"name": "mine"},
    ("GET", "/teams"): None,
    ("POST", "/teams"): {"name": "audio"},
    ("GET", "/offers"): None,
    ("GET", "/nodes"): None,
    ("GET", "/heatmap"): None,
    ("GET", "/limits"): None,
    ("POST", "/quotes"): {},
    ("GET", "/instances"): None,
    ("POST", "/instances"): {"card": "rtx4090"},
    ("GET", "/images"): None,
    ("POST", "/images"): {"name": "mine"},
    ("GET", "/jobs"): None,
    ("POST", "/jobs"): {},
    ("GET", "/datasets"): None,
    ("GET", "/datasets/{name}"): None,
    ("GET", "/wallet"): None,
    ("GET", "/wallet/transfers"): None,
    ("GET", "/wallet/auto-topup"): None,
    ("PUT", "/wallet/auto-topup"): {"below": "1.00", "amount": "1.00"},
    ("DELETE", "/wallet/auto-topup"): None,
    ("GET", "/topups"): None,
    ("POST", "/topups"): {"amount": "1.00"},
    ("PUT", "/folders/{folder_id}"): None,
    ("GET", "/bill"): None,
    ("GET", "/disks"): None,
    ("POST", "/disks"): {"name": "home", "gib": 1},
    ("GET", "/disk-prices"): None,
    ("GET", "/secrets"): None,
    ("PUT", "/secrets/{secret_name}"): {"value": "own"},
    ("DELETE", "/sessions/current"): None,
    ("GET", "/ssh"): None,
    ("GET", "/ssh-keys"): None,
    ("POST", "/ssh-keys"): {"public_key": PUBLIC_KEY},
}
"""Routes that name nothing of another team: they show the caller's own, the shelf, or the cluster."""


INSTANCE_BODIES: dict[str, dict[str, Any]] = {
    "resize": {"cards": 1},
    "extend": {"days": 1},
    "save-image": {"name": "mine"},
}
APP_LINK = {"app": 6006}


def routes() -> Iterator[tuple[str, RouteContext]]:
    """Every method and route of the API, as it is served."""
    for route in iter_route_contexts(bare_app().routes):
        if isinstance(route.original_route, APIRoute):
            for method in sorted(route.methods or ()):
                yield method, route


def described() -> Iterator[tuple[str, str]]:
    """Every method and path of the description, without the prefix."""
    for path, operations in json.loads(description_text())["paths"].items():
        for method in operations:
            yield method.upper(), path.removeprefix(API_PREFIX)


def test_the_description_checked_in_is_that_of_the_code() -> None:
    assert DESCRIPTION.read_text("utf-8") == description_text(), "accept the new one with `make openapi`"


def test_no_shape_is_named_after_a_module() -> None:
    """Two shapes of one name get the paths of their modules, which callers would have in their code."""
    shapes = json.loads(description_text())["components"]["schemas"]
    assert [name for name in shapes if "__" in name] == []


def test_the_command_writes_the_description(tmp_path: Path) -> None:
    assert main([str(tmp_path / "docs" / "openapi.json")]) == 0
    assert (tmp_path / "docs" / "openapi.json").read_text("utf-8") == description_text()
    assert main([]) == 2


def test_every_route_is_public_by_name_or_declares_one_authorisation() -> None:
    count = 0
    for method, route in routes():
        count += 1
        declared = authorisations_of(route.dependant)
        if (method, route.path) in PUBLIC_ROUTES:
            assert declared == [], f"{method} {route.path} is public and asks for a token"
        else:
            assert len(declared) == 1, f"{method} {route.path} declares {declared}"
    assert count > 60


def test_every_operation_is_described() -> None:
    for path, operations in json.loads(description_text())["paths"].items():
        for method, operation in operations.items():
            assert operation.get("description"), f"{method} {path} has no description"
            assert operation.get("operationId"), f"{method} {path} has no operationId"


def test_without_a_token_every_route_but_the_public_ones_answers_401(site: Site) -> None:
    client = site.client()
    for method, path in described():
        if (method, API_PREFIX + path) in PUBLIC_ROUTES or not path.startswith("/"):
            continue
        if path in ("/healthz", "/readyz"):
            continue
        answer = client.request(method, API_PREFIX + path.replace("{", "").replace("}", ""))
        assert answer.status_code == 401, f"{method} {path}: {answer.status_code}"


def test_without_being_an_operator_every_admin_route_answers_403(site: Site) -> None:
    person = site.register()
    paths = [(method, path) for method, path in described() if path.startswith("/admin/")]
    assert len(paths) > 15
    for method, path in paths:
        answer = person.client.request(method, API_PREFIX + path.replace("{", "").replace("}", ""), json={})
        assert answer.status_code in (403, 422), f"{method} {path}: {answer.status_code}"
        if method == "GET":
            assert answer.status_code == 403


@pytest.fixture
def belongings(site: Site) -> tuple[Person, dict[str, str]]:
    """Someone with one of each thing that has a name, and those names."""
    owner = site.register("owner@example.org")
    owner.post("/teams", {"name": "vision"})
    job = owner.post("/jobs", {"script": SCRIPT})["job"]["number"]
    assert owner.client.put(f"{API_PREFIX}/secrets/KEY", json={"value": "x"}).status_code == 200
    disk = given_disk(site, owner)
    return owner, {
        "secret_name": "KEY",
        "disk_ref": disk.id,
        "instance_ref": owner.post("/instances", {"card": "rtx4090", "name": "box"})["id"],
        "sync_id": given_sync(site, disk).id,
        "snapshot_ref": owner.post(f"/disks/{disk.id}/snapshots", {"name": "before"})["id"],
        "token_id": owner.post("/tokens", {"name": "nightly"})["id"],
        "name": "vision",
        "email": owner.email,
        "ref": job,
        "image_id": owner.post("/images", {"name": "base"})["id"],
        "key_id": owner.post("/ssh-keys", {"public_key": PUBLIC_KEY})["id"],
        "path": "out.txt",
        "topup_id": owner.post("/topups", {"amount": "5.00"})["id"],
        "charge_id": "0197f3a0-0000-7000-8000-000000000000",
        "folder_id": "sha256:" + "0" * 64,
    }


def test_what_belongs_to_another_team_answers_404_on_every_route(
    site: Site, belongings: tuple[Person, dict[str, str]]
) -> None:
    owner, names = belongings
    stranger = site.register("stranger@example.org")
    tried = 0
    for method, path in described():
        skipped = path.startswith(("/admin/", "/gateways/")) or path in ("/healthz", "/readyz")
        public = (method, API_PREFIX + path) in PUBLIC_ROUTES
        if skipped or public or (method, path) in OWN or path == "/datasets":
            continue
        if path.startswith("/datasets/"):
            continue  # the shelf is the same for everyone; changing it is the operator's
        target = API_PREFIX + path.format(**names)
        body: dict[str, Any] | None = None
        if path.endswith("/members") and method == "POST":
            body = {"email": "stranger@example.org"}
        if path.endswith((":attach", ":detach")):
            body = {"instance": "gpu"}
        if path.endswith("/snapshots") or path == "/disks/{disk_ref}":
            body = {}
        if path.startswith("/instances/"):
            body = INSTANCE_BODIES.get(path.partition(":")[2], {})
        if path.endswith("/syncs") and method == "POST":
            body = {"direction": "pull", "remote": ":http,url='http://127.0.0.1':"}
        if path.endswith("/app-links"):
            body = APP_LINK
        answer = stranger.client.request(method, target, json=body)
        assert answer.status_code == 404, f"{method} {path}: {answer.status_code} {answer.text}"
        if method != "HEAD":
            assert answer.json()["code"] == "not_found"
        tried += 1
    assert tried >= 16
    assert owner.get(f"/jobs/{names['ref']}")["state"] == "queued", "nothing of it was changed"
    assert len(owner.get("/teams/vision")["members"]) == 1


def test_a_workload_token_submits_and_touches_no_money(
    site: Site, belongings: tuple[Person, dict[str, str]]
) -> None:
    owner, names = belongings
    site.world.round()
    shown = owner.get(f"/jobs/{names['ref']}")
    with site.platform.database.write() as connection:
        secret = auth.issue_workload_token(
            site.platform,
            connection,
            AccountId(owner.get("/me")["account"]["id"]),
            TeamId(owner.team_id),
            AllocationId(shown["allocations"][0]["id"]),
        )
    client = site.client(secret)
    assert client.get(f"{API_PREFIX}/me").json()["scope"] == "workload"
    assert client.post(f"{API_PREFIX}/jobs", json={"script": SCRIPT}).status_code == 201
    assert client.get(f"{API_PREFIX}/offers").status_code == 200
    for method, path, body in (
        ("GET", "/wallet", None),
        ("POST", "/topups", {"amount": "5.00"}),
        ("PUT", "/wallet/auto-topup", {"below": "5.00", "amount": "5.00"}),
        ("POST", f"/topups/{names['topup_id']}/refunds", None),
        ("POST", "/tokens", {"name": "mine"}),
        ("GET", "/tokens", None),
        ("POST", "/teams", {"name": "mine"}),
        ("GET", "/admin/status", None),
    ):
        answer = client.request(method, API_PREFIX + path, json=body)
        assert answer.status_code == 403, f"{method} {path}: {answer.status_code}"
    owner.post(f"/jobs/{names['ref']}:cancel", status=202)
    site.world.run(60)
    assert owner.get(f"/jobs/{names['ref']}")["state"] == "cancelled"
    assert client.get(f"{API_PREFIX}/me").status_code == 401, "it is dead with its allocation"
