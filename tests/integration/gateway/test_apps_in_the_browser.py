"""Apps of instances through the proxy: links, cookies, streams, WebSockets, and who is kept out."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.sync.server import ServerConnection, serve
from websockets.typing import Origin, Subprotocol

from starverse.app import teams
from starverse.domain.workloads.states import InstanceState
from starverse.testing.gateway_sites import (
    LISTEN,
    GatewaySite,
    Visitor,
    free_port,
    token_of,
)
from starverse.testing.in_time import wait_for

pytestmark = pytest.mark.serial

MIB = 1024**2


class App(BaseHTTPRequestHandler):
    """What listens inside: tells what it was asked, takes and gives large bodies, streams."""

    protocol_version = "HTTP/1.1"
    go_on = threading.Event()

    def do_GET(self) -> None:
        if self.path == "/large":
            self._start(200, {"Content-Length": str(64 * MIB)})
            for _ in range(64):
                self.wfile.write(b"z" * MIB)
        elif self.path == "/stream":
            self._start(200, {"Transfer-Encoding": "chunked", "Content-Type": "text/event-stream"})
            self.wfile.write(b"5\r\nfirst\r\n")
            self.go_on.wait(20)
            self.wfile.write(b"6\r\nsecond\r\n0\r\n\r\n")
        elif self.path == "/away":
            self._start(
                302, {"Location": "/api/v1/me", "Set-Cookie": "mine=1; Path=/", "Content-Length": "0"}
            )
        elif self.path == "/cut":
            self._start(200, {"Content-Length": "100"})
            self.wfile.write(b"short")
            self.close_connection = True
        elif self.path == "/nothing":
            self.close_connection = True
        else:
            said = {"path": self.path, "headers": {k.lower(): v for k, v in self.headers.items()}}
            body = json.dumps(said).encode()
            self._start(200, {"Content-Length": str(len(body)), "Content-Type": "application/json"})
            self.wfile.write(body)

    def do_POST(self) -> None:
        digest, got = hashlib.sha256(), 0
        for part in self._body():
            digest.update(part)
            got += len(part)
        body = f"{got} {digest.hexdigest()}".encode()
        self._start(201, {"Content-Length": str(len(body))})
        self.wfile.write(body)

    def _body(self) -> Iterator[bytes]:
        if self.headers.get("Transfer-Encoding") == "chunked":
            while size := int(self.rfile.readline(), 16):
                yield self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return
        left = int(self.headers["Content-Length"])
        while left:
            part = self.rfile.read(min(left, 65536))
            left -= len(part)
            yield part

    def _start(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where the app listens, inside."""
    with ThreadingHTTPServer((LISTEN, 0), App) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join(10)


class Browser:
    """Opens addresses of one server, with one cookie; follows nothing by itself."""

    def __init__(self, api: str) -> None:
        self.host = urlsplit(api).netloc
        self.cookie = ""

    def ask(
        self, path: str, method: str = "GET", body: Any = None, **headers: str
    ) -> http.client.HTTPResponse:
        line = http.client.HTTPConnection(self.host, timeout=30)
        given = {"Connection": "close"} | {name.replace("_", "-"): text for name, text in headers.items()}
        if self.cookie:
            given["Cookie"] = f"{self.cookie}; theirs=1"
        line.request(method, path, body=body, headers=given)
        return line.getresponse()

    def status(self, path: str) -> int:
        answer = self.ask(path)
        answer.read()
        return answer.status

    def open(self, link: str) -> str:
        """Open a link; the path that it leads to."""
        parts = urlsplit(link)
        answer = self.ask(f"{parts.path}?{parts.query}")
        assert answer.status == 303, answer.read()
        self.cookie = answer.headers["Set-Cookie"].split(";")[0]
        answer.read()
        return answer.headers["Location"]


def link_to(site: GatewaySite, api: str, who: Visitor, app: Any, instance: str = "digits") -> tuple[int, Any]:
    answer = Browser(api).ask(
        f"/api/v1/instances/{instance}/app-links",
        "POST",
        json.dumps({"app": app}),
        Authorization=f"Bearer {token_of(site, who.who)}",
        Content_Type="application/json",
    )
    return answer.status, json.loads(answer.read())


@pytest.fixture
def browser(site: GatewaySite, api: str, wang: Visitor, port: int) -> Browser:
    """One that has opened a link."""
    opened = Browser(api)
    opened.path = opened.open(link_to(site, api, wang, port)[1]["url"])  # type: ignore[attr-defined]
    return opened


def path_of(browser: Browser) -> str:
    return str(browser.path)  # type: ignore[attr-defined]


