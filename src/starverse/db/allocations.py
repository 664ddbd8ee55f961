"""Allocations with their nodes and cards. A card is in one open allocation at most: the index says so."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Select,
    bindparam,
    delete,
    func,
    insert,
    select,
    text,
    union_all,
    update,
)

from starverse.db.metadata import UtcTime
from starverse.db.prepared import Prepared, among
from starverse.db.session import LostRace
from starverse.db.tables import allocation_cards, allocation_nodes, allocations, cards, jobs
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.reasons import NoticeReason
from starverse.domain.workloads.records import Allocation
from starverse.domain.workloads.states import (
    ALLOCATION_TRANSITIONS,
    OPEN_ALLOCATION_STATES,
    AllocationState,
    advance,
)

RECLAIMABLE_MOST = 500
_IS_OPEN = allocations.c.state.in_(OPEN_ALLOCATION_STATES)
_NOT_EXAMINED = allocations.c.state.not_in(OPEN_ALLOCATION_STATES) & allocations.c.examined_at.is_(None)
_COLUMNS = tuple(f.name for f in dataclasses.fields(Allocation) if f.name not in ("nodes", "cards"))

_INSERT = Prepared(insert(allocations), (*_COLUMNS, "card_count"))
_INSERT_NODE = Prepared(insert(allocation_nodes), ("allocation_id", "position", "node_id"))
_INSERT_CARD = Prepared(insert(allocation_cards), ("allocation_id", "card_id", "open"))
_NODES = Prepared(
    select(allocation_nodes.c.allocation_id, allocation_nodes.c.node_id)
    .where(among(allocation_nodes.c.allocation_id, "ids"))
    .order_by(allocation_nodes.c.position)
)
_CARDS = Prepared(
    select(allocation_cards.c.allocation_id, allocation_cards.c.card_id)
    .where(among(allocation_cards.c.allocation_id, "ids"))
    .order_by(allocation_cards.c.card_id)
)
_FREE_CARDS = Prepared(
    update(allocation_cards).where(allocation_cards.c.allocation_id == bindparam("wanted")), ("open",)
)
_OPEN_CARDS = Prepared(
    select(allocation_cards.c.card_id, allocation_cards.c.allocation_id).where(allocation_cards.c.open)
)


def _selecting(where: ColumnElement[bool]) -> Select[Any]:
    columns = (allocations.c[name] for name in _COLUMNS)
    return select(*columns).where(where).order_by(allocations.c.placed_at, allocations.c.id)


_GET = Prepared(_selecting(allocations.c.id == bindparam("wanted")))
_OPEN_ONES = Prepared(_selecting(_IS_OPEN))
_PLACED = Prepared(
    _selecting(allocations.c.state == AllocationState.PLACED).limit(bindparam("most", type_=Integer))
)
_STARTING = Prepared(_selecting(allocations.c.state == AllocationState.STARTING))
_OPEN_ON = Prepared(
    _selecting(
        allocations.c.id.in_(
            union_all(
                select(allocation_cards.c.allocation_id)
                .join(cards, cards.c.id == allocation_cards.c.card_id)
                .where(among(cards.c.node_id, "nodes"), allocation_cards.c.open),
                select(allocations.c.id).where(_IS_OPEN, text("allocations.card_count = 0")),
            )
        )
    )
)
_OF_JOBS = Prepared(_selecting(among(allocations.c.job_id, "jobs")))
_NOT_CLEANED = Prepared(
    _selecting(allocations.c.state.not_in(OPEN_ALLOCATION_STATES) & allocations.c.cleaned_at.is_(None)).limit(
        bindparam("most", type_=Integer)
    )
)
_ALL_NOT_EXAMINED = Prepared(_selecting(_NOT_EXAMINED))
_LINES_NOT_EXAMINED = Prepared(
    select(jobs.c.checkpoints_id).join(allocations, allocations.c.job_id == jobs.c.id).where(_NOT_EXAMINED)
)
_NOTE_ALIVE = Prepared(
    update(allocations).where(
        allocations.c.id == bindparam("wanted"),
        allocations.c.alive_at.is_(None) | (allocations.c.alive_at < bindparam("seen", type_=UtcTime)),
    ),
    ("alive_at",),
)
_NOTE_CLEANED = Prepared(
    update(allocations).where(allocations.c.id == bindparam("wanted"), allocations.c.cleaned_at.is_(None)),
    ("cleaned_at",),
)


@cache
def _changing(*columns: str) -> Prepared:
    """The conditional update that sets these columns."""
    statement = update(allocations).where(
        allocations.c.id == bindparam("wanted"),
        allocations.c.generation == bindparam("seen"),
        allocations.c.state == bindparam("old_state"),
    )
    return Prepared(statement, columns)


def insert_allocation(connection: Connection, new: Allocation) -> None:
    """Insert with its nodes and open cards; a card that is open elsewhere raises ``IntegrityError``."""
    row = {name: getattr(new, name) for name in _COLUMNS}
    _INSERT.run(connection, **row, card_count=len(new.cards))
    _INSERT_NODE.run_many(
        connection,
        ({"allocation_id": new.id, "position": i, "node_id": node} for i, node in enumerate(new.nodes)),
    )
    _INSERT_CARD.run_many(
        connection, ({"allocation_id": new.id, "card_id": card, "open": True} for card in new.cards)
    )


def get(connection: Connection, allocation_id: str) -> Allocation | None:
    return next(iter(_read(connection, _GET.rows(connection, wanted=allocation_id))), None)


def open_ones(connection: Connection) -> list[Allocation]:
    """All that hold cards now, oldest first."""
    return _read(connection, _OPEN_ONES.rows(connection))


def placed(connection: Connection, limit: int) -> list[Allocation]:
    """The oldest that were placed and not handed to their engine yet."""
    return _read(connection, _PLACED.rows(connection, most=limit))


def starting(connection: Connection) -> list[Allocation]:
    """Those that their engine has and whose script does not run yet, oldest first."""
    return _read(connection, _STARTING.rows(connection))


def open_on(connection: Connection, node_ids: Collection[str]) -> list[Allocation]:
    """All that hold something of these nodes now, oldest first; those without cards wherever they are.

    Found by the cards that are open there, so that a node's history costs nothing.
    """
    return _read(connection, _OPEN_ON.rows(connection, nodes=node_ids))


def of_jobs(connection: Connection, job_ids: Collection[str]) -> dict[str, list[Allocation]]:
    """All runs of these jobs, by job, first attempt first."""
    found: dict[str, list[Allocation]] = {job_id: [] for job_id in job_ids}
    for allocation in _read(connection, _OF_JOBS.rows(connection, jobs=job_ids)):
        found[allocation.job_id].append(allocation)
    return found


def not_cleaned(connection: Connection, limit: int = 200) -> list[Allocation]:
    """Those that are over but whose leftovers on the node were not removed yet."""
    return _read(connection, _NOT_CLEANED.rows(connection, most=limit))


def open_cards(connection: Connection) -> dict[str, str]:
    """Card id -> the open allocation that holds it."""
    return dict(_OPEN_CARDS.rows(connection))


def not_examined(connection: Connection) -> list[Allocation]:
    """Those that are over while what they published is not verified yet."""
    return _read(connection, _ALL_NOT_EXAMINED.rows(connection))


def lines_not_examined(connection: Connection) -> set[str]:
    """The jobs (by whose id checkpoints are kept) of which something still has to be verified."""
    return {row.checkpoints_id for row in _LINES_NOT_EXAMINED.rows(connection)}


def change(connection: Connection, allocation: Allocation, **changes: Any) -> Allocation:
    """Write changed fields if nobody wrote since it was read; raises ``LostRace`` otherwise.

    A new ``state`` must be a transition of the table; leaving the open states frees the cards.
    """
    state: AllocationState | None = changes.get("state")
    if state is not None and state != allocation.state:
        advance(ALLOCATION_TRANSITIONS, allocation.state, state)
    seen = {"wanted": allocation.id, "seen": allocation.generation, "old_state": allocation.state}
    changing = _changing(*changes, "generation")
    if changing.run(connection, **seen, **changes, generation=allocation.generation + 1) != 1:
        raise LostRace(f"allocation {allocation.id} was changed by someone else at the same moment")
    if allocation.open and state is not None and state not in OPEN_ALLOCATION_STATES:
        _FREE_CARDS.run(connection, wanted=allocation.id, open=False)
    return dataclasses.replace(allocation, **changes, generation=allocation.generation + 1)


def set_cards(connection: Connection, cards_of: Mapping[str, Collection[str]]) -> None:
    """Give open allocations other cards, all at once: a card may go from one of them to another."""
    if cards_of:
        table = allocation_cards
        connection.execute(delete(table).where(table.c.allocation_id.in_(sorted(cards_of))))
        _INSERT_CARD.run_many(
            connection,
            (
                {"allocation_id": a, "card_id": c, "open": True}
                for a, own in sorted(cards_of.items())
                for c in own
            ),
        )


def note_alive(connection: Connection, seen: Iterable[tuple[str, datetime]]) -> None:
    """Record proofs of life, never backwards. Not a transition: no generation is used up."""
    rows = ({"wanted": wanted, "seen": alive_at, "alive_at": alive_at} for wanted, alive_at in seen)
    _NOTE_ALIVE.run_many(connection, rows)


def note_cleaned(connection: Connection, allocation_id: str, now: datetime) -> None:
    """Nothing of it is left on its node."""
    _NOTE_CLEANED.run(connection, wanted=allocation_id, cleaned_at=now)


_NOTICED_FOR = Prepared(
    select(allocations.c.notice_for, func.max(allocations.c.notice_at, type_=UtcTime).label("at"))
    .where(allocations.c.notice_for.is_not(None), among(allocations.c.notice_for, "jobs"))
    .group_by(allocations.c.notice_for)
)
_LAST_PLACED = Prepared(
    select(allocations.c.job_id, func.max(allocations.c.placed_at, type_=UtcTime).label("at"))
    .where(among(allocations.c.job_id, "jobs"))
    .group_by(allocations.c.job_id)
)


_FIRST_READY = Prepared(
    select(allocations.c.job_id, func.min(allocations.c.ready_at, type_=UtcTime).label("at"))
    .where(allocations.c.ready_at.is_not(None), among(allocations.c.job_id, "jobs"))
    .group_by(allocations.c.job_id)
)


def first_ready(connection: Connection, job_ids: Collection[str]) -> dict[str, datetime]:
    """Job id -> when the first of its runs was ready; those of which none ever was are left out."""
    return dict(_FIRST_READY.rows(connection, jobs=job_ids)) if job_ids else {}


def promises(connection: Connection, job_ids: Collection[str]) -> dict[str, datetime]:
    """Job id -> when cards were last reclaimed in its name, unless it was placed since."""
    given: dict[str, datetime] = dict(_NOTICED_FOR.rows(connection, jobs=job_ids)) if job_ids else {}
    last: dict[str, datetime] = dict(_LAST_PLACED.rows(connection, jobs=given)) if given else {}
    return {job_id: at for job_id, at in given.items() if job_id not in last or last[job_id] < at}


_SPANS = select(
    allocations.c.id,
    allocations.c.team_id,
    allocations.c.card_count,
    allocations.c.ready_at,
    allocations.c.ended_at,
    allocations.c.closed_at,
).where(allocations.c.card_count > 0, allocations.c.ready_at.is_not(None))
_ENDED_SINCE = Prepared(
    _SPANS.where(
        allocations.c.ended_at >= bindparam("since", type_=UtcTime), allocations.c.closed_at.is_not(None)
    )
)
_CLOSED_SINCE = Prepared(_SPANS.where(allocations.c.closed_at >= bindparam("since", type_=UtcTime)))


def ended_since(connection: Connection, since: datetime) -> list[Any]:
    """(id, team_id, card_count, ready_at, ended_at, closed_at) of what used cards and ended since then."""
    return _ENDED_SINCE.rows(connection, since=since)


def closed_since(connection: Connection, since: datetime) -> list[Any]:
    """The same of what was recorded as ended since then, whenever it ended."""
    return _CLOSED_SINCE.rows(connection, since=since)


_RECLAIMABLE = Prepared(
    select(allocations.c.ready_at, allocations.c.ended_at, allocations.c.notice_reason)
    .where(
        allocations.c.ended_at >= bindparam("since", type_=UtcTime),
        allocations.c.ready_at.is_not(None),
        allocations.c.tariff.in_((Tariff.SPOT, Tariff.IDLE)),
        allocations.c.card_model == bindparam("model"),
        allocations.c.fabric == bindparam("fabric"),
    )
    .order_by(allocations.c.ended_at.desc())
    .limit(RECLAIMABLE_MOST)
)


def reclaims_seen(connection: Connection, model: str, fabric: str, since: datetime) -> tuple[int, float]:
    """How many spot and idle runs of a pool that ended since then were reclaimed, and how many seconds all of
    them ran; of the newest ``RECLAIMABLE_MOST``."""
    rows = _RECLAIMABLE.rows(connection, since=since, model=model, fabric=fabric)
    reclaims = sum(reason == NoticeReason.RECLAIM for _, _, reason in rows)
    return reclaims, sum((ended - ready).total_seconds() for ready, ended, _ in rows)


def _read(connection: Connection, rows: list[Any]) -> list[Allocation]:
    if not rows:
        return []
    ids = [row.id for row in rows]
    nodes: dict[str, list[str]] = defaultdict(list)
    held: dict[str, list[str]] = defaultdict(list)
    for allocation_id, node_id in _NODES.rows(connection, ids=ids):
        nodes[allocation_id].append(node_id)
    for allocation_id, card_id in _CARDS.rows(connection, ids=ids):
        held[allocation_id].append(card_id)
    return [
        Allocation(**row._asdict(), nodes=tuple(nodes[row.id]), cards=tuple(held[row.id])) for row in rows
    ]
