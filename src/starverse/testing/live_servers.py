"""Several ``starverse up`` on one PostgreSQL and one data folder, each of which may be killed on its own."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from starverse.testing.forked_command import ForkedCommand
from starverse.testing.in_time import wait_for
from starverse.testing.live_server import Ground, LiveServer

START_SECONDS = 90


class LiveServers(LiveServer):
    """A :class:`LiveServer` with ``peers`` beside it; ``database`` is the URL that they share.

    What a :class:`LiveServer` does is done to the first one: kill, restart, stop.
    """

    def __init__(self, database: str, ground: Ground | None = None) -> None:
        ground = ground or Ground()
        super().__init__(replace(ground, settings={**ground.settings, "server.db": database}))
        self.peers: dict[str, subprocess.Popen[bytes] | ForkedCommand] = {}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = str(free.getsockname()[1])
        self.api = f"http://127.0.0.1:{self._port}"

    def add_peer(self) -> str:
        """Start one more; its URL."""
        before = set(self.urls())
        process = self.spawn("--port", "0")

        def came() -> str:
            assert process.poll() is None, self.read_log()
            new = set(self.urls()) - before
            return next((url for url in new if ask(url, "/readyz")[0] == 200), "")

        url = str(wait_for(came, "another server", START_SECONDS))
        self.peers[url] = process
        return url

    def kill_peer(self, url: str) -> None:
        """``kill -9``."""
        process = self.peers.pop(url)
        process.kill()
        process.wait()

    def stop_peer(self, url: str) -> int:
        """SIGTERM; the exit code."""
        process = self.peers.pop(url)
        process.terminate()
        return process.wait(30)

    def urls(self) -> list[str]:
        """What each server that has a folder of its own says about where it listens."""
        found = []
        for file in (self.data / "servers").glob("*/api-url"):
            with contextlib.suppress(OSError):
                found.append(file.read_text().strip())
        return found

    def _answers(self) -> bool:
        """The first one itself: the well-known names may lead to another."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the server ended with {self._process.returncode}:\n{self.read_log()}")
        return self.api in self.urls() and ask(self.api, "/readyz")[0] == 200

    def close(self) -> None:
        for url in list(self.peers):
            self.kill_peer(url)
        super().close()


def ask(url: str, path: str, token: str = "") -> tuple[int, Mapping[str, str], Any]:
    """A GET: status, headers and JSON; status 0 where nobody answers."""
    address = urlsplit(url)
    line = http.client.HTTPConnection(str(address.hostname), address.port, timeout=20)
    try:
        line.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = line.getresponse()
        return (
            answer.status,
            {k.lower(): v for k, v in answer.getheaders()},
            json.loads(answer.read() or b"{}"),
        )
    except OSError:
        return 0, {}, {}
    finally:
        line.close()
