"""Who is let in, who is not and cannot tell why, and when visits end."""

from __future__ import annotations

import dataclasses
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from starverse.app import ssh_keys, teams
from starverse.app.ssh_keys import NewSshKey
from starverse.domain.workloads.states import InstanceState
from starverse.gateway.inside import Inside
from starverse.gateway.limits import DoorLimits
from starverse.gateway.serving import Gateway
from starverse.testing.gateway_sites import LISTEN, GatewaySite, Visitor, listen, make_key, open_gateway_site
from starverse.testing.in_time import wait_for

pytestmark = pytest.mark.serial

LIMITS = DoorLimits(strangers_per_place=5, failures_per_place=30, keys_offered=3)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[GatewaySite]:
    with open_gateway_site("sqlite", tmp_path, LIMITS) as opened:
        yield opened


@pytest.fixture
def wang(site: GatewaySite) -> Visitor:
    """Someone with a running instance ``digits``."""
    return site.visitor_with_instance("wang", "digits")


def staying(visitor: Visitor, instance: str) -> subprocess.Popen[bytes]:
    """A session that lasts, once it has begun."""
    command = visitor.ssh(instance, "echo begun; sleep 600")
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    return process


def end_of(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    """How a session ended: its exit code, and what was said to its visitor."""
    _, said = process.communicate(timeout=20)
    return process.returncode, said.decode().strip()


def test_an_unknown_key_instance_and_team_look_alike(
    site: GatewaySite, wang: Visitor, tmp_path: Path
) -> None:
    li = site.visitor(site.world.team("li"))
    make_key(tmp_path / "unknown")
    stranger = dataclasses.replace(wang, folder=tmp_path / "stranger")
    stranger.folder.mkdir()
    make_key(stranger.folder / "key")
    (stranger.folder / "known_hosts").write_text((wang.folder / "known_hosts").read_text())
    said = {
        (done.returncode, done.stdout, done.stderr.replace(f"{name}@".encode(), b"NAME@"))
        for visitor, name in ((li, "digits"), (wang, "nothing"), (stranger, "digits"), (li, "1"), (wang, "9"))
        for done in [visitor.run(name, "true")]
    }
    assert said == {(255, b"", f"NAME@{LISTEN}: Permission denied (publickey).\r\n".encode())}


def test_whoever_is_in_the_team_comes_in_and_is_out_with_their_membership(
    site: GatewaySite, wang: Visitor
) -> None:
    li = site.visitor(site.world.team("li"))
    shared = teams.create_team(site.platform, wang.who, "vision").team
    teams.add_member(site.platform, wang.who, "vision", li.who.email, "member")
    site.instance_of_team(wang.who, "shared", shared)
    assert li.run("shared", "echo in").stdout == b"in\n"
    session = staying(li, "shared")
    teams.remove_member(site.platform, wang.who, "vision", li.who.email)
    assert end_of(session) == (255, "Your access to shared has ended.")
    assert li.run("shared", "true").returncode == 255
    assert wang.run("shared", "echo in").stdout == b"in\n"


def test_a_removed_key_ends_its_sessions_and_no_others(site: GatewaySite, wang: Visitor) -> None:
    second = site.visitor(wang.who, "second")
    lost, kept = staying(wang, "digits"), staying(second, "digits")
    ssh_keys.remove_key(site.platform, wang.who, wang.key_id)
    assert end_of(lost) == (255, "Your access to digits has ended.")
    assert wang.run("digits", "true").returncode == 255
    assert kept.poll() is None
    assert second.run("digits", "echo in").stdout == b"in\n"
    kept.terminate()
    kept.communicate()


def test_an_instance_that_stops_ends_its_sessions(site: GatewaySite, wang: Visitor) -> None:
    session = staying(wang, "digits")
    site.sshd.stop_all()
    code, said = end_of(session)
    assert (code, said) == (255, "The connection into the instance has ended.")


def test_a_run_that_the_record_calls_ended_ends_its_sessions_too(site: GatewaySite, wang: Visitor) -> None:
    """A node that lost its launcher: the record says lost, the connection says nothing."""
    session = staying(wang, "digits")
    site.end_run("digits")
    assert end_of(session) == (255, "The instance digits has stopped.")


@pytest.mark.parametrize(
    ("state", "message", "said"),
    [
        (InstanceState.STOPPED, "", "The instance digits is stopped; start it: `starverse start digits`."),
        (InstanceState.STOPPED, "idle for 1 h", "The instance digits is stopped (idle for 1 h); start it:"),
        (InstanceState.QUEUED, "", "The instance digits waits for its cards; see `starverse show digits`."),
    ],
)
def test_an_instance_that_does_not_run_says_so(
    site: GatewaySite, wang: Visitor, state: InstanceState, message: str, said: str
) -> None:
    site.set_state("digits", state, message)
    done = wang.run("digits", "true")
    assert done.returncode == 255
    assert said in done.stderr.decode()
    assert done.stdout == b""
    forwarded = wang.run("digits", "-o", "LogLevel=INFO", "-W", f"{LISTEN}:22", "-T")
    assert forwarded.returncode == 255
    assert "digits" in forwarded.stderr.decode()


def test_a_released_instance_is_unknown(site: GatewaySite, wang: Visitor) -> None:
    site.set_state("digits", InstanceState.RELEASED)
    assert b"Permission denied" in wang.run("digits", "true").stderr


def test_a_name_in_two_teams_asks_for_the_number(site: GatewaySite, wang: Visitor) -> None:
    shared = teams.create_team(site.platform, wang.who, "vision").team
    other = str(site.instance_of_team(wang.who, "digits", shared).number)
    done = wang.run("digits", "true")
    assert done.returncode == 255
    choices = f"its number instead of its name: 1 (wang/digits), {other} (vision/digits)"
    assert choices in done.stderr.decode()
    assert wang.run(other, "echo in").stdout == b"in\n"


def test_a_key_that_two_accounts_added_goes_by_number_until_it_came_in(
    site: GatewaySite, wang: Visitor
) -> None:
    """Whoever adds somebody else's public key and calls an instance alike gets none of their visits, and
    shuts them out of none."""
    mallory = site.world.team("mallory")
    public = (wang.folder / "key.pub").read_text("utf-8")
    ssh_keys.add_key(site.platform, mallory, NewSshKey("stolen", public))
    site.instance(mallory, "trap")
    for name in ("digits", "trap"):
        done = wang.run(name, "true")
        assert (done.returncode, "in more than one account" in done.stderr.decode()) == (255, True)
    assert wang.run("1", "echo in").stdout == b"in\n"
    assert wang.run("digits", "echo in").stdout == b"in\n"
    assert wang.run("trap", "true").returncode == 255


def test_a_disabled_account_is_out(site: GatewaySite, wang: Visitor) -> None:
    session = staying(wang, "digits")
    site.disable(wang.who)
    assert end_of(session) == (255, "Your access to digits has ended.")
    assert b"Permission denied" in wang.run("digits", "true").stderr


def test_the_last_use_of_a_key_is_shown(site: GatewaySite, wang: Visitor) -> None:
    other = site.visitor(wang.who, "other")
    assert wang.run("digits", "true").returncode == 0
    keys = wait_for(
        lambda: [k for k in ssh_keys.list_keys(site.platform, wang.who) if k.last_used_at], "its use", 10
    )
    assert [(k.id, k.last_used_at) for k in keys] == [(wang.key_id, site.world.clock.now())]
    assert other.key_id not in {k.id for k in keys}


def test_a_password_and_questions_are_not_asked_for(wang: Visitor) -> None:
    asked = ["-o", "PreferredAuthentications=password,keyboard-interactive", "-o", "PubkeyAuthentication=no"]
    done = wang.run("digits", *asked, "true")
    assert (done.returncode, b"Permission denied (publickey)" in done.stderr) == (255, True)


def test_the_host_key_is_trusted_by_its_authority_alone(wang: Visitor, tmp_path: Path) -> None:
    (tmp_path / "none").write_text("")
    done = wang.run("digits", "-o", f"UserKnownHostsFile={tmp_path / 'none'}", "true")
    assert (done.returncode, b"Host key verification failed" in done.stderr) == (255, True)
    assert wang.run("digits", "true").returncode == 0


def test_several_servers_have_one_host_key_and_any_of_them_answers(site: GatewaySite, wang: Visitor) -> None:
    with ExitStack() as stack:
        inside = Inside(site.keys, site.sshd.open_stream)
        stack.callback(inside.close)
        listener = listen()
        second = Gateway(site.platform, site.keys, inside, listener)
        second.start()
        stack.callback(second.close)
        port = listener.getsockname()[1]
        shown = (wang.folder / "known_hosts").read_text()
        (wang.folder / "known_hosts").write_text(shown + shown.replace(str(wang.port), str(port)))
        there = dataclasses.replace(wang, port=port)
        assert there.run("digits", "echo in").stdout == b"in\n"
        session = staying(there, "digits")
        ssh_keys.remove_key(site.platform, wang.who, wang.key_id)
        assert end_of(session)[0] == 255, "the record ends visits at every server"


def test_a_gateway_that_is_restarted_says_so_and_is_back(site: GatewaySite, wang: Visitor) -> None:
    session = staying(wang, "digits")
    site.restart_gateway()
    code, said = end_of(session)
    assert code == 255
    assert "your instance goes on" in said
    assert wang.run("digits", "echo in").stdout == b"in\n"


# -- limits


def test_strangers_from_one_place_are_so_many_and_others_come_in_again_as_they_leave(
    site: GatewaySite, wang: Visitor
) -> None:
    waiting = [socket.create_connection((LISTEN, site.port)) for _ in range(LIMITS.strangers_per_place)]
    for line in waiting:
        line.settimeout(10)
        assert line.recv(100).startswith(b"SSH-2.0-")
    assert wang.run("digits", "true").returncode == 255
    for line in waiting:
        line.close()
    wait_for(lambda: wang.run("digits", "true").returncode == 0, "room", 20)


def test_a_connection_offers_so_many_keys(site: GatewaySite, wang: Visitor, tmp_path: Path) -> None:
    identities = []
    for number in range(LIMITS.keys_offered):
        make_key(tmp_path / f"key{number}")
        identities += ["-o", f"IdentityFile={tmp_path}/key{number}"]
    assert wang.run("digits", *identities, "true").returncode == 255, "its own comes too late"
    assert wang.run("digits", *identities[:2], "true").returncode == 0


def test_who_failed_too_often_is_not_heard_for_a_while(site: GatewaySite, wang: Visitor) -> None:
    for _ in range(LIMITS.failures_per_place):
        with socket.create_connection((LISTEN, site.port)) as line:
            line.settimeout(10)
            line.recv(100)
            line.sendall(b"nonsense\r\n\r\n")
            while line.recv(4096):
                pass
    assert wang.run("digits", "true").returncode == 255


@pytest.mark.parametrize(
    "said", [b"", b"GET / HTTP/1.1\r\n\r\n", b"SSH-2.0-x\r\n" + b"\xff" * 5000, b"SSH-2.0-" + b"A" * 100_000]
)
def test_nonsense_at_the_door_ends_and_harms_nobody(site: GatewaySite, wang: Visitor, said: bytes) -> None:
    with socket.create_connection((LISTEN, site.port)) as line:
        line.settimeout(10)
        line.sendall(said)
        line.shutdown(socket.SHUT_WR)
        try:
            while line.recv(65536):
                pass
        except ConnectionResetError:
            pass
    assert wang.run("digits", "true").returncode == 0
