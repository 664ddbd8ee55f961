"""A version may not drop the price of what is sold and in use: it could not be charged any more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.app.price_books import add_price_book, list_price_books, unpriced_pools
from starverse.domain.errors import Invalid
from starverse.testing.node_reports import node_report
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

PRESENT = "2026-03-01T00:00:00+08:00"


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data")


def version(world: World, hour: int, *dropped: str) -> str:
    text = list_price_books(world.platform)[-1].yaml.replace(PRESENT, f"2026-03-11T{hour:02}:00:00+08:00")
    kept = [
        line for line in text.splitlines() if not line.strip().startswith(tuple(f"{d}:" for d in dropped))
    ]
    return "\n".join(kept) + "\n"


def equip(world: World, model: str) -> None:
    """Other cards take the place of those that are there."""
    world.engine.reports = (node_report(node_id=model, model=model),)
    world.run_reconciler("inventory")


@pytest.mark.parametrize("use", ["cards", "a job that runs", "a job that waits"])
def test_what_is_in_use_keeps_its_price(world: World, use: str) -> None:
    lab, operator = world.team("lab"), world.team("operator")
    if use != "cards":
        world.submit(lab)
        if use == "a job that runs":
            world.run(2)
        equip(world, "a100-40g")
    with pytest.raises(Invalid) as refused:
        add_price_book(world.platform, operator, version(world, 1, "rtx4090"))
    assert [fault.field for fault in refused.value.faults] == ["list_price.rtx4090"]
    assert "rtx4090/eth" in refused.value.faults[0].expected
    assert len(list_price_books(world.platform)) == 1


def test_what_nobody_uses_may_go_and_what_was_never_sold_hinders_nobody(world: World) -> None:
    operator = world.team("operator")
    equip(world, "h100")
    assert add_price_book(world.platform, operator, version(world, 1, "rtx3090", "a100-40g"))
    equip(world, "rtx3090")
    with pytest.raises(Invalid):
        add_price_book(world.platform, operator, version(world, 0, "rtx3090"))
    assert len(list_price_books(world.platform)) == 2


def test_cards_without_a_price_are_named(world: World) -> None:
    assert unpriced_pools(world.platform) == ()
    equip(world, "h999")
    assert unpriced_pools(world.platform) == ("h999/eth",)
