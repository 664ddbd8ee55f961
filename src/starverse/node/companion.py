"""The launcher on a further node of an allocation: ``starverse.node.launcher FOLDER --node-index N``.

It claims nothing and reports to the head alone (``state-N.json`` is for people). In its sandbox runs the
agent that starts ranks; bytes between ``srun`` and the agent are passed on, never read here. When the head
is gone, is silent for too long or says so, all of it ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from starverse.domain.disk_kind import DiskKind
from starverse.domain.workloads.launch import LauncherState, LaunchSpec
from starverse.node.api_proxy import ApiProxy, pass_between
from starverse.node.binding import bind_cards
from starverse.node.cards.hygiene import GrantedCards, granted_cards
from starverse.node.custody import Custody
from starverse.node.deadlines import Notice
from starverse.node.dialing import dial, make_api_proxy
from starverse.node.environment import NodePlace, job_environment
from starverse.node.folder import AllocationFolder, write_atomically
from starverse.node.gang import (
    END_SECONDS_MAX,
    RANKS_SOCKET,
    SILENT_SECONDS_MAX,
    START_SECONDS_MAX,
    STREAMS_OPEN_MAX,
    HeadFile,
    Order,
    companions_part,
    companions_place,
    gang_hello,
    write_hosts,
)
from starverse.node.host_setup import read_host_setup
from starverse.node.link import Link
from starverse.node.preparation import make_folders
from starverse.node.sandbox import syscalls
from starverse.node.sandbox.driver import StartRefused
from starverse.node.sandbox.drivers import find_driver
from starverse.node.steady_clock import SteadyClock, read_boot_id
from starverse.node.surroundings import Surroundings
from starverse.node.unix_sockets import bind_unix

HEARTBEAT_SECONDS = 1.0
PAUSE_SECONDS = 0.02
GOING_DOWN = "this node is going down"


class HeadGone(Exception):
    """There is no head any more; the text says how that shows."""


class Companion:
    """One node's part of an allocation from its start to its end.

    It waits ``start_seconds`` for its head to come and gather all, and ``silent_seconds`` for a word of it.
    """

    def __init__(
        self,
        folder: AllocationFolder,
        spec: LaunchSpec,
        index: int,
        start_seconds: float = START_SECONDS_MAX,
        silent_seconds: float = SILENT_SECONDS_MAX,
    ) -> None:
        self._folder = folder
        self._start_seconds, self._silent_seconds = start_seconds, silent_seconds
        self._index = index
        self._spec = companions_part(spec, index)
        self._clock = SteadyClock()
        self._state = LauncherState(
            spec.allocation_id, spec.attempt, "claimed", read_boot_id(), self._clock.now()
        )
        self._place = companions_place(folder, index)
        self._custody = self._take_custody()
        shared = tuple(
            plug for plug in spec.plugs if plug.kind != DiskKind.BLOCK
        )  # the head is the one writer
        self._surroundings = Surroundings(replace(spec, plugs=shared), self._place.path, lambda line: None)
        self._cards: GrantedCards | None = None
        self._order = Order()
        self._link: Link | None = None
        self._head: HeadFile | None = None
        self._heard_at = self._clock.now()
        self._head_state: LauncherState | None = None
        self._head_seen_at = self._clock.now()
        self._look_at = 0.0
        self._beat_at = 0.0
        self._agent: socket.socket | None = None
        self._agents: socket.socket | None = None
        self._begun: set[str] = set()
        self._free = threading.BoundedSemaphore(STREAMS_OPEN_MAX)
        self._handing_over = threading.Lock()
        self._proxy: ApiProxy | None = None
        self._told_to_end = False
        self._signals_sent = 0
        self._gone = False

    def run(self) -> int:
        """The whole life; answers the exit code."""
        signal.signal(signal.SIGTERM, self._be_told_to_end)
        try:
            self._spec, self._state = bind_cards(self._spec, self._state, os.environ, first_node=False)
            self._custody = self._take_custody()
            self._meet_head()
            self._start()
            self._keep()
        except HeadGone as gone:
            self._gone = True
            self._state = replace(self._state, failure=str(gone))
            self._custody.give_up()
        except (StartRefused, OSError, ValueError) as error:
            self._fail(str(error))
        except Exception as error:
            traceback.print_exc()
            self._fail(f"{type(error).__name__}: {error}")
        self._end()
        return 0

    def _take_custody(self) -> Custody:
        return Custody(self._spec, self._place, self._clock, lambda line: None)

    # -- the head

    def _meet_head(self) -> None:
        """Until all launchers of the gang are there and sandboxes are to start."""
        give_up = self._clock.now() + 2 * self._start_seconds
        while not self._order.hosts:
            now = self._clock.now()
            self._reach_head(now)
            self._look_for_head(now)
            if now > give_up:
                raise HeadGone("the head launcher did not gather its companions in time")
            if self._order.end or self._order.stop or self._told_to_end or self._folder.has("report.json"):
                raise HeadGone("the allocation ended before this node's part began")
            time.sleep(PAUSE_SECONDS)

    def _reach_head(self, now: float) -> None:
        """One look: where the head is, what it says."""
        if self._head is None:
            self._head = HeadFile.read(self._folder)
            if self._head is not None:
                hello = gang_hello(self._spec, self._head.token, kind="companion", node_index=self._index)
                self._link = Link(self._head.addresses, self._head.authority, hello)
        self._beat_when_due(now)
        self._hear(now)

    def _hear(self, now: float) -> None:
        """Take in what the head wants; raises :class:`HeadGone` where there is none any more."""
        if self._is_revoked():
            raise HeadGone("the allocation was revoked")
        if self._link is None:
            return
        for line in self._link.hear(now):
            with contextlib.suppress(ValueError):
                self._order = Order.from_json(line.decode())
                self._heard_at = now
        if self._link.refused and not self._link.is_open:
            raise HeadGone("the head launcher is no more")
        if self._state.phase != "claimed" and now - self._heard_at > self._silent_seconds:
            raise HeadGone(f"the head launcher was silent for {self._silent_seconds:.0f} s")

    def _look_for_head(self, now: float) -> None:
        """Before it was ever met: raises :class:`HeadGone` where it claims not, or beats no more.

        Its claim alone does not tell: a lock may hold on one host only.
        """
        if now < self._look_at:
            return
        self._look_at = now + HEARTBEAT_SECONDS
        try:
            list(self._folder.path.iterdir())  # so that a shared file system looks anew
            state = self._folder.read_state()
        except OSError:
            return
        if state != self._head_state:
            self._head_state, self._head_seen_at = state, now
        met = self._link is not None and self._link.is_open
        quiet = now - self._head_seen_at
        if state is None and not met and quiet > self._start_seconds / 2:
            raise HeadGone("the head launcher did not come")
        if state is not None and not met and quiet > self._silent_seconds and not self._folder.is_claimed():
            raise HeadGone("the head launcher ended while it started")

    def _is_revoked(self) -> bool:
        """The head's claim may not be there yet, the launch is from the beginning."""
        try:
            return self._folder.has("revoked") or not self._folder.has("spec.json")
        except OSError:
            return False

    # -- start

    def _start(self) -> None:
        host = read_host_setup(self._folder.path, self._place.path, self._spec.node_names)
        driver = find_driver(self._spec.driver)
        driver.check(self._spec, host)
        if driver.name == "process":
            syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        self._cards = granted_cards(self._spec, host.card_file)
        self._look_at_cards()
        if self._state.unclean:
            raise StartRefused("; ".join(f"card {card.index}: {card.why}" for card in self._state.unclean))
        make_folders(self._spec, self._place)
        write_hosts(self._place, self._order.hosts)
        self._custody.limit(host, f"starverse-{self._spec.allocation_id}-{self._index}")
        self._agents = self._listen_for_agent()
        if self._spec.api_socket is not None:
            self._proxy = make_api_proxy(self._spec, self._place.run, self._spec.api_socket)
            self._proxy.bind()
        places = driver.places(self._spec, self._place)
        environment = job_environment(
            self._spec, places, host.python, NodePlace(self._index, self._order.hosts)
        )
        log = os.open(self._place / "agent.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            workload = self._custody.start(driver, host, environment, (log, log))
        finally:
            os.close(log)
        self._surroundings.begin(workload, host.pasta)
        if self._proxy is not None:
            self._proxy.serve()

    def _listen_for_agent(self) -> socket.socket:
        path = self._place.run / RANKS_SOCKET
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        bind_unix(listener, path)
        path.chmod(0o600)
        if self._spec.unix_uid is not None and os.geteuid() == 0:
            os.chown(path, self._spec.unix_uid, self._spec.unix_uid)
        listener.listen(1)
        return listener

    # -- keep

    def _keep(self) -> None:
        """Until the sandbox is gone."""
        workload = self._custody.workload
        assert workload is not None
        while True:
            self._custody.wait([self._beat_at, self._surroundings.wake_at()], self._others())
            workload.listen()
            if refusal := self._surroundings.tend(self._clock.now()):
                raise StartRefused(refusal)
            self._take_agent()
            if self._custody.has_ended():
                return
            self._step()

    def _others(self) -> list[tuple[int, int]]:
        found = self._surroundings.wait_on()
        if self._link is not None and (link := self._link.wait_on()) is not None:
            found.append(link)
        if self._agents is not None and self._agent is None:
            found.append((self._agents.fileno(), 1))
        return found

    def _take_agent(self) -> None:
        """The agent has dialled: from here on ranks can be started."""
        if self._agents is None or self._agent is not None:
            return
        with contextlib.suppress(BlockingIOError):
            self._agent, _ = self._agents.accept()
            self._agent.setblocking(True)
            now = self._clock.now()
            self._change(phase="running", ready_at=now)

    def _step(self) -> None:
        now = self._clock.now()
        self._hear(now)
        order, custody = self._order, self._custody
        if order.notice_reason and (custody.given is None or order.notice_deadline < custody.given.deadline):
            notice = Notice(order.notice_reason, order.notice_deadline, "notice")
            custody.announce(notice, signals=not self._spec.signal_to_batch_shell)
            self._change(
                phase="stopping", notice_reason=order.notice_reason, notice_deadline=order.notice_deadline
            )
        if order.signal_count > self._signals_sent:
            self._signals_sent = order.signal_count
            custody.signal(order.signal_name, "steps")  # the script here is the agent that starts ranks
        if self._told_to_end and not (self._state.failure or order.end or order.stop):
            self._change(failure=GOING_DOWN)  # told before its ranks end, which the script may survive
        if order.end or order.stop == "kill" or self._told_to_end:
            custody.stop("stop", kill=True)
        elif order.stop == "term" or custody.term_at is not None:
            custody.stop("stop")
        custody.watch_memory()
        custody.leave()
        self._begun &= set(order.streams)  # what waits no more never comes again
        for stream in order.streams:
            self._take_up(stream)
        self._beat_when_due(now)

    def _beat_when_due(self, now: float) -> None:
        if now < self._beat_at:
            return
        self._beat_at = now + HEARTBEAT_SECONDS
        self._state = replace(self._state, alive_at=now)
        with contextlib.suppress(OSError):  # a full disk stops no workload
            write_atomically(self._folder / f"state-{self._index}.json", self._state.to_json())
        if self._link is not None:
            self._link.say(self._state.to_json().encode() + b"\n", now)

    def _change(self, **news: Any) -> None:
        self._state = replace(self._state, **news)
        self._beat_at = 0.0
        self._beat_when_due(self._clock.now())

    def _be_told_to_end(self, *_: object) -> None:
        """SIGTERM: this machine is going down."""
        self._told_to_end = True

    # -- streams

    def _take_up(self, stream: str) -> None:
        """Dial the head for a stream that waits there; once, and the agent gets the other end."""
        if stream in self._begun or self._agent is None or self._link is None or self._head is None:
            return
        if not self._free.acquire(blocking=False):
            return  # the next order asks again
        self._begun.add(stream)
        hello = gang_hello(self._spec, self._head.token, kind="stream", stream=stream)
        address, authority = self._link.address, self._head.authority
        self._in_thread(lambda: self._pass_on(dial(address, authority, hello)))

    def _pass_on(self, outside: socket.socket) -> None:
        assert self._agent is not None
        inside, agents = socket.socketpair()
        with outside, inside:
            with agents, self._handing_over:
                socket.send_fds(self._agent, [b"s"], [agents.fileno()])
            pass_between(inside, outside)

    def _in_thread(self, act: Callable[[], None]) -> None:
        """In one of the places that :attr:`_free` counts; where there can be no thread, nothing happens."""

        def perform() -> None:
            try:
                with contextlib.suppress(OSError):
                    act()
            finally:
                self._free.release()

        try:
            threading.Thread(target=perform, daemon=True).start()
        except RuntimeError:
            self._free.release()

    # -- end

    def _fail(self, text: str) -> None:
        self._custody.give_up()
        self._state = replace(self._state, failure=text or "the start failed")

    def _end(self) -> None:
        ended_at = self._clock.now()
        outcome = self._custody.outcome(self._state.failure, self._order.stop)
        if self._told_to_end and not (self._order.end or self._order.stop or self._gone):
            outcome["failure"] = GOING_DOWN
        self._state = replace(self._state, **outcome, ended_at=ended_at, phase="ended")
        self._custody.remove_limits()
        self._surroundings.end(lambda: time.sleep(PAUSE_SECONDS), self._clock.now)
        if self._custody.workload is not None:
            self._look_at_cards()
        if self._proxy is not None:
            self._proxy.close()
        for line in (self._agent, self._agents):
            if line is not None:
                line.close()
        with contextlib.suppress(FileNotFoundError):
            (self._place.run / "token").unlink()
        self._beat_at = 0.0
        self._beat_when_due(self._clock.now())
        self._find_whom_to_tell()
        if self._link is not None:
            self._link.finish(self._state.to_json().encode() + b"\n", self._clock.now())

    def _look_at_cards(self) -> None:
        """Wait until nobody is on them, less long than the head waits for this node."""
        if self._cards is not None:
            self._state = replace(self._state, unclean=self._cards.settle(END_SECONDS_MAX / 2))

    def _find_whom_to_tell(self) -> None:
        """A start that failed before the head was reached: it has to hear why, not wait for this node."""
        give_up = self._clock.now() + self._start_seconds
        with contextlib.suppress(HeadGone):
            while self._state.failure and (self._link is None or not self._link.is_open):
                now = self._clock.now()
                if now > give_up or self._gone or self._folder.has("report.json"):
                    return
                self._reach_head(now)
                time.sleep(PAUSE_SECONDS)


def main(path: str, index: int) -> int:
    """Keep one further node's part; 2 where the allocation has no such node."""
    folder = AllocationFolder(path)
    spec = folder.read_spec()
    if not 0 < index < len(spec.node_names):
        sys.stderr.write(f"node {index} of an allocation on {len(spec.node_names)} nodes\n")
        return 2
    return Companion(folder, spec, index).run()
