"""The fake engine's own promises: outcomes as planned, troubles as injected, the same every time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from starverse.domain.workloads.launch import Desired, LaunchSpec
from starverse.engines.base import EngineUnavailable, Presence
from starverse.engines.fake import Call, FakeEngine, FakeRun, Trouble
from starverse.testing.launches import build_launch
from starverse.testing.node_reports import node_report


class World:
    """A clock, an engine on it, and what was published."""

    def __init__(self, run: FakeRun, *troubles: tuple[Call, Trouble]) -> None:
        self.now = 1_000.0
        self.published: list[float] = []
        self._troubles = list(troubles)
        self.engine = FakeEngine(
            (),
            lambda: self.now,
            plan=lambda _: run,
            trouble=self._trouble,
            publish=lambda _, at: self.published.append(at - 1_000),
        )

    def see(self, at: float) -> tuple[Presence, str]:
        self.now = 1_000 + at
        seen = self.engine.observe(["a-1"])["a-1"]
        return seen.presence, "" if seen.state is None else seen.state.phase

    def _trouble(self, call: Call, _: str) -> Trouble | None:
        if self._troubles and self._troubles[0][0] is call:
            return self._troubles.pop(0)[1]
        return None


def launch(**changes: object) -> LaunchSpec:
    return replace(build_launch(Path("/nowhere")), grace_seconds=10, **changes)  # type: ignore[arg-type]


def test_a_run_goes_through_its_phases_on_time() -> None:
    world = World(FakeRun(start_seconds=2, run_seconds=30, exit_code=4))
    world.engine.submit(launch())
    assert world.see(1.9) == (Presence.ALIVE, "claimed")
    assert world.see(2) == (Presence.ALIVE, "running")
    assert world.see(31.9) == (Presence.ALIVE, "running")
    assert world.see(500) == (Presence.ENDED, "ended")
    state = world.engine.observe(["a-1"])["a-1"].state
    assert state is not None
    assert (state.ready_at, state.ended_at, state.exit_code) == (1002, 1032, 4)


def test_checkpoints_come_on_time_and_on_notice() -> None:
    world = World(FakeRun(start_seconds=0, run_seconds=100, checkpoint_seconds=20, notice_exit_seconds=3))
    world.engine.submit(launch())
    world.see(50)
    world.engine.steer("a-1", Desired(notice_reason="reclaim", notice_deadline=1_060))
    assert world.see(52.9) == (Presence.ALIVE, "stopping")
    assert world.see(53) == (Presence.ENDED, "ended")
    assert world.published == [20, 40, 50]


def test_an_hour_without_the_platform_ends_when_the_money_does() -> None:
    world = World(FakeRun(start_seconds=0, run_seconds=9_000, obeys_notice=False))
    world.engine.submit(launch(funded_seconds=600))
    assert world.see(3_600) == (Presence.ENDED, "ended")
    state = world.engine.observe(["a-1"])["a-1"].state
    assert state is not None
    assert (state.ended_at, state.stopped_by, state.exit_signal) == (1_600, "unfunded", 15)


def test_a_launcher_that_dies_is_gone_and_says_no_more() -> None:
    world = World(FakeRun(start_seconds=0, run_seconds=100, dies_at_seconds=30))
    world.engine.submit(launch())
    world.see(25)
    assert world.see(40) == (Presence.GONE, "running")
    state = world.engine.observe(["a-1"])["a-1"].state
    assert state is not None
    assert state.alive_at == 1_025
    assert world.engine.running() == ()


def test_lost_heartbeats_leave_it_running() -> None:
    world = World(FakeRun(start_seconds=0, run_seconds=100, silent=(10, 50)))
    world.engine.submit(launch())
    beats = []
    for at in (9, 20, 49, 51):
        world.see(at)
        state = world.engine.observe(["a-1"])["a-1"].state
        assert state is not None
        beats.append(state.alive_at - 1_000)
    assert beats == [9, 9, 9, 51]


@pytest.mark.parametrize(
    ("trouble", "raises", "starts"),
    [
        (Trouble.UNAVAILABLE, True, 0),
        (Trouble.REPLY_LOST, True, 1),
        (Trouble.TWICE, False, 1),
    ],
)
def test_trouble_befalls_a_submit(trouble: Trouble, raises: bool, starts: int) -> None:
    world = World(FakeRun(), (Call.SUBMIT, trouble))
    if raises:
        with pytest.raises(EngineUnavailable):
            world.engine.submit(launch())
    else:
        world.engine.submit(launch())
    assert world.engine.starts.get("a-1", 0) == starts
    world.engine.submit(launch())
    assert world.engine.starts["a-1"] == 1


def test_a_submit_that_found_its_node_away_started_nothing() -> None:
    engine = FakeEngine((), lambda: 1_000.0, bind=lambda _launch, _node, free, count: free[:count])
    wanted = launch()
    for _ in range(2):
        with pytest.raises(EngineUnavailable):
            engine.submit(wanted)
    assert (engine.starts, engine.launchers) == ({}, {})
    engine.reports = (node_report(wanted.node, wanted.cards[0].model, 2),)
    engine.submit(wanted)
    assert engine.starts == {"a-1": 1}
    assert engine.launchers["a-1"].state.bound == ((wanted.node, (0, 1)),)


def test_a_clock_that_jumps_back_changes_nothing() -> None:
    world = World(FakeRun(start_seconds=0, run_seconds=10))
    world.engine.submit(launch())
    assert world.see(11) == (Presence.ENDED, "ended")
    assert world.see(-500) == (Presence.ENDED, "ended")


def test_news_wakes_once_for_each_change() -> None:
    world = World(FakeRun(start_seconds=1, run_seconds=10))
    woken: list[float] = []
    world.engine.on_news(lambda: woken.append(world.now))
    world.engine.submit(launch())
    for at in range(15):
        world.now = 1_000 + at
        world.engine.advance()
    assert woken == [1_001, 1_011]
