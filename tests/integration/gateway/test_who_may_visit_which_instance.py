"""Whom the record lets into which instance, and which visits it calls ended, on each database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.app import ssh_access, ssh_keys
from starverse.app.instances.launching import LaunchRequest, launch
from starverse.app.ssh_access import Ambiguous, Visit
from starverse.app.ssh_keys import NewSshKey
from starverse.domain.errors import Conflict, NotFound
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJfyo1n/Gzp+vb93Fwz8DiNGwb3jVZ5hxcBBwgTcuCsQ"


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data")


def test_a_key_leads_to_the_instances_of_its_account_s_teams_while_it_is_there(world: World) -> None:
    platform, wang, li = world.platform, world.team("wang"), world.team("li")
    made = launch(platform, wang, LaunchRequest("rtx4090", name="digits"))
    key = ssh_keys.add_key(platform, wang, NewSshKey("laptop", KEY))
    visit = ssh_access.admit_by_key(platform, key.fingerprint, "digits")
    assert isinstance(visit, Visit)
    assert (visit.instance_id, visit.number, visit.way.key_id) == (made.id, made.number, key.id)
    for name in (made.id, str(made.number)):
        assert ssh_access.admit_by_key(platform, key.fingerprint, name) == visit
    for name in ("", "x" * 65, "di\0gits", "999", "9" * 40, "٣", "nothing"):
        assert ssh_access.admit_by_key(platform, key.fingerprint, name) is None, name
    assert ssh_access.admit_by_key(platform, "SHA256:other", "digits") is None
    with pytest.raises(NotFound):
        ssh_access.admit_by_sign_in(platform, li, made.id)
    assert ssh_access.admit_by_sign_in(platform, wang, "digits").instance_id == made.id

    assert "waits for its cards" in ssh_access.locate(platform, visit).message
    with pytest.raises(Conflict):
        ssh_access.require_running(platform, visit)
    world.run(3)
    allocation_id = ssh_access.require_running(platform, visit)
    assert ssh_access.ended_visits(platform, {(visit, allocation_id)}) == {}
    assert set(ssh_access.ended_visits(platform, {(visit, "gone")}).values()) == {
        "The instance digits has stopped."
    }

    noted = ssh_access.note_visit(platform, visit, None)
    assert ssh_keys.list_keys(platform, wang)[0].last_used_at == noted
    world.clock.advance(seconds=30)
    assert ssh_access.note_visit(platform, visit, noted) == noted, "not at each visit"
    ssh_keys.remove_key(platform, wang, "laptop")
    assert set(ssh_access.ended_visits(platform, {(visit, allocation_id)}).values()) == {
        "Your access to digits has ended."
    }
    assert ssh_access.admit_by_key(platform, key.fingerprint, "digits") is None


def test_a_key_in_two_accounts_goes_by_the_number_of_an_instance(world: World) -> None:
    platform, wang, mallory = world.platform, world.team("wang"), world.team("mallory")
    mine = launch(platform, wang, LaunchRequest("rtx4090", name="digits"))
    key = ssh_keys.add_key(platform, wang, NewSshKey("laptop", KEY))
    assert isinstance(ssh_access.admit_by_key(platform, key.fingerprint, "digits"), Visit)
    trap = launch(platform, mallory, LaunchRequest("rtx4090", name="digits"))
    ssh_keys.add_key(platform, mallory, NewSshKey("stolen", KEY))
    found = ssh_access.admit_by_key(platform, key.fingerprint, "digits")
    assert isinstance(found, Ambiguous)
    assert f"{mine.number} (wang/digits), {trap.number} (mallory/digits)" in found.message
    assert isinstance(ssh_access.admit_by_key(platform, key.fingerprint, str(mine.number)), Visit)


def test_a_key_that_came_in_before_keeps_its_names_whoever_adds_it_too(world: World) -> None:
    platform, wang, mallory = world.platform, world.team("wang"), world.team("mallory")
    mine = launch(platform, wang, LaunchRequest("rtx4090", name="digits"))
    for name in ("digits", "trap"):
        launch(platform, mallory, LaunchRequest("rtx4090", name=name))
    ssh_keys.add_key(platform, mallory, NewSshKey("stolen before its owner came", KEY))
    key = ssh_keys.add_key(platform, wang, NewSshKey("laptop", KEY))
    by_number = ssh_access.admit_by_key(platform, key.fingerprint, str(mine.number))
    assert isinstance(by_number, Visit)
    ssh_access.note_visit(platform, by_number, None)
    assert ssh_access.admit_by_key(platform, key.fingerprint, "digits") == by_number
    assert isinstance(ssh_access.admit_by_key(platform, key.fingerprint, "trap"), Ambiguous)
