"""The launchers' channel by TLS: who gets in, several servers, the API behind it, slow and hostile peers."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from starverse.domain.workloads.launch import Desired, LauncherState, LaunchSpec
from starverse.node.addresses import SERVER_NAME, split_host
from starverse.node.channel import ChannelClient, hello_line
from starverse.node.channel_server import Answers, ChannelServer, TlsSettings
from starverse.node.dialing import dial
from starverse.node.hub import HELLO_BYTES_MAX, STRANGERS_MAX
from starverse.node.link import client_context
from starverse.node.tls import make_identity
from starverse.node.unix_sockets import bind_unix
from starverse.testing.launches import build_launch

STATE = LauncherState("a-1", 1, "running", "boot", 5.0, ready_at=4.0)


class Site:
    """One or more channel servers on loopback, sharing the folder of their certificates."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wanted: dict[str, Desired] = {}
        self.news = 0
        self.servers: list[ChannelServer] = []
        self.clients: list[ChannelClient] = []

    def start(self, address: str = "127.0.0.1:0") -> ChannelServer:
        number = len(self.servers)
        server = ChannelServer(
            self.folder / f"channel-{number}.sock",
            Answers(lambda name: {"a-1": "channel-secret"}.get(name), self.wanted.get, self._count),
            TlsSettings(address, self.folder / "tls", self.folder / "api.sock"),
        )
        server.start()
        self.servers.append(server)
        return server

    def spec(self, **changes: Any) -> LaunchSpec:
        spec = build_launch(
            self.folder,
            channel=",".join(server.tls_address for server in self.servers),
            channel_ca=self.servers[0].authority,
        )
        return replace(spec, **changes)

    def client(self, **changes: Any) -> ChannelClient:
        self.clients.append(ChannelClient(self.spec(**changes)))
        return self.clients[-1]

    def close(self) -> None:
        for client in self.clients:
            client.close()
        for server in self.servers:
            server.close()

    def _count(self) -> None:
        self.news += 1


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    try:
        yield made
    finally:
        made.close()


def until(condition: Callable[[], object], seconds_max: float = 10.0) -> None:
    give_up = time.monotonic() + seconds_max
    while not condition():
        assert time.monotonic() < give_up, "it did not come about"
        time.sleep(0.005)


def keep_telling(client: ChannelClient, server: ChannelServer, state: LauncherState = STATE) -> None:
    def told() -> bool:
        client.tell(state, time.monotonic())
        client.listen(time.monotonic())
        return server.newest("a-1") == state

    until(told)


def stranger(server: ChannelServer) -> socket.socket:
    line = socket.create_connection(split_host(server.tls_address), timeout=10)
    return client_context(server.authority).wrap_socket(line, server_hostname=SERVER_NAME)


def test_states_go_out_and_what_is_wanted_comes_back(site: Site) -> None:
    server = site.start()
    site.wanted["a-1"] = Desired(funded_until=9.0)
    client = site.client()
    keep_telling(client, server)
    until(lambda: client.listen(time.monotonic()) or client.heard == Desired(funded_until=9.0))
    server.send("a-1", Desired(stop=True))
    until(lambda: client.listen(time.monotonic()) and client.heard == Desired(stop=True))
    assert site.news == 1


def test_a_launcher_goes_to_the_other_server_when_its_own_ends_and_back(site: Site) -> None:
    first, second = site.start(), site.start()
    client = site.client()
    keep_telling(client, first)
    first.close()
    keep_telling(client, second, replace(STATE, alive_at=6.0))
    again = site.start(first.tls_address)
    second.close()
    keep_telling(client, again, replace(STATE, alive_at=7.0))


def test_a_socket_that_is_not_there_is_passed_over_for_the_next_address(site: Site) -> None:
    server = site.start()
    client = site.client(channel=f"{site.folder}/nobody.sock,{server.tls_address}")
    keep_telling(client, server)


@pytest.mark.parametrize(
    "first_line",
    [
        b'{"version": 1, "allocation_id": "a-1", "token": "wrong"}\n',
        b'{"version": 1, "allocation_id": "a-1", "token": ""}\n',
        b'{"version": 1, "allocation_id": "a-2", "token": "channel-secret"}\n',
        b'{"version": 9, "allocation_id": "a-1", "token": "channel-secret"}\n',
        b'{"version": 1, "allocation_id": "a-1", "token": "channel-secret", "kind": "root"}\n',
        b'["a-1"]\n',
        b"\xff\xfe\n",
        b"[" * 4000 + b"\n",
        b"x" * (HELLO_BYTES_MAX + 70_000),
    ],
    ids=["token", "no token", "allocation", "version", "kind", "list", "no text", "deep", "endless"],
)
def test_whoever_does_not_show_itself_is_hung_up_on(site: Site, first_line: bytes) -> None:
    server = site.start()
    with stranger(server) as line:
        with contextlib.suppress(OSError):
            line.sendall(first_line + STATE.to_json().encode() + b"\n")
        with contextlib.suppress(ConnectionResetError):
            assert line.recv(10) == b""
    assert server.newest("a-1") is None
    keep_telling(site.client(), server)