def test_a_link_becomes_a_cookie_for_its_prefix_alone(
    site: GatewaySite, api: str, wang: Visitor, port: int
) -> None:
    status, link = link_to(site, api, wang, port)
    assert status == 201
    assert link["url"].startswith(f"{api}/apps/")
    assert link["expires_at"] == "2026-03-10T02:01:03Z"
    parts = urlsplit(link["url"])
    answer = Browser(api).ask(f"{parts.path}?x=1&{parts.query}")
    answer.read()
    assert (answer.status, answer.headers["Location"]) == (303, f"{parts.path}?x=1")
    cookie = answer.headers["Set-Cookie"]
    for word in (f"Path={parts.path}", "HttpOnly", "SameSite=lax"):
        assert word in cookie
    assert "Secure" not in cookie, "this server is reached without TLS"


def test_the_app_sees_its_own_paths_and_nothing_of_ours(browser: Browser, port: int) -> None:
    answer = browser.ask(f"{path_of(browser)}a%2Fb?q=1", Authorization="Bearer sv_secret")
    said = json.loads(answer.read())
    assert said["path"] == "/a%2Fb?q=1"
    headers = said["headers"]
    assert headers["host"] == f"127.0.0.1:{port}"
    assert headers["cookie"] == "theirs=1"
    assert headers["x-forwarded-host"] == browser.host
    assert "authorization" not in headers
    assert "sandbox" in answer.headers["Content-Security-Policy"]


def test_bodies_stream_both_ways_however_large(browser: Browser) -> None:
    answer = browser.ask(f"{path_of(browser)}large")
    digest, got = hashlib.sha256(), 0
    while part := answer.read(MIB):
        digest.update(part)
        got += len(part)
    assert (got, digest.hexdigest()) == (64 * MIB, hashlib.sha256(b"z" * 64 * MIB).hexdigest())
    body = b"y" * 40 * MIB
    expected = f"{len(body)} {hashlib.sha256(body).hexdigest()}".encode()
    assert browser.ask(f"{path_of(browser)}up", "POST", body).read() == expected
    chunks = (body[at : at + MIB] for at in range(0, len(body), MIB))
    assert browser.ask(f"{path_of(browser)}up", "POST", chunks).read() == expected


def test_events_come_as_they_are_said(browser: Browser) -> None:
    App.go_on.clear()
    answer = browser.ask(f"{path_of(browser)}stream")
    assert answer.read(5) == b"first", "before the app goes on"
    App.go_on.set()
    assert answer.read() == b"second"


def test_redirects_and_cookies_of_the_app_stay_below_its_prefix(browser: Browser) -> None:
    answer = browser.ask(f"{path_of(browser)}away")
    answer.read()
    assert answer.status == 302
    assert answer.headers["Location"] == f"{path_of(browser)}api/v1/me"
    assert answer.headers["Set-Cookie"] == f"mine=1; Path={path_of(browser)}"


def test_an_app_that_hangs_up_is_told_as_such(browser: Browser) -> None:
    answer = browser.ask(f"{path_of(browser)}nothing")
    assert (answer.status, json.loads(answer.read())["code"]) == (503, "instance_unreachable")
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        browser.ask(f"{path_of(browser)}cut").read()


def test_nobody_listening_is_told_as_such(site: GatewaySite, api: str, wang: Visitor) -> None:
    alone, nobody = Browser(api), free_port()
    answer = alone.ask(alone.open(link_to(site, api, wang, nobody)[1]["url"]))
    said = json.loads(answer.read())
    assert (answer.status, said["code"]) == (503, "instance_unreachable")
    assert f"port {nobody}" in said["detail"]


def test_a_prefix_without_its_slash_leads_to_the_one_with_it(browser: Browser) -> None:
    answer = browser.ask(path_of(browser).rstrip("/"))
    answer.read()
    assert (answer.status, answer.headers["Location"]) == (307, path_of(browser))


# -- WebSockets


@contextlib.contextmanager
def socket_app() -> Iterator[int]:
    """A WebSocket server inside that answers each message with it, until it hears ``close``."""

    def handle(socket: ServerConnection) -> None:
        assert socket.request is not None
        socket.send(json.dumps({k.lower(): v for k, v in socket.request.headers.raw_items()}))
        for message in socket:
            if message == "close":
                socket.close(4001, "as asked")
                return
            socket.send(message)

    names = [Subprotocol("one"), Subprotocol("two")]
    with serve(handle, LISTEN, 0, subprotocols=names, max_size=None) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.socket.getsockname()[1]
        server.shutdown()
        thread.join(10)


