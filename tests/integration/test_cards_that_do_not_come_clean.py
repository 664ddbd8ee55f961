"""Scenario 16 on a whole platform: a card whose memory stays held goes to nobody until an operator has
looked, and nobody pays for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection

from starverse.app import admin
from starverse.app.identity import Identity
from starverse.db import events
from starverse.db.nodes import CardUse, all_nodes
from starverse.domain.workloads.states import JobState
from starverse.engines.fake import FakeRun
from starverse.testing.node_reports import node_report
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

WHY = "8.0 GiB of its memory are held by nobody"


@pytest.fixture
def world(kind: str, tmp_path: Path) -> Iterator[World]:
    with fresh_database(kind, tmp_path) as database:
        yield World(database, tmp_path / "data", nodes=(node_report(cards=2),))


def cards_of(world: World) -> dict[str, CardUse]:
    with world.platform.database.read() as connection:
        return {card.id: card for node in all_nodes(connection) for card in node.cards}


def out_of_use(world: World) -> list[CardUse]:
    return [card for card in cards_of(world).values() if card.quarantined]


def warnings_about(connection: Connection, card: str) -> list[str]:
    found = events.newest(connection, 100, subject_id=card)
    return [row.event.message for row in found if row.event.kind == "warning"]


def test_it_goes_to_nobody_and_operators_hear_of_it(world: World) -> None:
    who = world.team("alice")
    world.plan("dirty", FakeRun(run_seconds=30, unclean=((0, WHY),)))
    first = world.submit(who, "--gres=gpu:rtx4090:2", name="dirty")
    world.run(40)
    assert world.job(who, first.number).state is JobState.SUCCEEDED
    paid = world.bill(who, first.number)
    (card,) = out_of_use(world)
    assert (card.state, card.message) == ("quarantined", WHY)
    with world.platform.database.read() as connection:
        (told,) = warnings_about(connection, card.id)
    assert WHY in told

    both = world.submit(who, "--gres=gpu:rtx4090:2", name="waits")
    one = world.submit(who, name="runs")
    world.run(20)
    assert world.job(who, one.number).state is JobState.RUNNING
    assert world.job(who, both.number).state is JobState.QUEUED
    assert world.bill(who, first.number) == paid, "the time after its end costs nothing"
    world.run_reconciler("inventory")
    assert [out.message for out in out_of_use(world)] == [WHY], "a report of its node does not lift it"

    operator = replace(who, operator=True)
    lift(world, operator, card.id)
    world.run(120)
    assert out_of_use(world) == []
    assert cards_of(world)[card.id].message == ""
    assert world.job(who, both.number).state in (JobState.RUNNING, JobState.SUCCEEDED)
    world.assert_sound()


def test_a_launcher_that_died_leaves_its_card_to_be_looked_at(world: World) -> None:
    """It had no word of its own: the engine looked in its place."""
    who = world.team("alice")
    world.plan("dies", FakeRun(run_seconds=600, dies_at_seconds=10, unclean=((0, WHY),)))
    job = world.submit(who, "--gres=gpu:rtx4090:2", name="dies")
    world.run(60)
    assert [card.message for card in out_of_use(world)] == [WHY]
    assert world.job(who, job.number).state is JobState.QUEUED, "it waits for another card"
    world.assert_sound()


def lift(world: World, operator: Identity, card: str) -> None:
    admin.set_quarantined(world.platform, operator, card, False, None)
