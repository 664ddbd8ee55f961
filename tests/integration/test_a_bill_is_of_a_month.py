"""A bill without words is that of the present month; the lists behind it are as long as they need to be."""

from __future__ import annotations

from pathlib import Path

import pytest

from starverse.app.bill import BillFilter, show_bill
from starverse.db import allocations, charges, checkpoints, jobs, metering
from starverse.db.charges import ChargeFilter
from starverse.db.statements import in_chunks
from starverse.domain.ids import AllocationId, JobId
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

MANY = [f"none-{index}" for index in range(40_000)]
"""More than a statement takes on SQLite."""


def test_the_bill_without_words_is_of_this_month_and_others_are_asked_for(kind: str, tmp_path: Path) -> None:
    with fresh_database(kind, tmp_path) as database:
        world = World(database, tmp_path / "data")
        lab = world.team("lab")
        first = world.submit(lab, "--account=thesis", name="train")
        world.run(70, step=10)
        world.clock.advance(days=31)
        second = world.submit(lab, "--account=thesis", name="train")
        world.run(70, step=10)

        def billed(wanted: BillFilter) -> set[str]:
            return {charge.job for charge in show_bill(world.platform, lab, wanted).charges}

        assert billed(BillFilter()) == {second.number}
        assert billed(BillFilter(month="2026-03")) == {first.number}
        assert billed(BillFilter(label="thesis")) == {first.number, second.number}
        assert billed(BillFilter(job=first.number)) == {first.number}


def test_lists_longer_than_a_statement_takes_are_read_in_parts(kind: str, tmp_path: Path) -> None:
    with fresh_database(kind, tmp_path) as database:
        world = World(database, tmp_path / "data")
        lab = world.team("lab")
        job = world.submit(lab, name="train")
        world.run(70, step=10)
        run = world.job(lab, job.number).allocations[0]
        job_ids, run_ids = [*MANY, job.id], [*MANY, run.id]
        with database.read() as connection:
            wanted = ChargeFilter(lab.team_id, tuple(JobId(job_id) for job_id in job_ids))
            assert len(charges.list_charges(connection, wanted)) == 1
            assert charges.list_credit_backs(connection, wanted) == ()
            of_runs = charges.charges_of_allocations(connection, [AllocationId(own) for own in run_ids])
            assert len(of_runs) == 1
            assert list(jobs.get_many(connection, job_ids)) == [job.id]
            assert [own.id for own in allocations.of_jobs(connection, job_ids)[job.id]] == [run.id]
            assert list(metering.hold_spans(connection, run_ids)) == [run.id]
            assert list(metering.charged_by_allocation(connection, job_ids)) == [run.id]
            assert checkpoints.newest_verified(connection, job_ids) == {}
            assert allocations.promises(connection, job_ids) == {}


@pytest.mark.parametrize("count, parts", [(0, []), (2, [2]), (3, [2, 1])], ids=["none", "one", "more"])
def test_parts_hold_all_items_in_their_order(count: int, parts: list[int]) -> None:
    found = list(in_chunks(range(count), size=2))
    assert [len(part) for part in found] == parts
    assert [item for part in found for item in part] == list(range(count))