def test_websockets_pass_whole_and_close_with_their_code(site: GatewaySite, api: str, wang: Visitor) -> None:
    with socket_app() as port:
        opener = Browser(api)
        path = opener.open(link_to(site, api, wang, port)[1]["url"])
        address = f"{api.replace('http', 'ws')}{path}chat?x=1"
        headers = {"Cookie": opener.cookie, "Authorization": "Bearer sv_secret"}
        with connect(
            address,
            additional_headers=headers,
            origin=Origin(api),
            subprotocols=[Subprotocol("two")],
            max_size=None,
        ) as socket:
            assert socket.subprotocol == "two"
            seen = json.loads(socket.recv(20))
            assert seen["origin"] == f"http://{LISTEN}:{port}"
            assert "authorization" not in seen
            assert "cookie" not in seen
            for message in ("你好", b"\0\xff", b"x" * 3 * MIB, ""):
                socket.send(message)
                assert socket.recv(20) == message
            socket.send("close")
            with pytest.raises(ConnectionClosed) as caught:
                socket.recv(20)
            assert caught.value.rcvd is not None
            assert caught.value.rcvd.code == 4001
        for origin in ("http://evil.example", "null"):
            with pytest.raises(InvalidStatus) as refused:
                connect(address, additional_headers={"Cookie": opener.cookie}, origin=Origin(origin))
            assert refused.value.response.status_code == 403


def test_a_port_without_websockets_refuses_them(site: GatewaySite, api: str, browser: Browser) -> None:
    with pytest.raises(InvalidStatus) as refused:
        connect(
            f"{api.replace('http', 'ws')}{path_of(browser)}x", additional_headers={"Cookie": browser.cookie}
        )
    assert refused.value.response.status_code == 503


# -- who is kept out


def test_without_the_cookie_of_this_very_app_nothing_is_shown(
    site: GatewaySite, api: str, wang: Visitor, browser: Browser, port: int
) -> None:
    stranger = Browser(api)
    assert stranger.status(path_of(browser)) == 401
    stranger.cookie = "sv_app=gAAAAAwrong"
    assert stranger.status(path_of(browser)) == 401
    other = site.instance(wang.who, "other")
    stranger.cookie = browser.cookie
    assert stranger.status(f"/apps/{other.id}/{port}/") == 401, "a cookie is for one instance"
    assert stranger.status(path_of(browser).replace(str(port), "22")) == 401, "and one port"
    assert stranger.status("/apps/../api/v1/me") == 404
    assert stranger.status("/apps/nothing/1/") == 404
    ticket = link_to(site, api, wang, port)[1]["url"].partition("starverse-link=")[2]
    stranger.cookie = f"sv_app={ticket}"
    assert stranger.status(path_of(browser)) == 401, "a ticket is no cookie"


def test_a_link_is_good_for_a_minute(site: GatewaySite, api: str, wang: Visitor, port: int) -> None:
    link = urlsplit(link_to(site, api, wang, port)[1]["url"])
    site.world.clock.advance(seconds=62)
    try:
        assert Browser(api).status(f"{link.path}?{link.query}") == 401
    finally:
        site.world.clock.advance(seconds=-62)


def test_who_may_not_gets_no_link(site: GatewaySite, api: str, wang: Visitor) -> None:
    li = site.visitor(site.world.team("li"))
    assert link_to(site, api, li, 6006)[0] == 404
    assert link_to(site, api, wang, 6006, "nothing")[0] == 404
    for app in (0, 65536, -1, "x", "", "80 80", 1.5, None, True):
        assert link_to(site, api, wang, app)[0] == 422, app
    site.set_state("digits", InstanceState.STOPPED)
    try:
        assert link_to(site, api, wang, 6006)[0] == 409
    finally:
        site.set_state("digits", InstanceState.RUNNING)


def test_a_membership_that_ends_ends_the_apps(site: GatewaySite, api: str, wang: Visitor, port: int) -> None:
    zhao = site.visitor(site.world.team("zhao"))
    shared = teams.create_team(site.platform, wang.who, "vision").team
    teams.add_member(site.platform, wang.who, "vision", zhao.who.email, "member")
    made = site.instance_of_team(wang.who, "shared", shared)
    answer = Browser(api).ask(
        f"/api/v1/instances/{made.id}/app-links",
        "POST",
        json.dumps({"app": port}),
        Authorization=f"Bearer {token_of(site, zhao.who)}",
        X_Starverse_Team="vision",
        Content_Type="application/json",
    )
    member = Browser(api)
    path = member.open(json.loads(answer.read())["url"])
    assert member.status(path) == 200
    teams.remove_member(site.platform, wang.who, "vision", zhao.who.email)
    wait_for(lambda: member.status(path) == 403, "the end of access", 10)


def test_jupyter_that_does_not_start_is_told_as_such(site: GatewaySite, api: str, wang: Visitor) -> None:
    """The stand-in for the inside is an sshd whatever it is asked for: its greeting is no answer."""
    status, said = link_to(site, api, wang, "jupyter")
    assert (status, said["code"]) == (503, "instance_unreachable")
    assert "JupyterLab does not start" in said["detail"]
