"""A real instance on the local engine, entered in each way that people have."""

from __future__ import annotations

import http.client
import json
import re
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from starverse.testing.gateway_sites import make_key
from starverse.testing.in_time import wait_for
from starverse.testing.live_person import Person
from starverse.testing.live_server import Ground, LiveServer


@pytest.fixture(scope="module")
def wang() -> Iterator[Person]:
    """Someone with a running instance ``digits`` and an OpenSSH key."""
    with LiveServer(Ground()) as server:
        person = server.person("wang", yuan=100)
        (person.home / ".ssh").mkdir(mode=0o700)
        make_key(person.home / ".ssh" / "id_ed25519")
        person.run("ssh-key", "add", str(person.home / ".ssh" / "id_ed25519.pub"))
        person.run("launch", "--card", "rtx4090", "--cards", "1", "--name", "digits", "--yes")
        yield person
        person.run("stop", "digits")


def test_openssh_enters_and_brings_back_the_exit_code(wang: Person) -> None:
    done = wang.call("ssh", "digits", "--", "id -u; pwd; exit 7")
    assert (done.returncode, done.stdout.split()) == (7, ["1000", "/root"]), done.stderr
    assert wang.call("exec", "digits", "--", "sh", "-c", "exit 3").returncode == 3


def test_a_terminal_opens_in_the_browser_s_way(wang: Person) -> None:
    files = [path.read_text() for path in (wang.home / ".config").rglob("*") if path.is_file()]
    token = re.search(r"sv_[A-Za-z0-9_-]+", "\n".join(files))
    assert token is not None
    address = f"{wang.server.api.replace('http', 'ws')}/api/v1/instances/digits/terminal"
    words = [Subprotocol("starverse.terminal"), Subprotocol(f"bearer.{token[0]}")]
    with connect(address, subprotocols=words, open_timeout=30) as socket:
        socket.send(b"hostname; exit 4\n")
        seen: list[bytes | str] = []
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                seen.append(socket.recv(30))
    assert json.loads(seen[-1]) == {"type": "exit", "code": 4}
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.reason == "exit 4"


def test_jupyterlab_opens_by_its_link_and_runs_code(wang: Person) -> None:
    opened = wang.call("open", "digits", "jupyter", seconds=120)
    if opened.returncode and "JupyterLab" in opened.stderr:
        pytest.skip(f"no JupyterLab for instances on this machine: {opened.stderr.strip()}")
    link = re.search(r"http\S+", opened.stdout)
    assert link is not None, opened.stderr
    browser = Browser(link[0])
    assert b"<title>JupyterLab" in browser.ask("lab")
    kernel = json.loads(browser.ask("api/kernels", "POST", b"{}"))["id"]
    address = f"ws://{browser.host}{browser.prefix}api/kernels/{kernel}/channels"
    headers = {"Cookie": browser.cookie}
    origin = Origin(f"http://{browser.host}")
    with connect(address, additional_headers=headers, origin=origin, open_timeout=30) as socket:
        socket.send(json.dumps(execute_request("print(6 * 7)")))

        def printed() -> Any:
            message = json.loads(socket.recv(60))
            return message["msg_type"] == "stream" and message["content"]["text"]

        assert wait_for(printed, "what the kernel prints", 60) == "42\n"


class Browser:
    """Opens a link, and then what lies below it."""

    def __init__(self, link: str) -> None:
        parts = urlsplit(link)
        self.host = parts.netloc
        self.cookie = ""
        answer = self._answer(f"{parts.path}?{parts.query}", "GET", None)
        self.cookie = answer.headers["Set-Cookie"].split(";")[0]
        self.prefix = answer.headers["Location"]

    def ask(self, path: str, method: str = "GET", body: bytes | None = None) -> bytes:
        answer = self._answer(self.prefix + path, method, body)
        content = answer.read()
        assert answer.status in (200, 201), content
        return content

    def _answer(self, path: str, method: str, body: bytes | None) -> http.client.HTTPResponse:
        line = http.client.HTTPConnection(self.host, timeout=60)
        headers = {"Connection": "close", "Content-Type": "application/json", "Cookie": self.cookie}
        line.request(method, path, body, headers)
        return line.getresponse()


def execute_request(code: str) -> dict[str, Any]:
    """As Jupyter's pages send it."""
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": "execute_request",
        "username": "wang",
        "session": uuid.uuid4().hex,
        "version": "5.3",
        "date": "2026-01-01T00:00:00Z",
    }
    content = {"code": code, "silent": False}
    return {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
