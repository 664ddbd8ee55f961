"""One allocation of the fake engine: a launcher and its script as a function of time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from starverse.domain.workloads.launch import (
    EXIT_FOR_REQUEUE,
    NODE_DOWN,
    Activity,
    Desired,
    LauncherState,
    LaunchSpec,
    UncleanCard,
)
from starverse.engines.fake.plugs import FakePlugs, Reports
from starverse.node.deadlines import (
    Notice,
    due_notice,
    funded_until,
    strengthen,
    time_limit_lead_seconds,
    ttl_end,
)

SIGKILL, SIGTERM = 9, 15
NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class FakeRun:
    """What will happen to an allocation; seconds count from *ready* unless said otherwise.

    ``start_seconds`` from submit to ready; ``failure`` makes the start fail then. ``exit_signal`` wins
    over ``exit_code``. ``obeys_notice``: after a notice it publishes a checkpoint, and exits with
    ``notice_exit_code`` after ``notice_exit_seconds``, before TERM. ``ignores_term``: only KILL ends it.
    ``checkpoint_seconds``: publishes one that often. ``dies_at_seconds``: ``kill -9`` of the launcher.
    ``refuses_plugs`` says why it has no disk; with ``keeps_plugs`` none comes out.
    ``silent``: a span in which heartbeats are lost while everything runs on. ``active``: (source, from, to)
    in which an instance shows that it is in use. ``unclean``: which of its cards (the first one is 0) nobody
    may have after its end, and why.
    """

    start_seconds: float = 1.0
    failure: str = ""
    run_seconds: float = 60.0
    exit_code: int = 0
    exit_signal: int | None = None
    out_of_memory: bool = False
    obeys_notice: bool = True
    notice_exit_seconds: float = 1.0
    notice_exit_code: int = EXIT_FOR_REQUEUE
    ignores_term: bool = False
    checkpoint_seconds: float | None = None
    dies_at_seconds: float = NEVER
    silent: tuple[float, float] | None = None
    refuses_plugs: str = ""
    keeps_plugs: bool = False
    active: tuple[tuple[str, float, float], ...] = ()
    unclean: tuple[tuple[int, str], ...] = ()


class FakeLauncher:
    """Steps from event to event up to a given time; the same rules of notice and money as real launchers."""

    def __init__(
        self,
        spec: LaunchSpec,
        run: FakeRun,
        now: float,
        publish: Callable[[LaunchSpec, float], None],
        locks: dict[str, str] | None = None,
    ) -> None:
        self.plugs = FakePlugs(spec.allocation_id, {} if locks is None else locks)
        self.spec = spec
        self.run = run
        self.desired = Desired()
        self.claimed = True
        self._publish = publish
        self._now = now
        self._ready_due = now + run.start_seconds
        self._given: Notice | None = None
        self._exit_due = NEVER
        self._term_at: float | None = None
        self._checkpoint_due = NEVER
        self.state = LauncherState(spec.allocation_id, spec.attempt, "claimed", "fake-boot", now)

    @property
    def ended(self) -> bool:
        return self.state.phase == "ended"

    def steer(self, desired: Desired, now: float) -> None:
        self.step(now)
        self.desired = desired
        if self.state.ready_at is not None:
            until = funded_until(self.spec, desired, self.state.ready_at)
            self.state = replace(self.state, funded_until=until)
        self.step(now)

    def kill(self, now: float) -> None:
        """``kill -9`` of the launcher: the workload dies with it, and there is no report."""
        self.step(now)
        if not self.ended:
            self._die()
        self.plugs.let_go()

    def go_down(self, now: float) -> None:
        """Its machine tells it to end."""
        self.step(now)
        if self.claimed and not self.ended and self._term_at is None:
            self._terminate(now, NODE_DOWN)

    def step(self, now: float) -> None:
        """Let everything happen that is due until ``now``; time never runs backwards here."""
        now = max(now, self._now)
        while self.claimed and not self.ended:
            at = max(self._now, self._next_event())
            if at > now:
                break
            self._now = at
            self._happen(at)
        self._now = now
        self._plug()
        if self.claimed and not self.ended and not self._is_silent(now):
            self.state = replace(self.state, alive_at=now, activity=self._activity(now))

    def _activity(self, now: float) -> tuple[Activity, ...]:
        ready = self.state.ready_at
        if ready is None:
            return ()
        newest: dict[str, float] = {}
        for source, begin, end in self.run.active:
            if now >= ready + begin:
                newest[source] = max(newest.get(source, 0.0), min(now, ready + end))
        return tuple(Activity(source, last_at, "in use") for source, last_at in sorted(newest.items()))

    def _plug(self) -> None:
        if not self.claimed or self.ended:
            self.plugs.let_go()
        elif self.state.ready_at is not None:
            self.state = replace(self.state, plugged=self._plugs_now())

    def _plugs_now(self) -> Reports:
        wanted = self.spec.plugs if self.desired.plugs is None else self.desired.plugs
        return self.plugs.follow(wanted, self.run.refuses_plugs, self.run.keeps_plugs)

    def _next_event(self) -> float:
        if self.desired.stop and self._term_at is None:
            return self._now
        ready = self.state.ready_at
        if ready is None:
            return self._ready_due
        events = [
            ready + self.run.run_seconds,
            ready + self.run.dies_at_seconds,
            self._exit_due,
            self._checkpoint_due,
        ]
        funded = funded_until(self.spec, self.desired, ready)
        limit = ready + self.spec.time_limit_seconds
        if self._given is None or funded < self._given.deadline:
            events.append(funded - self.spec.grace_seconds)
        if self._given is None or limit < self._given.deadline:
            events.append(limit - time_limit_lead_seconds(self.spec))
        ends = ttl_end(self.spec, self.desired, ready)
        if self._given is None or ends < self._given.deadline:
            events.append(ends)
        if self._given is not None and self._term_at is None:
            events.append(self._given.deadline)
        if self.desired.notice_reason and self._weaker_than_desired():
            events.append(self._now)
        if self._term_at is not None:
            events.append(self._term_at + self.spec.kill_after_seconds)
        return min(events)

    def _weaker_than_desired(self) -> bool:
        assert self.state.ready_at is not None
        due = due_notice(self.spec, self.desired, self.state.ready_at, self._now)
        return strengthen(self._given, due) != self._given

    def _happen(self, at: float) -> None:
        ready = self.state.ready_at
        if self.desired.stop and self._term_at is None:
            self._terminate(at, "stop")
        elif ready is None:
            self._begin(at)
        elif at >= ready + self.run.dies_at_seconds:
            self._die()
        elif at >= ready + self.run.run_seconds:
            self._end(at, None if self.run.exit_signal else self.run.exit_code, self.run.exit_signal)
        elif at >= self._exit_due:
            self._end(at, self.run.notice_exit_code, None)
        elif at >= self._checkpoint_due:
            self._publish(self.spec, at)
            self._checkpoint_due = at + (self.run.checkpoint_seconds or NEVER)
        elif self._term_at is not None and at >= self._term_at + self.spec.kill_after_seconds:
            self._end(at, None, SIGKILL)
        else:
            self._announce(at, ready)

    def _begin(self, at: float) -> None:
        self.state = replace(self.state, plugged=self._plugs_now())
        refused = next((one.message for one in self.state.plugged if one.state == "refused"), "")
        failure = self.run.failure or refused
        if failure:
            self.state = replace(self.state, phase="ended", failure=failure, ended_at=at, alive_at=at)
            return
        until = funded_until(self.spec, self.desired, at)
        self.state = replace(self.state, phase="running", ready_at=at, funded_until=until, alive_at=at)
        if self.run.checkpoint_seconds is not None:
            self._checkpoint_due = at + self.run.checkpoint_seconds

    def _announce(self, at: float, ready: float) -> None:
        standing = strengthen(self._given, due_notice(self.spec, self.desired, ready, at))
        if standing is not None and standing != self._given:
            first = self._given is None
            self._given = standing
            self.state = replace(
                self.state,
                phase="stopping",
                stopped_by=standing.stopped_by,
                notice_reason=standing.reason,
                notice_deadline=standing.deadline,
            )
            if first and self.run.obeys_notice:
                self._publish(self.spec, at)
                self._exit_due = at + self.run.notice_exit_seconds
        if self._given is not None and at >= self._given.deadline and self._term_at is None:
            self._terminate(at, self._given.stopped_by)

    def _terminate(self, at: float, stopped_by: str) -> None:
        self._term_at = at
        self.state = replace(self.state, phase="stopping", stopped_by=stopped_by)
        if self.state.ready_at is None or not self.run.ignores_term:
            self._end(at, None, None if self.state.ready_at is None else SIGTERM)

    def _end(self, at: float, code: int | None, number: int | None) -> None:
        self.state = replace(
            self.state,
            phase="ended",
            ended_at=at,
            alive_at=at,
            exit_code=code,
            exit_signal=number,
            out_of_memory=self.run.out_of_memory,
            unclean=self._unclean(),
        )

    def _die(self) -> None:
        """Without a word; what its cards are like is for the engine to see."""
        self.claimed = False
        self.state = replace(self.state, unclean=self._unclean())

    def _unclean(self) -> tuple[UncleanCard, ...]:
        return tuple(
            UncleanCard(card.node or self.spec.node, card.index, why)
            for which, why in self.run.unclean
            for card in self.spec.cards[which : which + 1]
        )

    def _is_silent(self, now: float) -> bool:
        ready = self.state.ready_at
        if self.run.silent is None or ready is None:
            return False
        return ready + self.run.silent[0] <= now < ready + self.run.silent[1]
