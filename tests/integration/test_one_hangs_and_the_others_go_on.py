"""Something of one team hangs, fails or says nonsense: its cards come free in time, nobody else waits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from sqlalchemy import Connection

from starverse.app.apply_decision import apply_decision
from starverse.app.jobs import cancel
from starverse.app.launching import start
from starverse.app.observing import observe_all
from starverse.app.overdue import FINISH_SECONDS_MAX, MARGIN_SECONDS, Watch, Witness, why_overdue
from starverse.app.ports import Clock
from starverse.app.snapshot import take_snapshot
from starverse.db import allocations, jobs
from starverse.db.session import Database
from starverse.domain.money import Money
from starverse.domain.scheduling.decide import decide
from starverse.domain.workloads.launch import LauncherState, LaunchSpec
from starverse.domain.workloads.reasons import EndCause
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.states import AllocationState, JobState
from starverse.engines.base import Observation, Presence
from starverse.engines.fake import Call, FakeEngine, Trouble
from starverse.reconcilers import launch
from starverse.testing.platforms import START, fresh_database
from starverse.testing.worlds import World

T = TypeVar("T")


class Troubles:
    """Which calls about which allocations do not reach the engine."""

    def __init__(self) -> None:
        self.of: set[tuple[Call, str]] = set()

    def __call__(self, call: Call, allocation_id: str) -> Trouble | None:
        return Trouble.UNAVAILABLE if (call, allocation_id) in self.of else None


@pytest.fixture
def troubles() -> Troubles:
    return Troubles()


@pytest.fixture
def world(kind: str, tmp_path: Path, troubles: Troubles) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data", trouble=troubles)


def open_runs(world: World) -> dict[str, Allocation]:
    """Open allocations by the name of their job."""
    with world.database.read() as connection:
        found = allocations.open_ones(connection)
        owners = jobs.get_many(connection, {a.job_id for a in found})
    return {owners[a.job_id].spec.name: a for a in found}


def test_a_launcher_that_is_silent_for_long_is_ended_and_its_job_goes_on(world: World) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=9000, silent=(60, 1e9))
    job = world.submit(lab, name="train")
    world.run(60)
    first = open_runs(world)["train"]
    world.run(400, step=10)
    runs = world.job(lab, job.number).allocations
    assert (runs[0].id, runs[0].cause) == (first.id, EndCause.NODE_LOST)
    assert not world.engine.launchers[first.id].claimed
    assert len(runs) > 1
    assert runs[0].charged <= Money(61 * 1_660_000 // 3600)
    world.assert_sound()


def test_a_silence_that_ends_in_time_costs_nothing(world: World) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=600, silent=(60, 150))
    job = world.submit(lab, name="train")
    world.run(700, step=5)
    assert [run.cause for run in world.job(lab, job.number).allocations] == [EndCause.COMPLETED]


def test_a_launcher_that_cannot_be_told_to_stop_is_ended(world: World, troubles: Troubles) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=90_000)
    job = world.submit(lab, name="train")
    world.run(60, step=10)
    troubles.of.add((Call.STEER, open_runs(world)["train"].id))
    cancel(world.platform, lab, job.number)
    world.run(60, step=10)
    assert "train" in open_runs(world)
    world.run(120, step=10)
    assert world.job(lab, job.number).state is JobState.CANCELLED
    assert not open_runs(world)
    world.assert_sound()


def test_what_resists_its_end_keeps_its_cards_and_nobody_else_waits(world: World, troubles: Troubles) -> None:
    lab, other = world.team("lab"), world.team("other")
    world.plan("train", run_seconds=9000, dies_at_seconds=30)
    world.plan("quick", run_seconds=20)
    world.submit(lab, name="train")
    world.run(10)
    stuck = open_runs(world)["train"].id
    troubles.of.add((Call.CLEAN, stuck))
    world.run(100, step=10)
    quick = world.submit(other, name="quick")
    world.run(60, step=5)
    assert world.job(other, quick.number).state is JobState.SUCCEEDED
    assert open_runs(world)["train"].id == stuck
    troubles.of.clear()
    world.run(10)
    assert open_runs(world).get("train", None) is None or open_runs(world)["train"].id != stuck


def test_no_further_hour_is_held_for_what_was_not_heard_in_the_last(world: World, troubles: Troubles) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=90_000, silent=(60, 1e9))
    world.submit(lab, "--time=20:00:00", name="train")
    world.run(60, step=10)
    stuck = open_runs(world)["train"].id
    troubles.of.add((Call.CLEAN, stuck))
    held = []
    for _ in range(30):
        world.run(300, step=300)
        held += [run.funded_until for run in open_runs(world).values() if run.id == stuck]
    assert max(until for until in held if until) <= START + timedelta(hours=2, seconds=2)


class EngineAround:
    """The fake engine, with something around some of its calls."""

    def __init__(self, engine: FakeEngine) -> None:
        self.inner = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class LateEngine(EngineAround):
    """Something happens right before a submit arrives."""

    def __init__(self, engine: FakeEngine, before: Callable[[], None]) -> None:
        super().__init__(engine)
        self.before = before

    def submit(self, launch: LaunchSpec) -> None:
        self.before()
        self.inner.submit(launch)


def test_a_submit_that_comes_after_its_cancel_starts_nothing(world: World) -> None:
    """The launch thread stands right before the engine while the cancel is recorded."""
    lab = world.team("lab")
    job = world.submit(lab, name="train")
    world.run_reconciler("schedule")
    allocation = open_runs(world)["train"]
    states = []

    def cancel_now() -> None:
        cancel(world.platform, lab, job.number)
        world.run_reconciler("observe")
        states.append(world.job(lab, job.number).state)

    late: Any = LateEngine(world.engine, cancel_now)
    assert start(dataclasses.replace(world.platform, engine=late), allocation)
    assert states == [JobState.CANCELLED]
    assert not open_runs(world)
    assert not world.engine.starts


class HangingEngine(EngineAround):
    """Its answers reach a server that hangs: what is done with them comes later."""

    def __init__(self, engine: FakeEngine, before_judging: Callable[[], None]) -> None:
        super().__init__(engine)
        self.before_judging = before_judging

    def observe(self, allocation_ids: Collection[str]) -> Mapping[str, Observation]:
        seen = self.inner.observe(allocation_ids)
        self.before_judging()
        return seen


@pytest.mark.parametrize("claims", [True, False], ids=["while it was starting", "before it was submitted"])
def test_what_a_server_saw_before_it_hung_makes_no_start_late(world: World, claims: bool) -> None:
    """Ready in time, while the server that looked at it hangs until that time is over."""
    lab = world.team("lab")
    world.plan("train", start_seconds=5, run_seconds=9000)
    job = world.submit(lab, name="train")
    world.run_reconciler("schedule")
    allocation = open_runs(world)["train"]
    submitted: list[LaunchSpec] = []

    class Keeping(EngineAround):
        def submit(self, launch: LaunchSpec) -> None:
            submitted.append(launch)

    keeping: Any = Keeping(world.engine)
    assert start(dataclasses.replace(world.platform, engine=keeping), allocation)
    if claims:
        world.engine.submit(submitted[0])

    def hang() -> None:
        world.engine.submit(submitted[0])
        world.clock.advance(seconds=10)
        world.engine.advance()
        world.clock.advance(seconds=world.platform.settings.start_timeout_seconds + 600)

    hanging: Any = HangingEngine(world.engine, hang)
    assert observe_all(dataclasses.replace(world.platform, engine=hanging), Watch()) == ""
    world.run(10)
    assert world.job(lab, job.number).state is JobState.RUNNING


class FailingDatabase(Database):
    """Meets an error that nobody expected while one job is placed."""

    job_id = ""

    def write_retrying(self, act: Callable[[Connection], T]) -> T:
        def checked(connection: Connection) -> T:
            before = {a.job_id for a in allocations.open_ones(connection)}
            answer = act(connection)
            if self.job_id in {a.job_id for a in allocations.open_ones(connection)} - before:
                raise KeyError("nobody expected this")
            return answer

        return super().write_retrying(checked)


def test_an_error_nobody_expected_in_one_placement_keeps_no_other_from_its_cards(world: World) -> None:
    lab, other = world.team("lab"), world.team("other")
    world.submit(lab, name="broken")
    world.submit(other, name="whole")
    with world.database.read() as connection:
        broken = next(j for j in jobs.in_state(connection, JobState.QUEUED) if j.spec.name == "broken")
    decision = decide(take_snapshot(world.platform, world.clock.now()), world.clock.now())
    assert len(decision.placements) == 2
    database = FailingDatabase(world.database.url)
    database.job_id = broken.id
    applied = apply_decision(dataclasses.replace(world.platform, database=database), decision)
    database.close()
    assert isinstance(applied.fault, KeyError)
    assert list(open_runs(world)) == ["whole"]
    with world.database.read() as connection:
        waits = jobs.get(connection, broken.id)
    assert waits is not None
    assert waits.reason == "platform"
    assert waits.not_before is not None


class OddEngine(EngineAround):
    """One of its launchers says an impossible time; of another one it cannot tell just now."""

    def __init__(self, engine: FakeEngine, odd: str, unknown: str) -> None:
        super().__init__(engine)
        self.odd, self.unknown = odd, unknown

    def observe(self, allocation_ids: Collection[str]) -> Mapping[str, Observation]:
        seen = dict(self.inner.observe(allocation_ids))
        del seen[self.unknown]
        state = LauncherState(self.odd, 1, "running", "boot", alive_at=1e300, ready_at=1e300)
        return {**seen, self.odd: Observation(Presence.ALIVE, state)}


def test_every_other_launcher_is_followed_while_one_says_nonsense(world: World) -> None:
    lab = world.team("lab")
    for name in ("odd", "unknown", "good"):
        world.plan(name, run_seconds=500)
        world.submit(lab, name=name)
    for name in ("schedule", "launch"):
        world.run_reconciler(name)
    runs = open_runs(world)
    world.clock.advance(seconds=300)
    odd: Any = OddEngine(world.engine, runs["odd"].id, runs["unknown"].id)
    with pytest.raises((OverflowError, ValueError, OSError)):
        observe_all(dataclasses.replace(world.platform, engine=odd), Watch())
    after = open_runs(world)
    assert after["good"].state is AllocationState.RUNNING
    assert after["good"].alive_at == world.clock.now()
    assert after["unknown"].state is AllocationState.STARTING


class StumblingEngine:
    """An engine that has a fault of its own with one allocation."""

    def __init__(self, engine: FakeEngine, odd: str, error: Exception) -> None:
        self._engine, self._odd, self._error = engine, odd, error

    def submit(self, spec: LaunchSpec) -> None:
        if spec.allocation_id == self._odd:
            raise self._error
        self._engine.submit(spec)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


@pytest.mark.parametrize(
    "error", [RecursionError("too deep"), KeyError("x"), OSError(5, "I/O"), ValueError()]
)
def test_whatever_goes_wrong_in_a_start_ends_that_start_alone(world: World, error: Exception) -> None:
    lab = world.team("lab")
    odd = world.submit(lab, name="odd").number
    world.submit(lab, name="good")
    world.run_reconciler("schedule")
    runs = open_runs(world)
    engine: Any = StumblingEngine(world.engine, runs["odd"].id, error)
    said = launch.make(dataclasses.replace(world.platform, engine=engine)).act()
    assert said == "submitted 1", "the loop itself does not fail"
    assert list(open_runs(world)) == ["good"], "its cards are free"
    job = world.job(lab, odd)
    assert (job.state, job.reason) == ("queued", "start_failed")
    assert job.message.startswith("start 1 of at most 5 failed: ")
    world.assert_sound()


NOW = START + timedelta(hours=10)


def judge(
    world: World, silent: float = 0, past: float = 0, ran: float = 100, ended_before: float | None = None
) -> str:
    allocation, job = one_of_each(world)
    seconds = NOW.timestamp()
    state = LauncherState(
        allocation.id,
        1,
        "running",
        "boot",
        seconds,
        ready_at=seconds - ran,
        ended_at=None if ended_before is None else seconds - ended_before,
    )
    told = dataclasses.replace(allocation, stop_requested_at=NOW)
    witness = Witness(timedelta(seconds=silent), timedelta(seconds=past))
    return why_overdue(told, job, state, witness, world.platform.settings)


def one_of_each(world: World) -> tuple[Allocation, Job]:
    runs = open_runs(world)
    if not runs:
        world.submit(world.team("lab"), "--time=60", name="train")
        world.run_reconciler("schedule")
        runs = open_runs(world)
    allocation = runs["train"]
    with world.database.read() as connection:
        job = jobs.get(connection, allocation.job_id)
    assert job is not None
    return allocation, job


SLACK = 10 + MARGIN_SECONDS


@pytest.mark.parametrize(
    ("name", "given", "overdue"),
    [
        ("nothing is due", {}, False),
        ("silent, not for long", {"silent": 119}, False),
        ("silent for four leases", {"silent": 120}, True),
        ("seen past what it was told a moment ago", {"past": SLACK - 1}, False),
        ("seen past what it was told long ago", {"past": SLACK}, True),
        ("its limit is just over", {"ran": 3600}, False),
        ("its limit is over for long", {"ran": 3600 + SLACK}, True),
        ("it copies what the script left", {"ended_before": 600, "past": 600}, False),
        ("it copies for ever", {"ended_before": FINISH_SECONDS_MAX}, True),
    ],
)
def test_when_a_living_launcher_is_overdue(
    world: World, name: str, given: dict[str, float], overdue: bool
) -> None:
    assert bool(judge(world, **given)) is overdue, name


def test_only_the_launchers_own_time_makes_it_overdue(world: World) -> None:
    allocation, _ = one_of_each(world)
    watch, own = Watch(), 1000.0
    due = NOW + timedelta(seconds=30)
    told = dataclasses.replace(allocation, notice_deadline=due)
    assert watch.look(told, own, NOW).past == timedelta(0)
    jumped = NOW + timedelta(hours=1)
    assert watch.look(told, own + 1, jumped).past == timedelta(0), "an hour ahead at once: nobody lived it"
    assert watch.look(told, own + 31, jumped + timedelta(seconds=30)).past == timedelta(seconds=30)
    earlier = dataclasses.replace(told, stop_requested_at=NOW)
    assert watch.look(earlier, own + 41, jumped + timedelta(seconds=40)).past == timedelta(seconds=40)
    assert watch.look(allocation, own + 51, jumped).past == timedelta(0), "not told anything any more"
    assert watch.look(told, own + 52, NOW).past == timedelta(0), "the clock was set back"


def test_a_clock_set_an_hour_ahead_ends_no_run(world: World) -> None:
    """The clock that wrongly jumps is the platform's; launchers go on by theirs."""
    world.plan("train", run_seconds=1200)
    lab = world.team("lab")
    number = world.submit(lab, "--time=30", name="train").number
    world.run(100)
    state = open_runs(world)["train"]
    assert state.state is AllocationState.RUNNING
    skewed = dataclasses.replace(world.platform, clock=AheadClock(world.clock, timedelta(hours=1)))
    watch = Watch()
    for _ in range(MARGIN_SECONDS * 2):
        world.clock.advance(seconds=1)
        world.engine.advance()
        observe_all(skewed, watch)
    assert open_runs(world)["train"].state is AllocationState.RUNNING
    assert world.job(lab, number).state == "running"


class AheadClock:
    """Somebody set the machine's clock ahead."""

    def __init__(self, right: Clock, by: timedelta) -> None:
        self._right, self._by = right, by

    def now(self) -> datetime:
        return self._right.now() + self._by


def test_a_jump_of_the_clock_is_no_silence() -> None:
    watch = Watch()
    assert watch.silence("a", 1.0, START) == timedelta(0)
    assert watch.silence("a", 1.0, START + timedelta(hours=1)) == timedelta(0)
    for second in range(20):
        watch.silence("a", 1.0, START + timedelta(hours=1, seconds=second))
    assert watch.silence("a", 1.0, START + timedelta(hours=1)) == timedelta(hours=1)
    assert watch.silence("a", 2.0, START + timedelta(hours=2)) == timedelta(0)
    watch.keep_only(["b"])
    assert watch.silence("a", 2.0, START + timedelta(hours=3)) == timedelta(0)
