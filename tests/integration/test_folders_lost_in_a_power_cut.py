"""A node whose disk forgot the last seconds before a power cut: what ran there is lost, not awaited."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

from starverse.domain.workloads.reasons import EndCause
from starverse.domain.workloads.states import JobState
from starverse.engines.base import Observation, Presence
from starverse.engines.fake import FakeEngine, FakeRun
from starverse.testing.node_reports import node_report
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World


class ForgetfulEngine(FakeEngine):
    """Answers for those in ``lost`` as told, without a state; one that was cleaned is unknown after that."""

    lost: Mapping[str, Presence] = {}

    def observe(self, allocation_ids: Collection[str]) -> Mapping[str, Observation]:
        seen = dict(super().observe(allocation_ids))
        for name in seen.keys() & self.lost.keys():
            seen[name] = Observation(self.lost[name])
            if name in self.cleaned and self.lost[name] is Presence.ACCEPTED:
                seen[name] = Observation(Presence.UNKNOWN)
        return seen


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data")


@pytest.mark.parametrize("presence", [Presence.ACCEPTED, Presence.GONE, Presence.UNKNOWN])
def test_what_ran_and_left_no_state_is_lost_and_runs_again(world: World, presence: Presence) -> None:
    engine = ForgetfulEngine(
        (node_report(),), lambda: world.clock.now().timestamp(), plan=lambda _spec: FakeRun(run_seconds=300)
    )
    world.engine = engine
    world.restart()
    lab = world.team("lab")
    job = world.submit(lab, name="train")
    world.run(60, step=2)
    (first,) = world.job(lab, job.number).allocations
    engine.lost = {first.id: presence}
    world.run(60, step=2)

    lost, again = world.job(lab, job.number).allocations
    assert (lost.id, lost.cause) == (first.id, EndCause.NODE_LOST)
    assert lost.ready_at is not None
    assert lost.ended_at is not None
    assert 50 <= (lost.ended_at - lost.ready_at).total_seconds() <= 62
    assert again.id != first.id
    assert world.job(lab, job.number).state is JobState.RUNNING
    world.assert_sound()
