"""Whatever one connection does to a hub, the others and the thread that serves them go on."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from starverse.domain.workloads.launch import NODE_LOST, Desired, LauncherState
from starverse.node.channel import ChannelClient, hello_line
from starverse.node.channel_server import Answers, ChannelServer
from starverse.node.folder import AllocationFolder
from starverse.node.gang import STREAMS_OPEN_MAX, HeadFile, Order, gang_hello
from starverse.node.gang_head import Lookout, Trouble, find_trouble
from starverse.node.gang_server import STREAMS_MAX, GangServer, Member
from starverse.node.hub import FAULTS_TOLD_MAX, Hub, Peer, Rules
from starverse.node.link import Link
from starverse.node.unix_sockets import connect_unix
from starverse.testing.launches import build_launch

STATE = LauncherState("a-1", 1, "running", "boot", 5.0, ready_at=4.0)
NASTY = [
    b'{"node_index": 1e999}',
    b'{"node_index": -1e999}',
    b'{"node_index": NaN}',
    b'{"node_index": true}',
    b'{"node_index": [1]}',
    b'{"node_index": ' + b"9" * 3900 + b"}",
    b"[" * 4000,
    b"\xff",
    b"null",
    b"{}",
]


def until(condition: Callable[[], object], turn: Callable[[], object] = lambda: time.sleep(0.005)) -> None:
    give_up = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < give_up, "it did not come about"
        turn()


def is_hung_up(line: socket.socket) -> bool:
    line.setblocking(False)
    try:
        return line.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


# -- the hub


@pytest.mark.parametrize("where", ["greet", "hear", "gone"])
def test_an_exception_that_nobody_expected_ends_one_connection(
    where: str, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[bytes] = []

    def fail(here: str, text: bytes = b"bad") -> None:
        if here == where and text == b"bad":
            raise RuntimeError("not expected")

    def greet(peer: Peer, text: bytes) -> None:
        fail("greet", text)
        peer.owner = text

    def hear(peer: Peer, text: bytes) -> None:
        fail("hear", text)
        heard.append(text)

    hub = Hub(Rules(greet, hear, lambda peer: fail("gone", bytes(str(peer.owner)[2:-1], "ascii"))))
    listener = socket.create_server(("127.0.0.1", 0))
    hub.listen(listener)
    good = socket.create_connection(listener.getsockname())
    good.sendall(b"good\n")
    for _ in range(FAULTS_TOLD_MAX + 5):
        with socket.create_connection(listener.getsockname()) as bad:
            bad.sendall(b"bad\nbad\n")
            if where == "gone":
                bad.shutdown(socket.SHUT_WR)
            until(lambda: is_hung_up(bad), lambda: hub.step(0.01))
    good.sendall(b"still here\n")
    until(lambda: b"still here" in heard, lambda: hub.step(0.01))
    good.close()
    hub.close()
    assert capsys.readouterr().err.count("RuntimeError: not expected") == FAULTS_TOLD_MAX


# -- the platform's channel


@pytest.fixture
def channel(tmp_path: Path) -> Iterator[ChannelServer]:
    answers = Answers(lambda name: "channel-secret", lambda name: Desired(stop=True), lambda: None)
    server = ChannelServer(tmp_path / "channel.sock", answers)
    server.start()
    yield server
    server.close()


@pytest.mark.parametrize(
    "changes",
    [b'"bound":[["x",[1e999]]]', b'"alive_at":"x"', b'"alive_at":NaN', b'"bound":3', b'"phase":[]'],
)
def test_a_launchers_nasty_state_ends_its_own_line_alone(
    channel: ChannelServer, tmp_path: Path, changes: bytes
) -> None:
    spec = build_launch(tmp_path, channel=str(tmp_path / "channel.sock"))
    with socket.socket(socket.AF_UNIX) as line:
        connect_unix(line, tmp_path / "channel.sock")
        line.sendall(hello_line(replace(spec, allocation_id="a-2")))
        other = replace(STATE, allocation_id="a-2").to_json().encode()
        line.sendall(other[:-1] + b"," + changes + b"}\n")
        line.settimeout(10)
        while line.recv(4096):
            pass
    assert channel.newest("a-2") is None
    client = ChannelClient(spec)

    def told() -> bool:
        client.tell(STATE, time.monotonic())
        client.listen(time.monotonic())
        return channel.newest("a-1") == STATE and client.heard == Desired(stop=True)

    until(told)
    client.close()


def test_an_answer_that_fails_leaves_the_channels_thread_going(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def desired_of(name: str) -> Desired | None:
        asked.append(name)
        if len(asked) == 1:
            raise RuntimeError("not expected")
        return Desired(stop=True)

    server = ChannelServer(
        tmp_path / "channel.sock", Answers(lambda name: "channel-secret", desired_of, lambda: None)
    )
    server.start()
    client = ChannelClient(build_launch(tmp_path, channel=str(tmp_path / "channel.sock")))

    def turn() -> None:
        client.tell(STATE, time.monotonic())
        client.listen(time.monotonic())
        time.sleep(0.01)

    until(lambda: client.heard == Desired(stop=True), turn)
    client.close()
    server.close()
    assert "not expected" in capsys.readouterr().err


# -- a gang


class Scene:
    """A head's server in its thread, and one companion that is there."""

    def __init__(self, tmp_path: Path, elapsed: Callable[[], float] = time.monotonic) -> None:
        spec = build_launch(tmp_path, node="gpu1", nodes=("gpu1", "gpu2"))
        self.folder = AllocationFolder(tmp_path / "folder")
        self.folder.run.mkdir(parents=True)
        self.server = GangServer(spec, self.folder, elapsed)
        self.server.open()
        head = HeadFile.read(self.folder)
        assert head is not None
        self.link = Link(
            head.addresses, head.authority, gang_hello(spec, head.token, kind="companion", node_index=1)
        )
        self.orders: list[Order] = []

    def turn(self, state: LauncherState = STATE) -> None:
        now = time.monotonic()
        self.link.say(state.to_json().encode() + b"\n", now)
        self.orders += [Order.from_json(line.decode()) for line in self.link.hear(now)]
        self.server.step_unless_served(0.005)

    def ask(self, line: bytes) -> socket.socket:
        inside = socket.socket(socket.AF_UNIX)
        connect_unix(inside, self.folder.run / "gang.sock")
        inside.sendall(line + b"\n")
        return inside

    def close(self) -> None:
        self.link.close()
        self.server.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    until(lambda: made.server.members[1].state == STATE, made.turn)
    yield made
    made.close()


