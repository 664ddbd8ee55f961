"""``scancel -s``: recorded with its sender, wanted of the launcher until it is there, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from starverse.app.identity import Identity
from starverse.app.jobs import get
from starverse.app.observing import desired_of
from starverse.app.signalling import send_signal
from starverse.db import allocations, jobs
from starverse.db.tables import events
from starverse.domain.errors import Conflict, Invalid, NotFound
from starverse.domain.workloads.launch import Desired
from starverse.domain.workloads.signals import NAMES, SignalTo
from starverse.domain.workloads.states import JobState
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with fresh_database("sqlite", tmp_path) as database:
        yield World(database, tmp_path / "data")


def wanted(world: World, number: int) -> Desired:
    with world.platform.database.read() as connection:
        (job,) = jobs.by_number(connection, number)
        (run,) = allocations.of_jobs(connection, [job.id])[job.id]
    return desired_of(world.platform, run, job)


def started(world: World, who: Identity, *argv: str) -> int:
    number = world.submit(who, *argv, name="train").number.partition("_")[0]
    world.run(5)
    return int(number)


@pytest.mark.parametrize("text", ["USR1", "SIGUSR1", "usr1", "10"])
def test_the_newest_signal_is_wanted_under_an_increasing_count(world: World, text: str) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=600)
    number = started(world, lab)
    send_signal(world.platform, lab, str(number), text, SignalTo.STEPS)
    first = wanted(world, number)
    assert (first.signal_count, first.signal_name, first.signal_to) == (1, "USR1", "steps")
    send_signal(world.platform, lab, str(number), "HUP", SignalTo.BATCH)
    second = wanted(world, number)
    assert (second.signal_count, second.signal_name, second.signal_to) == (2, "HUP", "batch")
    assert not second.stop and not second.notice_reason
    world.run(5)
    assert get(world.platform, lab, str(number)).state is JobState.RUNNING
    with world.platform.database.read() as connection:
        told = connection.execute(select(events.c.message).where(events.c.kind == "signal")).scalars().all()
    assert "USR1 to all processes but the batch shell, asked for by lab@example.org" in told


def test_every_task_of_an_array_that_runs_gets_it_and_one_that_waits_does_not(world: World) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=600)
    number = started(world, lab, "--array=0-2%2")
    send_signal(world.platform, lab, str(number), "USR2", SignalTo.ALL)
    with world.platform.database.read() as connection:
        tasks = jobs.by_number(connection, number)
        runs = allocations.of_jobs(connection, [task.id for task in tasks])
    counts = [[run.signal_count for run in runs[task.id]] for task in tasks]
    assert sorted(counts) == [[], [1], [1]]


def test_what_cannot_be_sent_is_refused_with_what_is_right(world: World) -> None:
    lab, rival = world.team("lab"), world.team("rival")
    waits = world.submit(lab, "--begin=now+1hour", name="later").number
    with pytest.raises(Conflict, match="does not run"):
        send_signal(world.platform, lab, waits, "USR1", SignalTo.STEPS)
    with pytest.raises(NotFound):
        send_signal(world.platform, rival, waits, "USR1", SignalTo.STEPS)
    for wrong in ("NOPE", "SEGV", "0", "99", ""):
        with pytest.raises(Invalid) as refused:
            send_signal(world.platform, lab, waits, wrong, SignalTo.STEPS)
        assert all(name in refused.value.faults[0].expected for name in NAMES)


def test_kill_cancels_but_to_the_batch_shell_alone_it_is_a_signal(world: World) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=600)
    number = started(world, lab)
    send_signal(world.platform, lab, str(number), "KILL", SignalTo.BATCH)
    assert (wanted(world, number).signal_name, wanted(world, number).stop) == ("KILL", False)
    send_signal(world.platform, lab, str(number), "KILL", SignalTo.STEPS)
    assert wanted(world, number).stop