def test_who_speaks_for_another_allocation_is_hung_up_on(site: Site) -> None:
    server = site.start()
    with stranger(server) as line:
        line.sendall(hello_line(site.spec()) + replace(STATE, allocation_id="a-2").to_json().encode() + b"\n")
        assert line.recv(10) == b""
    assert server.newest("a-1") is None


def test_a_launcher_trusts_only_the_authority_it_was_given(site: Site) -> None:
    server = site.start()
    other = make_identity(datetime.now(UTC)).authority
    client = site.client(channel_ca=other)
    give_up = time.monotonic() + 0.5
    while time.monotonic() < give_up:
        client.tell(STATE, time.monotonic())
        assert not client.listen(time.monotonic())
    assert server.newest("a-1") is None
    with pytest.raises(ssl.SSLCertVerificationError):
        dial(server.tls_address, other, b"secret\n")


def test_silent_strangers_are_bounded_and_hold_nobody_up(site: Site) -> None:
    """Half of them never begin TLS; the oldest go, and a launcher gets in at once."""
    server = site.start()
    place = split_host(server.tls_address)
    silent = [socket.create_connection(place, timeout=10) for _ in range(STRANGERS_MAX + 20)]
    try:
        client = site.client()
        keep_telling(client, server)
        silent[0].settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            assert silent[0].recv(1) == b""
    finally:
        for line in silent:
            line.close()


def test_a_peer_that_reads_nothing_holds_up_no_other(site: Site) -> None:
    server = site.start()
    with stranger(server) as deaf:
        deaf.sendall(hello_line(site.spec()))
        client = site.client()
        keep_telling(client, server)
        for number in range(2000):
            server.send("a-1", Desired(notice_reason="x" * 2000, funded_until=float(number)))
        server.send("a-1", Desired(stop=True))
        keep_telling(client, server, replace(STATE, alive_at=8.0))


class EchoApi:
    """What stands in for the API: answers each connection with what it sent, after a mark."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        bind_unix(self._listener, path)
        self._listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                line, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(line,), daemon=True).start()

    def _answer(self, line: socket.socket) -> None:
        with line, contextlib.suppress(OSError):
            line.sendall(b"api:")
            while part := line.recv(65536):
                line.sendall(part)

    def close(self) -> None:
        self._listener.close()


@pytest.fixture
def api(site: Site) -> Iterator[EchoApi]:
    made = EchoApi(site.folder / "api.sock")
    try:
        yield made
    finally:
        made.close()


def receive(line: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = line.recv(65536)
        assert part, f"hung up after {len(found)} bytes"
        found += part
    return found


@pytest.mark.usefixtures("api")
def test_the_api_is_reached_through_the_channels_port(site: Site) -> None:
    site.start()
    spec = site.spec()
    body = bytes(range(256)) * 8192  # 2 MiB: more than either buffer holds
    with dial(spec.channel, spec.channel_ca, hello_line(spec, "api")) as line:
        assert receive(line, 4) == b"api:"
        line.settimeout(0.0)
        found, sent = b"", 0
        give_up = time.monotonic() + 20
        while len(found) < len(body):
            assert time.monotonic() < give_up, (sent, len(found))
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if sent < len(body):
                    sent += line.send(body[sent : sent + 65536])
            with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
                found += line.recv(65536)
        assert found == body


def test_without_an_api_the_connection_is_hung_up_on(site: Site) -> None:
    server = site.start()
    spec = site.spec()
    line = dial(spec.channel, spec.channel_ca, hello_line(spec, "api"))
    with line, contextlib.suppress(ConnectionResetError):
        assert line.recv(1) == b""
    keep_telling(site.client(), server)


def test_what_is_no_json_of_ours_after_the_hello_ends_that_connection_only(site: Site) -> None:
    server = site.start()
    client = site.client()
    keep_telling(client, server)
    with stranger(server) as line:
        line.sendall(hello_line(site.spec()) + json.dumps({"allocation_id": "a-1"}).encode() + b"\n")
        assert line.recv(10) == b""
    keep_telling(client, server, replace(STATE, alive_at=9.0))
