"""Waiting for what takes its time: to its end, through a server that is away, and not for ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from starverse.client.api import Client
from starverse.client.errors import ClientError, NotReachable
from starverse.client.instances import has_started, has_stopped
from starverse.client.settings import Settings
from starverse.client.waiting import GIVE_UP_SECONDS
from starverse.testing import api_examples as examples
from starverse.testing.fake_api import BREAK, FakeApi, Reply


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as fake:
        yield fake


def client_of(api: FakeApi, waited: list[float]) -> Client:
    return Client(Settings(api.url), pause=waited.append)


STATES = {
    "queued": (examples.instance(state="queued", ready_at=None), False, False),
    "running and ready": (examples.instance(), True, False),
    "being stopped": (examples.instance(reason="asked"), False, False),
    "stopped": (examples.stopped(), True, True),
    "released": (examples.stopped(state="released"), True, True),
}


@pytest.mark.parametrize(("one", "started", "stopped"), STATES.values(), ids=STATES.keys())
def test_when_a_start_and_a_stop_are_over(one: dict[str, object], started: bool, stopped: bool) -> None:
    assert has_started(one) is started  # type: ignore[arg-type]
    assert has_stopped(one) is stopped  # type: ignore[arg-type]


def test_each_change_is_told_once_and_pauses_grow(api: FakeApi) -> None:
    queued = examples.instance(state="queued", ready_at=None, message="1 before it")
    later = examples.instance(state="queued", ready_at=None, message="0 before it")
    api.on("GET", "/instances/lab", queued, queued, later, later, examples.instance())
    told: list[str | None] = []
    waited: list[float] = []
    with client_of(api, waited) as client:
        found = client.instances.wait("lab", has_started, on_change=lambda one: told.append(one["message"]))
    assert (found["state"], told) == ("running", ["1 before it", "0 before it"])
    assert waited == sorted(waited)
    assert len(waited) == 4


def _said(found: object) -> None:
    """What is seen on the way is of no interest here."""


WAITS = {
    "job": (
        ("/jobs/123", examples.job(state="succeeded")),
        lambda client, told: client.jobs.wait("123", on_break=told),
    ),
    "instance": (
        ("/instances/lab", examples.instance()),
        lambda client, told: client.instances.wait("lab", has_started, on_break=told),
    ),
    "sync": (
        ("/disks/home/syncs/y-1", examples.sync("succeeded")),
        lambda client, told: client.disks.wait_sync("home", examples.sync(), on_wait=_said, on_break=told),
    ),
    "image": (
        ("/images/i-mine", examples.image(id="i-mine")),
        lambda client, told: client.images.wait(
            examples.image(id="i-mine", state="building"), on_wait=_said, on_break=told
        ),
    ),
}


@pytest.mark.parametrize(("over", "wait"), WAITS.values(), ids=WAITS.keys())
def test_a_server_that_is_away_for_a_while_is_waited_for(
    api: FakeApi, over: tuple[str, dict[str, Any]], wait: Callable[[Client, object], dict[str, Any]]
) -> None:
    path, ended = over
    starting = Reply(503, {"code": "unavailable", "detail": "it starts"})
    api.on("GET", path, *[BREAK] * 9, *[starting] * 9, ended)
    broken: list[ClientError] = []
    with client_of(api, []) as client:
        found = wait(client, broken.append)
    assert found["state"] == ended["state"]
    assert {error.status for error in broken} == {None, 503}


def test_a_server_that_stays_away_is_told_in_the_end(api: FakeApi) -> None:
    api.on("GET", "/instances/lab", BREAK)
    waited: list[float] = []
    with client_of(api, waited) as client, pytest.raises(NotReachable):
        client.instances.wait("lab", has_started)
    assert GIVE_UP_SECONDS <= sum(waited) < 2 * GIVE_UP_SECONDS


def test_one_that_is_gone_ends_the_wait(api: FakeApi) -> None:
    api.on("GET", "/instances/lab", Reply(404, {"code": "not_found", "detail": "no such instance"}))
    with client_of(api, []) as client, pytest.raises(ClientError) as refused:
        client.instances.wait("lab", has_started)
    assert refused.value.code == "not_found"


def test_a_change_is_of_the_version_that_was_read(api: FakeApi) -> None:
    api.on("GET", "/instances/lab", Reply(200, examples.instance(), {"ETag": '"7"'}))
    api.on("PATCH", "/instances/lab", Reply(412, {"code": "changed", "detail": "it was changed meanwhile"}))
    with client_of(api, []) as client, pytest.raises(ClientError) as refused:
        client.instances.change("lab", {"name": "atelier"})
    assert refused.value.code == "changed"
    assert api.requests("PATCH", "/instances/lab")[0].headers["if-match"] == '"7"'


def test_a_disk_is_not_waited_for_longer_than_was_said(api: FakeApi) -> None:
    api.on("GET", "/disks/d-home", examples.disk(state="making"))
    waited: list[float] = []
    with client_of(api, waited) as client:
        making = client.disks.get("d-home")
        found = client.disks.wait(making, lambda disk: disk["state"] == "ready", seconds_max=20)
    assert found["state"] == "making"
    assert 20 <= sum(waited) < 22


def test_a_snapshot_that_goes_away_while_it_is_made_ends_the_wait(api: FakeApi) -> None:
    making = examples.snapshot(state="making")
    api.on("GET", "/disks/home/snapshots", {"items": [making]}, {"items": []})
    with client_of(api, []) as client:
        assert client.disks.wait_snapshot("home", making)["state"] == "making"  # type: ignore[arg-type]


CREATES = {
    "launch": ("POST", "/instances", lambda client: client.instances.launch({"card": "x"})),
    "start": ("POST", "/instances/lab:start", lambda client: client.instances.start("lab", {})),
    "disk": ("POST", "/disks", lambda client: client.disks.create({"name": "home"})),
    "snapshot": ("POST", "/disks/home/snapshots", lambda client: client.disks.take_snapshot("home")),
    "sync": ("POST", "/disks/home/syncs", lambda client: client.disks.start_sync("home", {})),
    "key": ("POST", "/ssh-keys", lambda client: client.ssh_keys.add("n", "k")),
    "image": ("POST", "/images", lambda client: client.images.build("mine", None)),
}


@pytest.mark.parametrize(("method", "path", "act"), CREATES.values(), ids=CREATES.keys())
def test_a_create_that_was_not_answered_is_repeated_under_the_same_key(
    api: FakeApi, method: str, path: str, act: object
) -> None:
    api.on(method, path, BREAK, Reply(201, {"id": "x"}))
    with client_of(api, []) as client:
        act(client)  # type: ignore[operator]
    keys = {seen.headers["idempotency-key"] for seen in api.requests(method, path)}
    assert (len(api.requests(method, path)), len(keys)) == (2, 1)
