"""Each array task has an integer of its own: scripts compute with it, every command takes it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.app import jobs
from starverse.app.views import JobView
from starverse.domain.errors import NotFound
from starverse.domain.workloads.states import JobState
from starverse.testing.platforms import POSTGRES_VARIABLE, fresh_database
from starverse.testing.worlds import World


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "postgresql" and not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with fresh_database(request.param, tmp_path) as database:
        yield World(database, tmp_path / "data")


def own_numbers(world: World, identity: object, array: JobView) -> list[int]:
    return [
        world.job(identity, f"{array.array_number}_{index}").own_number  # type: ignore[arg-type]
        for index in (1, 3, 5)
    ]


def test_no_two_jobs_share_an_integer_whatever_stands_between_them(world: World) -> None:
    lab = world.team("lab")
    first = world.submit(lab, "--array=1-5:2", name="sweep")
    single = world.submit(lab, name="one")
    second = world.submit(lab, "--array=1-5:2", name="sweep")
    assert first.array_number is not None
    numbers = [
        first.array_number,
        *own_numbers(world, lab, first),
        single.own_number,
        int(second.number.partition("_")[0]),
        *own_numbers(world, lab, second),
    ]
    assert numbers == list(range(numbers[0], numbers[0] + 9))
    assert single.number == str(single.own_number)


def test_every_command_takes_either_name_and_the_number_of_the_array_means_all_of_it(world: World) -> None:
    lab, rival = world.team("lab"), world.team("rival")
    sweep = world.submit(lab, "--array=1-5:2", "--begin=now+1hour", name="sweep")
    third = world.job(lab, f"{sweep.array_number}_3")
    by_own = world.job(lab, str(third.own_number))
    assert (by_own.id, by_own.number) == (third.id, f"{sweep.array_number}_3")
    assert jobs.why(world.platform, lab, str(third.own_number))["job"] == third.number
    with pytest.raises(NotFound):
        world.job(rival, str(third.own_number))
    after = world.submit(lab, f"--dependency=afterany:{third.own_number}", name="after")
    jobs.cancel(world.platform, lab, str(third.own_number))
    assert world.job(lab, str(sweep.array_number)).tasks == {JobState.QUEUED: 2, JobState.CANCELLED: 1}
    world.run(2)
    assert world.job(lab, after.number).state is JobState.RUNNING
    jobs.cancel(world.platform, lab, str(sweep.array_number))
    assert world.job(lab, str(sweep.array_number)).tasks == {JobState.CANCELLED: 3}


def test_a_task_that_goes_on_as_a_job_of_its_own_has_one_number(world: World) -> None:
    lab = world.team("lab")
    sweep = world.submit(lab, "--array=1-5:2", "--begin=now+1hour", name="sweep")
    jobs.cancel(world.platform, lab, f"{sweep.array_number}_3")
    again = jobs.resume(world.platform, lab, f"{sweep.array_number}_3")
    assert again.number == str(again.own_number)
    assert again.own_number > world.job(lab, f"{sweep.array_number}_5").own_number
