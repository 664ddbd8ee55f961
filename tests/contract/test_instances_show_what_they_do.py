"""Evidence of use from real instances, and the real JupyterLab (scenario 11): an open notebook that waits is
idle; a busy kernel, ``cp`` and a build are not."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starverse.engines.folders import FolderEngine, OpenChannel
from starverse.engines.local import LocalEngine
from starverse.node.cards.declared import DeclaredCards
from starverse.testing.instance_sites import Site, instance_site
from starverse.testing.launches import own

NAME = own("seen")
LOOK_SECONDS = 2.0
"""Looks more often than instances have them, so that less time passes here."""
BASE = "/apps/0192/8888/"


def looking_often(data: Path, open_channel: OpenChannel | None) -> FolderEngine:
    cards = DeclaredCards("rtx4090:8")
    return LocalEngine(data, cards, open_channel=open_channel, look_seconds=LOOK_SECONDS)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    for tool in ("bwrap", "/usr/sbin/sshd", "ssh"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed: apt-get install bubblewrap openssh-server")
    with instance_site(looking_often) as made:
        made.launch(NAME)
        yield made


def sources_since(site: Site, instant: float) -> set[str]:
    state = site.until(NAME, lambda state: True)
    return {one.source for one in state.activity if one.last_at > instant}


def wait_for_evidence(site: Site, source: str, since: float) -> None:
    site.until(NAME, lambda state: any(a.source == source and a.last_at >= since for a in state.activity))


def pass_looks(site: Site, count: int) -> float:
    """Let so many looks pass, by the launcher's own clock; answers when they began."""
    begin = site.until(NAME, lambda state: True).alive_at
    for _ in range(count):
        now = site.until(NAME, lambda state: True).alive_at
        site.until(NAME, lambda state, after=now + LOOK_SECONDS: state.alive_at > after)  # type: ignore[misc]
    return begin


def pass_until_quiet(site: Site) -> float:
    """What was started takes its time to be there: until a look shows nothing; answers when that was."""
    give_up = time.monotonic() + 120
    while True:
        begin = pass_looks(site, 2)
        if not sources_since(site, begin + LOOK_SECONDS):
            return begin + LOOK_SECONDS
        assert time.monotonic() < give_up, site.until(NAME, lambda state: True).activity


def test_work_is_seen_by_its_source(site: Site) -> None:
    with site.ssh(NAME) as line:
        begin = time.time()
        assert line.run("true").returncode == 0
        wait_for_evidence(site, "ssh", begin - 1)
        begin = time.time()
        copying = line.begin("dd if=/dev/zero of=/tmp/a bs=1M count=64; while cp /tmp/a /tmp/b; do :; done")
        try:
            wait_for_evidence(site, "disk", begin)
            wait_for_evidence(site, "cpu", begin)
        finally:
            copying.kill()
            copying.wait()


def test_an_open_terminal_is_no_evidence_but_typing_is(site: Site) -> None:
    with site.ssh(NAME) as line:
        terminal = line.begin("cat", options=("-tt",), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        assert terminal.stdin is not None
        try:
            wait_for_evidence(site, "ssh", time.time() - 1)
            begin = pass_looks(site, 2)
            assert "ssh" not in sources_since(site, begin + 2)
            typed = time.time()
            terminal.stdin.write(b"hello\n")
            terminal.stdin.flush()
            wait_for_evidence(site, "ssh", typed - 9)  # the kernel's own grain is 8 s
        finally:
            terminal.stdin.close()
            terminal.kill()
            terminal.wait()


def ask_for_jupyter(site: Site, base_url: str = BASE) -> dict[str, Any]:
    with site.engine.open_stream(NAME, "jupyter-start") as line, line.makefile("rwb") as lines:
        line.settimeout(90)
        lines.write(json.dumps({"base_url": base_url, "port": 8888}).encode() + b"\n")
        lines.flush()
        answer: dict[str, Any] = json.loads(lines.readline())
        assert lines.read() == b""
    return answer


def test_jupyterlab_runs_on_demand_and_an_open_idle_notebook_is_idle(site: Site) -> None:
    pytest.importorskip("jupyterlab")
    answer = ask_for_jupyter(site)
    assert (answer.get("port"), answer.get("base_url")) == (8888, BASE), answer
    assert len(answer["token"]) >= 32
    assert ask_for_jupyter(site) == answer, "started once"
    with site.ssh(NAME) as line:
        args = line.run("cat /proc/*/cmdline /proc/*/environ | tr '\\0' '\\n'").stdout.decode()
        assert "jupyterlab" in args
        assert answer["token"] not in args
        assert line.run("stat -c %a /tmp/.starverse-jupyter/jupyter_config.json").stdout == b"600\n"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        tunnel = line.begin(options=("-N", "-L", f"{port}:127.0.0.1:8888"))
        try:
            kernels(port, answer, b"{}")
            kernel = kernels(port, answer)[0]
            begin = pass_until_quiet(site)
            for _ in range(3):  # what an open page does
                pass_looks(site, 1)
                assert kernels(port, answer)[0]["execution_state"] in ("idle", "starting")
            assert sources_since(site, begin) == set()
            run(port, answer, kernel["id"], "import time; time.sleep(15)")
            wait_for_evidence(site, "jupyter", time.time())
        finally:
            tunnel.kill()
            tunnel.wait()


def kernels(port: int, answer: dict[str, Any], body: bytes | None = None) -> Any:
    """List the kernels; with a body: start one. Until the tunnel is there, tries again."""
    url = f"http://127.0.0.1:{port}{BASE}api/kernels"
    request = urllib.request.Request(url, data=body, headers={"Authorization": f"token {answer['token']}"})
    give_up = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:
                return json.load(reply)
        except OSError:
            assert time.monotonic() < give_up
            time.sleep(0.05)


def run(port: int, answer: dict[str, Any], kernel: str, code: str) -> None:
    """Have a kernel execute, over its WebSocket as a page does; does not wait for the end."""
    from websockets.sync.client import connect

    headers = {"Authorization": f"token {answer['token']}"}
    url = f"ws://127.0.0.1:{port}{BASE}api/kernels/{kernel}/channels"
    message = {
        "header": {
            "msg_id": "1",
            "username": "",
            "session": "s",
            "msg_type": "execute_request",
            "version": "5.3",
        },
        "parent_header": {},
        "metadata": {},
        "content": {"code": code, "silent": False, "allow_stdin": False},
        "channel": "shell",
    }
    with connect(url, additional_headers=headers) as page:
        page.send(json.dumps(message))
        while json.loads(page.recv(timeout=30))["content"].get("execution_state") != "busy":
            pass


def test_a_port_that_is_taken_is_said(site: Site) -> None:
    pytest.importorskip("jupyterlab")
    assert "another program" in ask_for_jupyter(site, "/apps/other/8888/")["error"]
