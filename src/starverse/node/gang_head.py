"""What the head of a gang decides: when all are there, when one is lost, when all have ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from starverse.domain.workloads.launch import NODE_LOST, LauncherState, LaunchSpec, UncleanCard
from starverse.node.deadlines import Notice
from starverse.node.folder import AllocationFolder
from starverse.node.gang import END_SECONDS_MAX, SILENT_SECONDS_MAX, START_SECONDS_MAX
from starverse.node.gang_server import ORDER_SECONDS, GangServer, Member
from starverse.node.sandbox.driver import StartRefused

STOPPED = "stop"
"""``stopped_by`` where it is the platform's own fault: no node was lost, so nothing is credited."""

Bound = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why a gang has to end. ``stopped_by`` as in ``LauncherState``: ``""`` where a workload is at fault."""

    text: str
    stopped_by: str = ""
    out_of_memory: bool = False


class GangHead:
    """The launcher's own view of its companions, from :meth:`gather` to :meth:`finish`."""

    def __init__(
        self, spec: LaunchSpec, folder: AllocationFolder, start_seconds: float = START_SECONDS_MAX
    ) -> None:
        self._server = GangServer(spec, folder)
        self._start_seconds = start_seconds
        self._gathered = False
        self._lookout = Lookout(self._server)

    def gather(self, goes_on: Callable[[], bool]) -> tuple[tuple[str, str], ...]:
        """Wait until every companion has come and its sandbox stands; answers each node's address.

        ``goes_on`` beats the launcher's heart and answers whether it is still wanted; where it is not, the
        answer is empty. Raises :class:`StartRefused` where one does not come, or cannot start.
        """
        self._server.open()
        if not self._wait(lambda member: member.connected and member.state is not None, "came", goes_on):
            return ()
        hosts = self._server.hosts()
        self._server.order(hosts=hosts)
        if not self._wait(lambda member: _is_ready(member.state), "got ready", goes_on):
            return ()
        self._gathered = True
        return hosts

    def serve(self) -> None:
        """The workload was forked: from now on the companions are heard in a thread."""
        self._server.serve()

    def bound(self, own: Bound | None) -> Bound | None:
        """The card indices that were bound on each node; ``own`` are the head's."""
        if own is None:
            return None
        states = [member.state for member in self._server.members.values()]
        return own + tuple(pair for state in states if state is not None for pair in state.bound or ())

    def announce(self, notice: Notice) -> None:
        self._server.order(notice_reason=notice.reason, notice_deadline=notice.deadline)

    def signal(self, count: int, name: str) -> None:
        """To the ranks of the other nodes; each count once."""
        self._server.order(signal_count=count, signal_name=name)

    def stop(self, *, kill: bool) -> None:
        self._server.order(stop="kill" if kill else "term")

    def trouble(self) -> Trouble | None:
        """What ends the gang though the script goes on."""
        return self._lookout.trouble() if self._gathered else None

    def trouble_at_end(self, breathe: Callable[[], None]) -> Trouble | None:
        """What was wrong as the script ended, whatever its exit code."""
        return self._lookout.trouble_at_end(breathe) if self._gathered else None

    def was_out_of_memory(self) -> bool:
        """Whether on one of the other nodes something was killed for memory; known for sure at the end."""
        states = [member.state for member in self._server.members.values()]
        return any(state is not None and state.out_of_memory for state in states)

    def unclean(self) -> tuple[UncleanCard, ...]:
        """Cards of the other nodes that nobody may have as they are; known at the end."""
        states = [member.state for member in self._server.members.values()]
        return tuple(card for state in states if state is not None for card in state.unclean)

    def finish(self, breathe: Callable[[], None], still_has_time: Callable[[], bool]) -> None:
        """End what is left everywhere: at once, or where ``still_has_time`` when its time is over."""
        while still_has_time() and not self._all_gone():
            breathe()
        self._server.order(end=True)
        give_up = self._server.now() + END_SECONDS_MAX
        while not self._all_gone() and self._server.now() < give_up:
            breathe()
        self._server.close()

    def turn(self, seconds: float) -> None:
        """Hear the companions where no thread does yet."""
        self._server.step_unless_served(seconds)

    def _all_gone(self) -> bool:
        members = self._server.members.values()
        return all(member.has_ended() or not member.connected for member in members)

    def _wait(self, is_there: Callable[[Member], bool], did: str, goes_on: Callable[[], bool]) -> bool:
        give_up = self._server.now() + self._start_seconds
        while True:
            members = self._server.members
            for member in members.values():
                if member.state is not None and (member.state.failure or member.has_ended()):
                    raise StartRefused(_explain(member.node, member.state).text)
            missing = [member.node for member in members.values() if not is_there(member)]
            if not missing:
                return True
            if self._server.now() > give_up:
                raise StartRefused(
                    f"no launcher {did} on {', '.join(missing)} within {self._start_seconds:.0f} s"
                )
            if not goes_on():
                return False


