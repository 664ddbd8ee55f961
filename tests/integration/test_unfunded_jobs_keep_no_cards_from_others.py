"""What cannot be paid for waits, and says why; it is not placed and refused while others want its cards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.app import price_books
from starverse.app.apply_decision import POSTPONED_SECONDS, apply_decision
from starverse.app.snapshot import take_snapshot
from starverse.db import ledger
from starverse.domain.cluster import NodeReport
from starverse.domain.errors import Invalid, NotEnoughMoney
from starverse.domain.ids import TransferId
from starverse.domain.ledger.accounts import cash_id, gateway_id
from starverse.domain.ledger.transfers import Purpose, move
from starverse.domain.money import Money
from starverse.domain.scheduling.decide import decide
from starverse.domain.scheduling.snapshot import Blocked
from starverse.domain.workloads.states import JobState
from starverse.testing.node_reports import node_report
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

ALL = "--gres=gpu:rtx4090:8"
DEARER = "2026-03-10T12:00:00+08:00"


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data")


def pass_hours(world: World, hours: float) -> None:
    """Without a round. The world begins at 10:00 in the price book's zone."""
    world.clock.advance(seconds=hours * 3600)


@pytest.mark.parametrize(
    ("options", "yuan", "hours", "reason", "says"),
    [
        (("--begin=2026-03-11T07:30:00",), "6.7", (14, 7.5), "no_money", "first hour costs"),
        (("--window=night", "--begin=2026-03-11T07:57:30"), "100", (14, 7.96), "window_closed", "night"),
        (("--cost-max=0.005", "--begin=2026-03-10T12:30:00"), "100", (0, 3), "no_money", "--cost-max"),
    ],
    ids=["half a night's hour by day", "a window that closes too soon", "a limit that the price outgrew"],
)
def test_it_waits_and_others_get_the_cards(
    world: World, options: tuple[str, ...], yuan: str, hours: tuple[float, float], reason: str, says: str
) -> None:
    poor, rival, operator = world.team("poor", yuan), world.team("rival"), world.team("operator")
    if "--cost-max=0.005" in options:
        text = price_books.list_price_books(world.platform)[0].yaml
        dearer = text.replace("2026-03-01T00:00:00+08:00", DEARER).replace('"1.66"', '"16.60"')
        price_books.add_price_book(world.platform, operator, dearer)
    pass_hours(world, hours[0])
    waiting = world.submit(poor, ALL, *options)
    pass_hours(world, hours[1])
    other = world.submit(rival)
    world.run(3)

    found = world.job(poor, waiting.number)
    assert (found.state, found.reason, found.allocations) == (JobState.QUEUED, reason, ())
    assert says in found.message
    assert world.job(rival, other.number).state is JobState.RUNNING


@pytest.mark.parametrize(
    ("hours", "yuan", "options", "fits"),
    [
        (0, "10", (ALL,), False),
        (0, "10", (ALL, "--window=night"), True),
        (0, "10", (ALL, "--tariff=spot"), True),
        (13, "10", (ALL,), True),
        (0, "10", (ALL, "--cost-max=10"), True),
        (0, "10", (ALL, "--time=00:30:00"), True),
    ],
)
def test_a_submit_asks_what_the_scheduler_asks(
    world: World, hours: float, yuan: str, options: tuple[str, ...], fits: bool
) -> None:
    lab = world.team("lab", yuan)
    pass_hours(world, hours)
    if not fits:
        with pytest.raises(NotEnoughMoney):
            world.submit(lab, *options)
        return
    world.submit(lab, *options)
    applied = apply_decision(
        world.platform, decide(take_snapshot(world.platform, world.clock.now()), world.clock.now())
    )
    assert applied.refused == ()
    assert len(applied.placed) == ("--window=night" not in options)


def test_a_limit_below_its_first_second_is_refused_at_once(world: World) -> None:
    lab = world.team("lab")
    with pytest.raises(Invalid) as wrong:
        world.submit(lab, ALL, "--cost-max=0.0001")
    assert [fault.field for fault in wrong.value.faults] == ["--cost-max"]


@pytest.mark.parametrize("gres", ["--gres=gpu:h100:1", "--gres=gpu:1"])
@pytest.mark.parametrize("nodes", [(), (node_report(model="h100"),)], ids=["no node yet", "cards not sold"])
def test_what_has_no_price_is_refused_and_the_option_is_named(
    kind: str, tmp_path: Path, nodes: tuple[NodeReport, ...], gres: str
) -> None:
    with fresh_database(kind, tmp_path) as database:
        world = World(database, tmp_path / "data", nodes=nodes)
        lab = world.team("lab")
        with pytest.raises(Invalid) as wrong:
            world.submit(lab, gres)
    assert [fault.field for fault in wrong.value.faults] == ["--gres"]
    assert wrong.value.faults[0].expected


def test_money_that_went_between_decision_and_placement_lets_others_go_first(world: World) -> None:
    poor, rival = world.team("poor", "14"), world.team("rival")
    first = world.submit(poor, ALL)
    other = world.submit(rival)
    now = world.clock.now()
    decision = decide(take_snapshot(world.platform, now), now)
    with world.platform.database.write() as connection:
        gone = move(
            TransferId("gone"), cash_id(poor.team_id), gateway_id("mock"), Money.parse("14"), Purpose.REFUND
        )
        assert ledger.post(connection, [gone], now).ok
    assert apply_decision(world.platform, decision).placed == ()
    passed_over = take_snapshot(world.platform, now).waiting[0].blocked
    assert isinstance(passed_over, Blocked)
    assert passed_over.reason.value == "no_money"
    assert passed_over.until is not None
    assert (passed_over.until - now).total_seconds() == POSTPONED_SECONDS
    world.run(2)
    assert world.job(rival, other.number).state is JobState.RUNNING
    assert world.job(poor, first.number).reason == "no_money"
