"""Allocations with their nodes and cards. A card is in one open allocation at most: the index says so."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, func, insert, select, union_all, update

from starverse.db.session import LostRace
from starverse.db.statements import in_chunks
from starverse.db.tables import allocation_cards, allocation_nodes, allocations, cards, jobs
from starverse.domain.workloads.records import Allocation
from starverse.domain.workloads.states import (
    ALLOCATION_TRANSITIONS,
    OPEN_ALLOCATION_STATES,
    AllocationState,
    advance,
)

_NODES = (
    select(allocation_nodes.c.allocation_id, allocation_nodes.c.node_id)
    .where(allocation_nodes.c.allocation_id.in_(bindparam("ids", expanding=True)))
    .order_by(allocation_nodes.c.position)
)
_CARDS = (
    select(allocation_cards.c.allocation_id, allocation_cards.c.card_id)
    .where(allocation_cards.c.allocation_id.in_(bindparam("ids", expanding=True)))
    .order_by(allocation_cards.c.card_id)
)
_IS_OPEN = allocations.c.state.in_(OPEN_ALLOCATION_STATES)
_COLUMNS = tuple(f.name for f in dataclasses.fields(Allocation) if f.name not in ("nodes", "cards"))


def insert_allocation(connection: Connection, new: Allocation) -> None:
    """Insert with its nodes and open cards; a card that is open elsewhere raises ``IntegrityError``."""
    row = {name: getattr(new, name) for name in _COLUMNS}
    connection.execute(insert(allocations).values(**row, card_count=len(new.cards)))
    connection.execute(
        insert(allocation_nodes),
        [{"allocation_id": new.id, "position": i, "node_id": node} for i, node in enumerate(new.nodes)],
    )
    if new.cards:
        connection.execute(
            insert(allocation_cards),
            [{"allocation_id": new.id, "card_id": card, "open": True} for card in new.cards],
        )


def get(connection: Connection, allocation_id: str) -> Allocation | None:
    return next(iter(_read(connection, allocations.c.id == allocation_id)), None)


def open_ones(connection: Connection) -> list[Allocation]:
    """All that hold cards now, oldest first."""
    return _read(connection, _IS_OPEN)


def open_on(connection: Connection, node_ids: Collection[str]) -> list[Allocation]:
    """All that hold something of these nodes now, oldest first; those without cards wherever they are.

    Found by the cards that are open there, so that a node's history costs nothing.
    """
    there = (
        select(allocation_cards.c.allocation_id)
        .join(cards, cards.c.id == allocation_cards.c.card_id)
        .where(cards.c.node_id.in_(node_ids), allocation_cards.c.open)
    )
    cardless = select(allocations.c.id).where(_IS_OPEN, allocations.c.card_count == 0)
    return _read(connection, allocations.c.id.in_(union_all(there, cardless)))


def of_jobs(connection: Connection, job_ids: Collection[str]) -> dict[str, list[Allocation]]:
    """All runs of these jobs, by job, first attempt first."""
    found: dict[str, list[Allocation]] = {job_id: [] for job_id in job_ids}
    for some in in_chunks(job_ids):
        for allocation in _read(connection, allocations.c.job_id.in_(some)):
            found[allocation.job_id].append(allocation)
    return found


def not_cleaned(connection: Connection, limit: int = 200) -> list[Allocation]:
    """Those that are over but whose leftovers on the node were not removed yet."""
    return _read(
        connection,
        allocations.c.state.not_in(OPEN_ALLOCATION_STATES) & allocations.c.cleaned_at.is_(None),
        limit=limit,
    )


def open_cards(connection: Connection) -> dict[str, str]:
    """Card id -> the open allocation that holds it."""
    rows = connection.execute(
        select(allocation_cards.c.card_id, allocation_cards.c.allocation_id).where(allocation_cards.c.open)
    )
    return {row.card_id: row.allocation_id for row in rows}


_NOT_EXAMINED = allocations.c.state.not_in(OPEN_ALLOCATION_STATES) & allocations.c.examined_at.is_(None)


def not_examined(connection: Connection) -> list[Allocation]:
    """Those that are over while what they published is not verified yet."""
    return _read(connection, _NOT_EXAMINED)


def lines_not_examined(connection: Connection) -> set[str]:
    """The jobs (by whose id checkpoints are kept) of which something still has to be verified."""
    rows = connection.execute(
        select(jobs.c.checkpoints_id)
        .join(allocations, allocations.c.job_id == jobs.c.id)
        .where(_NOT_EXAMINED)
    )
    return {row.checkpoints_id for row in rows}


def change(connection: Connection, allocation: Allocation, **changes: Any) -> Allocation:
    """Write changed fields if nobody wrote since it was read; raises ``LostRace`` otherwise.

    A new ``state`` must be a transition of the table; leaving the open states frees the cards.
    """
    state: AllocationState | None = changes.get("state")
    if state is not None and state != allocation.state:
        advance(ALLOCATION_TRANSITIONS, allocation.state, state)
    changed = connection.execute(
        update(allocations)
        .where(
            allocations.c.id == allocation.id,
            allocations.c.generation == allocation.generation,
            allocations.c.state == allocation.state,
        )
        .values(**changes, generation=allocation.generation + 1)
    ).rowcount
    if changed != 1:
        raise LostRace(f"allocation {allocation.id} was changed by someone else at the same moment")
    if allocation.open and state is not None and state not in OPEN_ALLOCATION_STATES:
        connection.execute(
            update(allocation_cards)
            .where(allocation_cards.c.allocation_id == allocation.id)
            .values(open=False)
        )
    return dataclasses.replace(allocation, **changes, generation=allocation.generation + 1)


def note_alive(connection: Connection, seen: Iterable[tuple[str, datetime]]) -> None:
    """Record proofs of life, never backwards. Not a transition: no generation is used up."""
    for allocation_id, alive_at in seen:
        connection.execute(
            update(allocations)
            .where(
                allocations.c.id == allocation_id,
                allocations.c.alive_at.is_(None) | (allocations.c.alive_at < alive_at),
            )
            .values(alive_at=alive_at)
        )


def note_cleaned(connection: Connection, allocation_id: str, now: datetime) -> None:
    """Nothing of it is left on its node."""
    connection.execute(
        update(allocations)
        .where(allocations.c.id == allocation_id, allocations.c.cleaned_at.is_(None))
        .values(cleaned_at=now)
    )


def promises(connection: Connection, job_ids: Collection[str]) -> dict[str, datetime]:
    """Job id -> when cards were last reclaimed in its name, unless it was placed since."""
    noticed = (
        select(allocations.c.notice_for, func.max(allocations.c.notice_at).label("at"))
        .where(allocations.c.notice_for.is_not(None))
        .group_by(allocations.c.notice_for)
    )
    given: dict[str, datetime] = {
        row.notice_for: row.at
        for some in in_chunks(job_ids)
        for row in connection.execute(noticed.where(allocations.c.notice_for.in_(some)))
    }
    placed = select(allocations.c.job_id, func.max(allocations.c.placed_at).label("at")).group_by(
        allocations.c.job_id
    )
    last: dict[str, datetime] = {
        row.job_id: row.at
        for some in in_chunks(given)
        for row in connection.execute(placed.where(allocations.c.job_id.in_(some)))
    }
    return {job_id: at for job_id, at in given.items() if job_id not in last or last[job_id] < at}


def recent_usage(connection: Connection, since: datetime) -> list[tuple[str, int, datetime, datetime | None]]:
    """(team, cards, ready, ended or ``None``) of what ran at or after ``since``."""
    rows = connection.execute(
        select(
            allocations.c.team_id, allocations.c.card_count, allocations.c.ready_at, allocations.c.ended_at
        ).where(
            allocations.c.card_count > 0,
            allocations.c.ready_at.is_not(None),
            allocations.c.ended_at.is_(None) | (allocations.c.ended_at >= since),
        )
    )
    return [(row.team_id, row.card_count, row.ready_at, row.ended_at) for row in rows]


def _read(connection: Connection, where: ColumnElement[bool], limit: int | None = None) -> list[Allocation]:
    rows = connection.execute(
        select(allocations).where(where).order_by(allocations.c.placed_at, allocations.c.id).limit(limit)
    ).all()
    ids = [row.id for row in rows]
    nodes: dict[str, list[str]] = defaultdict(list)
    held: dict[str, list[str]] = defaultdict(list)
    for some in in_chunks(ids):
        for allocation_id, node_id in connection.execute(_NODES, {"ids": some}):
            nodes[allocation_id].append(node_id)
        for allocation_id, card_id in connection.execute(_CARDS, {"ids": some}):
            held[allocation_id].append(card_id)
    return [
        Allocation(
            **{name: getattr(row, name) for name in _COLUMNS},
            nodes=tuple(nodes[row.id]),
            cards=tuple(held[row.id]),
        )
        for row in rows
    ]