class Heard(Protocol):
    """What a lookout asks of the server that hears companions; see :class:`GangServer`."""

    @property
    def members(self) -> Mapping[int, Member]: ...

    @property
    def heard_until(self) -> float: ...

    @property
    def is_served(self) -> bool: ...

    def now(self) -> float: ...

    def wake(self) -> None: ...


class Lookout:
    """Judges by what was heard, up to when it was heard: a head that stands still has lost nobody."""

    def __init__(self, server: Heard) -> None:
        self._server = server
        self._heard_until = self._looked_at = self._stands_since = 0.0

    def trouble(self) -> Trouble | None:
        """What ends the gang though the script goes on."""
        if self._is_deaf():
            return Trouble("the head launcher hears its companions no more", STOPPED)
        return find_trouble(self._server.members, self._server.heard_until)

    def trouble_at_end(self, breathe: Callable[[], None]) -> Trouble | None:
        """What was wrong as the script ended, whatever its exit code: a companion that was not there then.

        One that may come back is waited for; one that goes from now on is no trouble any more.
        """
        self._catch_up(breathe)
        suspects = {
            index
            for index, member in self._server.members.items()
            if member.is_away(self._server.heard_until) or member.has_ended() or _has_failed(member)
        }
        give_up = self._server.now() + SILENT_SECONDS_MAX
        while True:
            now = self._server.heard_until
            members = {index: self._server.members[index] for index in suspects}
            trouble = find_trouble(members, now)
            if trouble is not None or not any(member.is_away(now) for member in members.values()):
                return trouble
            if self._server.now() > give_up:
                return None
            breathe()

    def _catch_up(self, breathe: Callable[[], None]) -> None:
        """Until all that came before now was read: two turns, since one may be under way."""
        give_up = self._server.now() + ORDER_SECONDS
        for _ in range(2):
            heard = self._server.heard_until
            self._server.wake()
            while self._server.heard_until == heard and self._server.now() < give_up:
                breathe()

    def _is_deaf(self) -> bool:
        """Whether the thread that hears companions has stood still for long while this one went on."""
        heard, now = self._server.heard_until, self._server.now()
        if heard != self._heard_until or now - self._looked_at > SILENT_SECONDS_MAX / 3:
            self._heard_until, self._stands_since = heard, now
        self._looked_at = now
        return self._server.is_served and now - self._stands_since > SILENT_SECONDS_MAX


def find_trouble(members: Mapping[int, Member], now: float) -> Trouble | None:
    """The first thing that ends a gang: a node is lost, or ranks there can no longer be started."""
    lost = [member.node for member in members.values() if member.is_lost(now) and not member.has_ended()]
    if lost:
        return Trouble(f"the launcher on {', '.join(lost)} was lost", NODE_LOST)
    for member in members.values():
        if member.state is not None and (member.has_ended() or _has_failed(member)):
            return _explain(member.node, member.state)
    return None


def _has_failed(member: Member) -> bool:
    """Whether it said that it ends by itself, which it may not have done yet."""
    return member.state is not None and bool(member.state.failure)


def _explain(node: str, state: LauncherState) -> Trouble:
    if state.out_of_memory:
        return Trouble(f"{node}: it used more memory than it asked for", out_of_memory=True)
    if state.failure:
        return Trouble(f"{node}: {state.failure}", NODE_LOST)
    how = f"exit code {state.exit_code}" if state.exit_code is not None else f"signal {state.exit_signal}"
    return Trouble(f"{node}: the sandbox of its ranks ended ({how})")


def _is_ready(state: LauncherState | None) -> bool:
    return state is not None and state.ready_at is not None