@pytest.mark.parametrize("nasty", NASTY, ids=lambda nasty: repr(nasty[:24]))
def test_what_a_workload_says_at_the_gangs_socket_costs_nobody_a_companion(
    scene: Scene, nasty: bytes
) -> None:
    scene.server.serve()
    with scene.ask(nasty) as line:
        until(lambda: is_hung_up(line))
    until(
        lambda: scene.server.members[1].state == replace(STATE, attempt=2),
        lambda: scene.turn(replace(STATE, attempt=2)),
    )
    assert find_trouble(scene.server.members, scene.server.heard_until) is None


def test_ways_to_a_node_are_bounded_whether_they_wait_or_not(scene: Scene) -> None:
    scene.server.serve()
    waiting = [scene.ask(b'{"node_index": 1}') for _ in range(STREAMS_MAX + 5)]
    until(lambda: sum(map(is_hung_up, waiting)) == 5, scene.turn)
    assert max(len(order.streams) for order in scene.orders) <= STREAMS_MAX < STREAMS_OPEN_MAX
    for line in waiting:
        line.close()


class Frozen:
    """The part of a gang's server that a head asks, with a loop that stands still; times are told to it."""

    def __init__(self) -> None:
        self.time = 100.0
        self.heard_until = 100.0
        self.is_served = True
        self.members = {1: Member("gpu2", STATE, connected=True, heard_at=100.0)}

    def now(self) -> float:
        return self.time

    def wake(self) -> None:
        pass


def test_a_loop_that_stands_still_is_the_platforms_fault_and_no_lost_node() -> None:
    server = Frozen()
    head = Lookout(server)
    found = []
    for _ in range(20):
        found.append(head.trouble())
        server.time += 1
    assert found[:15] == [None] * 15
    assert found[-1] == Trouble("the head launcher hears its companions no more", "stop")


def test_a_whole_launcher_that_stood_still_has_lost_nothing() -> None:
    server = Frozen()
    head = Lookout(server)
    assert head.trouble() is None
    server.time += 600
    assert head.trouble() is None
    server.heard_until = server.time
    server.members = {1: replace(server.members[1], heard_at=server.time)}
    assert head.trouble() is None


@pytest.mark.parametrize(
    ("at_the_end", "later", "lost"),
    [
        ({}, {}, False),
        ({"connected": False}, {}, True),
        ({"connected": False}, {"connected": True, "heard_at": 101.0}, False),
        ({}, {"connected": False}, False),
        ({"heard_at": 90.0}, {"heard_at": 102.0}, False),
        ({"heard_at": 90.0}, {}, True),
        ({"state": replace(STATE, failure="this node is going down")}, {}, True),
    ],
    ids=["there", "gone", "back again", "gone after", "silent a while", "silent", "going down"],
)
def test_only_who_was_not_there_as_the_script_ended_is_lost(
    at_the_end: dict[str, object], later: dict[str, object], lost: bool
) -> None:
    server = Frozen()
    head = Lookout(server)
    server.members = {1: replace(server.members[1], **at_the_end)}  # type: ignore[arg-type]

    def breathe() -> None:
        server.time += 0.25
        server.heard_until = server.time
        if server.time > 101:
            server.members = {1: replace(server.members[1], **later)}  # type: ignore[arg-type]

    trouble = head.trouble_at_end(breathe)
    assert (trouble is not None and trouble.stopped_by == NODE_LOST) == lost
