"""What a head makes of its companions: who is there, who is lost, whom it lets in at all."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from starverse.domain.workloads.launch import NODE_LOST, LauncherState
from starverse.node.folder import AllocationFolder
from starverse.node.gang import HeadFile, Order, gang_hello
from starverse.node.gang_head import Trouble, find_trouble
from starverse.node.gang_server import GangServer, Member
from starverse.node.link import Link
from starverse.testing.launches import build_launch

STATE = LauncherState("a-1", 1, "running", "boot", 5.0, ready_at=4.0)
ENDED = replace(STATE, phase="ended", exit_signal=9)
THERE = Member("gpu2", STATE, connected=True, heard_at=100.0)


@pytest.mark.parametrize(
    ("member", "now", "trouble"),
    [
        (THERE, 101.0, None),
        (THERE, 114.0, None),
        (THERE, 116.0, Trouble("the launcher on gpu2 was lost", NODE_LOST)),
        (replace(THERE, connected=False), 102.0, None),
        (replace(THERE, connected=False), 104.0, Trouble("the launcher on gpu2 was lost", NODE_LOST)),
        (replace(THERE, state=ENDED), 101.0, Trouble("gpu2: the sandbox of its ranks ended (signal 9)")),
        (
            replace(THERE, state=replace(ENDED, failure="no bubblewrap")),
            101.0,
            Trouble("gpu2: no bubblewrap", NODE_LOST),
        ),
        (
            replace(THERE, state=replace(ENDED, out_of_memory=True)),
            101.0,
            Trouble("gpu2: it used more memory than it asked for", out_of_memory=True),
        ),
        (
            replace(THERE, state=ENDED, connected=False),
            200.0,
            Trouble("gpu2: the sandbox of its ranks ended (signal 9)"),
        ),
    ],
    ids=["there", "late", "silent", "just gone", "gone", "ended", "failed", "memory", "ended and gone"],
)
def test_trouble_is_found_by_what_is_known_of_a_companion(
    member: Member, now: float, trouble: Trouble | None
) -> None:
    assert find_trouble({1: member}, now) == trouble


def test_an_order_comes_back_from_json_and_newer_words_are_passed_over() -> None:
    order = Order((("gpu1", "10.0.0.1"),), "reclaim", 1234.5, "term", True, ("s1",))
    raw = json.loads(order.to_json())
    assert Order.from_json(json.dumps({**raw, "plug": "card"})) == order


@pytest.fixture
def server(tmp_path: Path) -> Iterator[GangServer]:
    spec = build_launch(tmp_path, node="gpu1", nodes=("gpu1", "gpu2"))
    folder = AllocationFolder(tmp_path / "folder")
    folder.run.mkdir(parents=True)
    made = GangServer(spec, folder)
    made.open()
    yield made
    made.close()


class Caller:
    """A companion that says who it is and what it is told to say."""

    def __init__(self, tmp_path: Path, index: int = 1, **changes: str) -> None:
        head = HeadFile.read(AllocationFolder(tmp_path / "folder"))
        assert head is not None
        spec = build_launch(tmp_path)
        hello = gang_hello(spec, changes.get("token", head.token), kind="companion", node_index=index)
        self.link = Link(head.addresses, head.authority, hello)
        self.heard: list[bytes] = []

    def turn(self, state: LauncherState = STATE) -> None:
        now = time.monotonic()
        self.link.say(state.to_json().encode() + b"\n", now)
        self.heard += self.link.hear(now)


def until(server: GangServer, caller: Caller, condition: Callable[[], object]) -> None:
    give_up = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < give_up, server.members
        caller.turn()
        server.step_unless_served(0.01)


def test_a_companion_may_come_back(server: GangServer, tmp_path: Path) -> None:
    first, second = Caller(tmp_path), Caller(tmp_path)
    until(server, first, lambda: server.members[1].state == STATE)
    assert server.hosts() == (("gpu1", "127.0.0.1"), ("gpu2", "127.0.0.1")) or server.own_host
    first.link.close()
    give_up = time.monotonic() + 20
    while server.members[1].connected:
        assert time.monotonic() < give_up
        server.step_unless_served(0.01)
    until(server, second, lambda: server.members[1].connected and second.heard)
    server.order(stop="term")
    until(server, second, lambda: any(Order.from_json(line.decode()).stop for line in second.heard))
    second.link.close()


@pytest.mark.parametrize("wrong", [{"token": "guessed"}, {"index": 2}, {"index": 0}])
def test_who_is_no_companion_is_not_let_in(
    server: GangServer, tmp_path: Path, wrong: dict[str, object]
) -> None:
    caller = Caller(tmp_path, **wrong)  # type: ignore[arg-type]
    give_up = time.monotonic() + 0.5
    while time.monotonic() < give_up:
        caller.turn()
        server.step_unless_served(0.01)
    assert not any(member.connected for member in server.members.values())
    assert not caller.heard
    caller.link.close()


def test_a_way_to_a_node_that_is_not_there_is_refused(server: GangServer, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(str(tmp_path / "folder" / "run" / "gang.sock"))
        line.sendall(b'{"node_index": 1}\n')
        line.setblocking(False)
        give_up = time.monotonic() + 10
        while True:
            server.step_unless_served(0.01)
            try:
                assert line.recv(1) == b""
                break
            except BlockingIOError:
                assert time.monotonic() < give_up
