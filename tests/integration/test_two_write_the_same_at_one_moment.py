"""Two that add the same row at one moment: one adds it, the other finds it; a lost race is decided again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from starverse.app import jobs
from starverse.app.identity import Identity
from starverse.db import checkpoints, folders, job_specs, ledger, topups
from starverse.db import jobs as job_rows
from starverse.db.checkpoints import CheckpointRow
from starverse.db.folders import Folder
from starverse.db.session import LostRace
from starverse.db.topups import AutoTopUp
from starverse.domain.errors import Conflict, InvariantBroken
from starverse.domain.ids import AccountId, FolderId, TransferId
from starverse.domain.ledger.accounts import REVENUE, cash_id, gateway
from starverse.domain.ledger.transfers import hold
from starverse.domain.money import Money
from starverse.domain.workloads.specs import JobSpec
from starverse.domain.workloads.states import CheckpointState, JobState
from starverse.testing.platforms import POSTGRES_VARIABLE, START, fresh_database
from starverse.testing.worlds import World

SPEC = JobSpec("train", "#!/bin/bash\n")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    if not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with fresh_database("postgresql", tmp_path) as database:
        yield World(database, tmp_path / "data")


def add_checkpoint(connection: Connection, world: World, lab: Identity, job_id: str) -> object:
    row = CheckpointRow(
        id=world.platform.ids.uuid7(),
        job_id=job_id,
        folder="step-1-a1",
        attempt=1,
        step=1,
        state=CheckpointState.PUBLISHED,
        bytes=1,
        published_at=START,
        verified_at=START,
        loaded_at=None,
        message="",
    )
    checkpoints.insert_found(connection, [row])
    return "known"


def keep_folder(connection: Connection, world: World, lab: Identity, job_id: str) -> object:
    return folders.keep(connection, Folder(FolderId("sha256:" + 64 * "0"), lab.team_id, 1, START))


def open_account(connection: Connection, world: World, lab: Identity, job_id: str) -> object:
    ledger.open_accounts(connection, [gateway("another")], START)
    return "open"


def take_number(connection: Connection, world: World, lab: Identity, job_id: str) -> object:
    return job_rows.next_number(connection, "another")


def set_rule(connection: Connection, world: World, lab: Identity, job_id: str) -> object:
    rule = AutoTopUp(lab.team_id, AccountId(lab.account_id), Money(1), Money(2), True)
    topups.set_rule(connection, rule)
    return topups.get_rule(connection, lab.team_id) == rule


def keep_spec(connection: Connection, world: World, lab: Identity, job_id: str) -> object:
    return job_specs.keep(connection, [SPEC])[id(SPEC)][:7]


SAME = {
    "a checkpoint": (add_checkpoint, ("known", "known")),
    "a packed folder": (keep_folder, (False, True)),
    "a ledger account": (open_account, ("open", "open")),
    "the first number of a counter": (take_number, (1, 2)),
    "a rule for top-ups": (set_rule, (True, True)),
    "a specification": (keep_spec, ("sha256:", "sha256:")),
}


@pytest.mark.postgres
@pytest.mark.parametrize("add, answers", SAME.values(), ids=SAME.keys())
def test_the_second_waits_for_the_first_and_finds_what_it_made(
    world: World,
    add: Callable[[Connection, World, Identity, str], object],
    answers: tuple[object, object],
) -> None:
    lab = world.team("lab")
    job = world.submit(lab, name="train")
    database = world.platform.database

    def second() -> object:
        with database.write() as connection:
            return add(connection, world, lab, job.id)

    with ThreadPoolExecutor(1) as pool:
        with database.write() as connection:
            first = add(connection, world, lab, job.id)
            running = pool.submit(second)
            while not running.done() and not _somebody_waits(connection):
                pass
        assert (first, running.result(timeout=30)) == answers


def _somebody_waits(connection: Connection) -> bool:
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    return bool(connection.execute(waiting).scalar_one())


@pytest.mark.postgres
def test_of_two_that_resume_a_job_one_does(world: World) -> None:
    lab = world.team("lab")
    world.plan("train", run_seconds=5, exit_code=1)
    job = world.submit(lab, name="train")
    world.run(10)
    assert world.job(lab, job.number).state is JobState.FAILED
    gate = threading.Barrier(2)

    def resume() -> str:
        gate.wait()
        try:
            return jobs.resume(world.platform, lab, job.number).number
        except Conflict:
            return "refused"

    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(resume) for _ in range(2)]
        assert sorted(answer.result() for answer in answers) == ["2", "refused"]


@pytest.mark.parametrize(
    ("kind", "error"),
    [("sqlite", InvariantBroken), pytest.param("postgresql", LostRace, marks=pytest.mark.postgres)],
)
def test_a_hold_beyond_the_wallet_is_a_lost_race_where_others_write_meanwhile(
    kind: str, error: type[Exception], tmp_path: Path
) -> None:
    if kind == "postgresql" and not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with fresh_database(kind, tmp_path) as database:
        world = World(database, tmp_path / "data")
        lab = world.team("lab", "1")
        too_much = hold(TransferId("h"), cash_id(lab.team_id), REVENUE, Money.parse("2"), subject="a")
        with pytest.raises(error), database.write() as connection:
            ledger.post_decided(connection, [too_much], START, "a hold")


def test_a_lost_race_is_run_again_and_given_up_in_the_end(tmp_path: Path) -> None:
    with fresh_database("sqlite", tmp_path) as database:
        tries: list[int] = []

        def act(_connection: Connection) -> str:
            tries.append(1)
            if len(tries) in (1, 2):
                raise LostRace
            return "done"

        assert database.write_retrying(act) == "done"
        assert len(tries) == 3

        def never(_connection: Connection) -> None:
            tries.append(1)
            raise LostRace

        with pytest.raises(Conflict):
            database.write_retrying(never)
        assert len(tries) == 8
