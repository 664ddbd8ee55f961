"""Long arrays and long queues cost in proportion to their length, and a team's share of the queue ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event, func, select

from starverse.app import jobs
from starverse.app.launching import array_variables
from starverse.db.jobs import by_number
from starverse.db.tables import job_specs
from starverse.domain.errors import Conflict, LimitExceeded
from starverse.domain.workloads.states import JobState
from starverse.testing.platforms import POSTGRES_VARIABLE, fresh_database
from starverse.testing.worlds import World


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "postgresql" and not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with fresh_database(request.param, tmp_path) as database:
        yield World(database, tmp_path / "data", queued_jobs_max=1500)


def statements_of(world: World) -> list[str]:
    """Every statement sent from now on."""
    sent: list[str] = []

    @event.listens_for(world.platform.database.engine, "before_cursor_execute")
    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        sent.append(statement)

    return sent


def test_the_tasks_of_an_array_share_one_specification_and_keep_what_slurm_says_of_it(world: World) -> None:
    lab = world.team("lab")
    world.submit(lab, "--array=0-998:2%3", name="sweep")
    world.submit(lab, "--array=0-998:2%3", name="sweep")
    with world.platform.database.read() as connection:
        kept, content = connection.execute(select(func.count(), func.max(job_specs.c.content))).one()
    assert kept == 1
    assert len(content) < 10_000
    with world.platform.database.read() as connection:
        (task,) = by_number(connection, 502, 998)
    assert task.spec.array is not None
    told = array_variables(task.number, 998, task.spec.array)
    assert (told["SLURM_ARRAY_TASK_COUNT"], told["SLURM_ARRAY_TASK_MAX"]) == ("500", "998")
    assert told["SLURM_ARRAY_TASK_STEP"] == "2"


def test_an_array_is_cancelled_in_batches_and_not_with_a_query_per_task_and_run(world: World) -> None:
    lab = world.team("lab")
    sweep = world.submit(lab, "--array=0-1199%2", "--gres=gpu:rtx4090:4", name="sweep")
    world.run(2)
    number = sweep.number.partition("_")[0]
    sent = statements_of(world)
    jobs.cancel(world.platform, lab, number)
    assert len([text for text in sent if text.startswith("SELECT")]) < 40
    world.run(60, step=10)
    assert world.job(lab, number).tasks == {JobState.CANCELLED: 1200}
    with pytest.raises(Conflict, match="ended already"):
        jobs.cancel(world.platform, lab, number)


def test_a_team_has_a_share_of_the_queue_and_another_team_its_own(world: World) -> None:
    lab, rival = world.team("lab"), world.team("rival")
    world.submit(lab, "--array=0-999", name="sweep")
    with pytest.raises(LimitExceeded, match="1000 jobs of team lab wait; with 501 more it is over 1500"):
        world.submit(lab, "--array=0-500", name="more")
    world.submit(lab, "--array=0-499", name="just")
    world.submit(rival, "--array=0-1499", name="theirs")
