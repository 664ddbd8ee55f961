"""The web terminal: a shell by WebSocket, its size, its end, and who gets none."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from starverse.app import auth, teams
from starverse.app.auth import TokenRequest
from starverse.domain.ids import TeamId, TokenId
from starverse.domain.workloads.states import InstanceState
from starverse.testing.gateway_sites import GatewaySite, Visitor, token_of

pytestmark = pytest.mark.serial

MIB = 1024**2


def opened(api: str, token: str | None, path: str = "digits/terminal", **more: Any) -> ClientConnection:
    """A terminal; the token goes as browsers send it."""
    address = f"{api.replace('http', 'ws')}/api/v1/instances/{path}"
    words = ["starverse.terminal", *([f"bearer.{token}"] if token else [])]
    return connect(address, subprotocols=words, open_timeout=20, **more)  # type: ignore[arg-type]


def read_until(socket: ClientConnection, wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        message = socket.recv(20)
        assert isinstance(message, bytes), message
        seen += message
    return seen


def end_of(socket: ClientConnection) -> tuple[dict[str, Any], int, str]:
    """The last text message, and the code and reason of the close."""
    said: dict[str, Any] = {}
    try:
        while True:
            message = socket.recv(20)
            if isinstance(message, str):
                said = json.loads(message)
    except ConnectionClosed as closed:
        assert closed.rcvd is not None
        return said, closed.rcvd.code, closed.rcvd.reason


def test_a_shell_has_its_size_takes_keys_and_tells_its_exit_code(
    site: GatewaySite, api: str, wang: Visitor
) -> None:
    with opened(api, token_of(site, wang.who), "digits/terminal?cols=101&rows=33") as socket:
        assert socket.subprotocol == "starverse.terminal", "the token is not sent back"
        socket.send(b"stty size; echo $TERM; id -u\n")
        seen = read_until(socket, b"1000\r\n")
        assert b"33 101" in seen
        assert b"xterm-256color" in seen
        socket.send(json.dumps({"type": "resize", "cols": 120, "rows": 40}))
        socket.send(b"stty size\n")
        read_until(socket, b"40 120")
        socket.send(b"exit 7\n")
        assert end_of(socket) == ({"type": "exit", "code": 7}, 1000, "exit 7")


def test_a_token_comes_as_a_header_too_and_a_signal_is_told_as_a_shell_tells_it(
    site: GatewaySite, api: str, wang: Visitor
) -> None:
    headers = {"Authorization": f"Bearer {token_of(site, wang.who)}"}
    with opened(api, None, additional_headers=headers) as socket:
        socket.send(b"kill -KILL $$\n")
        assert end_of(socket) == ({"type": "exit", "code": 137}, 1000, "exit 137")


def test_a_browser_that_reads_nothing_holds_up_its_own_shell_only(
    site: GatewaySite, api: str, wang: Visitor
) -> None:
    with (
        opened(api, token_of(site, wang.who), max_queue=1) as slow,
        opened(api, token_of(site, wang.who)) as other,
    ):
        slow.send(b"head -c 64M /dev/zero | tr '\\0' x; echo do''ne\n")
        other.send(b"echo i''n\n")
        read_until(other, b"in\r\n")
        got, tail = 0, b""
        while b"done\r\n" not in tail:
            message = slow.recv(20)
            assert isinstance(message, bytes)
            got += message.count(b"x")
            tail = tail[-10:] + message
        assert got >= 64 * MIB


@pytest.mark.parametrize(
    "message",
    [
        "no json",
        "[]",
        "{}",
        '{"type": "resize"}',
        '{"type": "resize", "cols": 0, "rows": 5}',
        '{"type": "x"}',
    ],
)
def test_a_message_that_is_none_ends_the_terminal(
    site: GatewaySite, api: str, wang: Visitor, message: str
) -> None:
    with opened(api, token_of(site, wang.who)) as socket:
        socket.send(message)
        assert end_of(socket)[1] == 1008


def refusal(api: str, token: str | None, path: str = "digits/terminal", **more: Any) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as caught:
        opened(api, token, path, **more)
    answer = caught.value.response
    return answer.status_code, json.loads(answer.body or b"{}").get("code", "")


def test_who_may_not_gets_no_terminal(
    site: GatewaySite, api: str, wang: Visitor, caplog: pytest.LogCaptureFixture
) -> None:
    token = token_of(site, wang.who)
    li = site.world.team("li")
    assert refusal(api, None) == (401, "unauthenticated")
    assert refusal(api, "sv_wrong") == (401, "unauthenticated")
    assert refusal(api, token_of(site, li)) == (404, "not_found")
    assert refusal(api, token, "nothing/terminal") == (404, "not_found")
    assert refusal(api, token, "digits/terminal?cols=0") == (422, "invalid")
    assert refusal(api, token, "digits/terminal?team=nobody") == (404, "not_found")
    for origin in ("http://evil.example", "null", api.replace("http:", "https:")):
        assert refusal(api, token, origin=origin) == (403, "forbidden"), origin
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
    with opened(api, token, origin=api) as socket:
        socket.send(b"echo o''k\n")
        read_until(socket, b"ok\r\n")


def test_an_instance_that_does_not_run_has_no_terminal(site: GatewaySite, api: str, wang: Visitor) -> None:
    site.set_state("digits", InstanceState.STOPPED)
    try:
        assert refusal(api, token_of(site, wang.who)) == (409, "conflict")
    finally:
        site.set_state("digits", InstanceState.RUNNING)


def test_a_revoked_token_and_a_lost_membership_end_terminals(
    site: GatewaySite, api: str, wang: Visitor
) -> None:
    made = auth.create_token(site.platform, wang.who, TokenRequest("gone soon"))
    li = site.world.team("zhao")
    shared = teams.create_team(site.platform, wang.who, "vision").team
    teams.add_member(site.platform, wang.who, "vision", li.email, "member")
    site.instance_of_team(wang.who, "shared", shared)
    member = dataclasses.replace(li, team_id=TeamId(shared.id), team_name="vision", token_id=TokenId("-"))
    with (
        opened(api, made.secret) as first,
        opened(api, token_of(site, member), "shared/terminal?team=vision") as second,
    ):
        auth.revoke_token(site.platform, wang.who, made.token.id)
        teams.remove_member(site.platform, wang.who, "vision", li.email)
        said, code, _ = end_of(first)
        assert (said["type"], code) == ("ended", 1001)
        assert "not valid" in said["message"]
        assert end_of(second)[0] == {"type": "ended", "message": "Your access to shared has ended."}


def test_a_stopped_inside_ends_its_terminals(
    site: GatewaySite, api: str, wang: Visitor, tmp_path: Path
) -> None:
    with opened(api, token_of(site, wang.who)) as socket:
        socket.send(b"echo o''k\n")
        read_until(socket, b"ok\r\n")
        site.sshd.stop_all()
        said, code, _ = end_of(socket)
        assert (said.get("code"), code) in ((None, 1000), (None, 1011))
