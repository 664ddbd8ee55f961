"""A submit that is sent again with its key finds its job, whatever became of money, room and names since."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from starverse.app.idempotency import Once
from starverse.app.identity import Identity
from starverse.db import ledger
from starverse.domain.errors import Conflict
from starverse.domain.ids import TransferId
from starverse.domain.ledger.accounts import cash_id, gateway_id
from starverse.domain.ledger.transfers import Purpose, move
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

ALL = "--gres=gpu:rtx4090:8"
KEY = Once("submit-1", "digest of the request")


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data", queued_jobs_max=3)


def runs(world: World, _lab: Identity) -> None:
    """Its hold keeps back what the wallet had for it."""
    world.run(3)


def spends(world: World, lab: Identity) -> None:
    with world.database.write() as connection:
        free = ledger.team_wallet(connection, lab.team_id).cash.available
        out = move(TransferId("out"), cash_id(lab.team_id), gateway_id("mock"), free, Purpose.REFUND)
        assert ledger.post(connection, [out], world.clock.now()).ok


def loses_its_node(world: World, _lab: Identity) -> None:
    world.engine.reports = ()
    world.run_reconciler("inventory")


@pytest.mark.parametrize("happens", [runs, spends, loses_its_node], ids=lambda step: step.__name__)
@pytest.mark.parametrize(("options", "tasks"), [((ALL,), 1), (("--array=0-2",), 3)])
def test_the_repeat_names_the_job_that_there_is(
    world: World, happens: Callable[[World, Identity], None], options: tuple[str, ...], tasks: int
) -> None:
    lab = world.team("lab", "14")
    made = world.submit(lab, *options, once=KEY)
    happens(world, lab)

    assert world.submit(lab, *options, once=KEY).id == made.id
    assert sum((world.job(lab, made.number.split("_")[0]).tasks or {"queued": 1}).values()) == tasks
    with pytest.raises(Conflict):
        world.submit(lab, *options, once=Once(KEY.key, "another digest"))
