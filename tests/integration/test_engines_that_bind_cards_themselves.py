"""An engine that picks the card indices itself: the record follows what launchers report; also gangs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from starverse.app.admin import list_events
from starverse.app.views import JobView
from starverse.domain.errors import Invalid
from starverse.domain.money import Money
from starverse.domain.workloads.launch import LaunchSpec
from starverse.domain.workloads.reasons import EndCause
from starverse.domain.workloads.states import JobState
from starverse.testing.node_reports import node_report
from starverse.testing.platforms import POSTGRES_VARIABLE, fresh_database
from starverse.testing.worlds import World

KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]


class FromTheTop:
    """Binds the highest indices first; ``instead``: what it binds when it is asked the Nth time."""

    def __init__(self) -> None:
        self.instead: dict[int, Sequence[int]] = {}
        self.asked = 0

    def __call__(self, _launch: LaunchSpec, _node: str, free: Sequence[int], count: int) -> Sequence[int]:
        self.asked += 1
        return self.instead.get(self.asked, sorted(free)[-count:])


@contextmanager
def world_of(kind: str, folder: Path, binder: FromTheTop, **settings: Any) -> Iterator[World]:
    if kind == "postgresql" and not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    nodes = tuple(node_report(f"gpu{n}", cards=4, fabric="ib") for n in (1, 2, 10))
    with fresh_database(kind, folder) as database:
        yield World(database, folder / "data", nodes=nodes, bind=binder, **settings)


@pytest.fixture(params=KINDS)
def binder_and_world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[FromTheTop, World]]:
    binder = FromTheTop()
    with world_of(request.param, tmp_path, binder) as world:
        yield binder, world


def cards_of(world: World, job: JobView, who: object) -> list[str]:
    run = world.job(who, job.number).allocations[-1]  # type: ignore[arg-type]
    return [card.id for card in run.cards]


def test_cards_on_record_are_those_that_were_bound(binder_and_world: tuple[FromTheTop, World]) -> None:
    _, world = binder_and_world
    lab = world.team("lab")
    for name in ("one", "two"):
        world.plan(name, run_seconds=300)
    jobs = [world.submit(lab, "--gres=gpu:rtx4090:2", name=name) for name in ("one", "two")]
    world.run(10)
    found = [set(cards_of(world, job, lab)) for job in jobs]
    specs = {run.spec.job_number: run for run in world.engine.launchers.values()}
    for job, cards in zip(jobs, found, strict=True):
        bound = specs[job.number].state.bound
        assert bound is not None
        assert cards == {f"{node}:{i}" for node, indices in bound for i in indices}
    assert not found[0] & found[1]
    world.run(400, step=10)
    assert all(world.job(lab, job.number).state is JobState.SUCCEEDED for job in jobs)
    world.assert_sound()


def test_a_card_bound_twice_is_the_engines_fault_and_nobody_pays(
    binder_and_world: tuple[FromTheTop, World],
) -> None:
    binder, world = binder_and_world
    lab = world.team("lab")
    for name in ("first", "second"):
        world.plan(name, run_seconds=300)
    first = world.submit(lab, "--gres=gpu:rtx4090:2", "--nodelist=gpu1", name="first")
    world.run(5)
    binder.instead = {2: (2, 3)}  # which the first one has
    second = world.submit(lab, "--gres=gpu:rtx4090:2", "--nodelist=gpu1", name="second")
    world.run(5)
    told = world.job(lab, second.number).allocations[0]
    assert told.cause is EndCause.START_FAILED
    assert "gpu1:2" in told.message
    assert told.charged == Money(0)
    events = list_events(world.platform, subject="fake").items
    assert [event.event.kind for event in events] == ["fault"]
    assert world.job(lab, first.number).state is JobState.RUNNING
    world.run(700, step=10)
    assert world.job(lab, second.number).state is JobState.SUCCEEDED
    world.assert_sound()


def test_a_gang_spans_nodes_and_its_launch_says_which(binder_and_world: tuple[FromTheTop, World]) -> None:
    _, world = binder_and_world
    lab = world.team("lab")
    world.plan("gang", run_seconds=100)
    job = world.submit(lab, "--nodes=3", "--gres=gpu:rtx4090:4", "--ntasks-per-node=2", name="gang")
    world.run(20)
    assert world.job(lab, job.number).node_list == "gpu[1-2],gpu10"
    (run,) = world.engine.launchers.values()
    spec = run.spec
    assert spec.nodes == ("gpu1", "gpu2", "gpu10")
    assert (spec.node, spec.binds_cards, spec.network, spec.fabric) == ("gpu1", False, "host", "ib")
    assert [len(spec.cards_of(node)) for node in spec.nodes] == [4, 4, 4]
    assert spec.channel == str(world.data / "channel.sock")
    variables = dict(spec.environment)
    assert variables["SLURM_NTASKS"] == "6"
    assert variables["SLURM_JOB_NODELIST"] == "gpu[1-2],gpu10"
    world.run(120, step=5)
    done = world.job(lab, job.number)
    assert done.state is JobState.SUCCEEDED
    assert done.cost_so_far == Money(12 * 1_900_000 * 100 // 3600)
    world.assert_sound()


def test_a_gang_whose_node_dies_is_paid_to_its_last_sign_of_life_and_goes_on_elsewhere(
    binder_and_world: tuple[FromTheTop, World],
) -> None:
    _, world = binder_and_world
    lab = world.team("lab")
    world.plan("gang", run_seconds=300, checkpoint_seconds=30)
    job = world.submit(lab, "--nodes=2", "--gres=gpu:rtx4090:4", name="gang")
    world.run(100)
    ((key, _),) = world.engine.launchers.items()
    world.engine.kill_launcher(key)
    world.run(20)
    assert world.job(lab, job.number).state is JobState.RUNNING, "its lease is not over yet"
    world.run(30)
    first = world.job(lab, job.number).allocations[0]
    assert first.cause is EndCause.NODE_LOST
    assert first.ready_at is not None
    assert first.ended_at is not None
    seconds = int((first.ended_at - first.ready_at).total_seconds())
    assert first.charged == Money(8 * 1_900_000 * seconds // 3600)
    world.run(500, step=5)
    done = world.job(lab, job.number)
    assert done.state is JobState.SUCCEEDED
    assert done.allocations[1].resume_from.endswith("-a1")
    world.assert_sound()


def test_several_nodes_need_the_hosts_network(tmp_path: Path) -> None:
    with world_of("sqlite", tmp_path, FromTheTop(), host_network_allowed=False) as world:
        lab = world.team("lab")
        with pytest.raises(Invalid, match="several nodes need the host's network") as refused:
            world.submit(lab, "--nodes=2", "--gres=gpu:rtx4090:1")
        assert [fault.field for fault in refused.value.faults] == ["--nodes"]
        world.submit(lab, "--nodes=1", "--gres=gpu:rtx4090:1")
