"""Checks of the network between nodes, and their figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Integer, Row, Select, bindparam, func, insert, select, update

from starverse.db.fabric_tables import fabric_checks, fabric_figures
from starverse.db.prepared import Prepared
from starverse.db.session import LostRace
from starverse.domain.fabric.measured import CheckState, Figure, Measured, Pool


@dataclass(frozen=True, slots=True)
class Check:
    """One pair of a batch. ``job_id`` ``None``: its job was not submitted yet, or was refused."""

    id: str
    batch_id: str
    team_id: str
    account_id: str
    pool: Pool
    first_node: str
    second_node: str
    state: CheckState
    message: str
    asked_at: datetime
    job_id: str | None = None
    measured_at: datetime | None = None
    same_machine: bool = False


def add(connection: Connection, checks: Iterable[Check]) -> None:
    """New ones."""
    rows = [
        {
            "id": check.id,
            "batch_id": check.batch_id,
            "team_id": check.team_id,
            "account_id": check.account_id,
            "zone": check.pool.zone,
            "card_model": check.pool.card,
            "fabric": check.pool.fabric,
            "first_node": check.first_node,
            "second_node": check.second_node,
            "state": check.state,
            "message": check.message,
            "asked_at": check.asked_at,
            "same_machine": check.same_machine,
        }
        for check in checks
    ]
    if rows:
        connection.execute(insert(fabric_checks), rows)


def of_batch(connection: Connection, batch_id: str) -> tuple[Check, ...]:
    """All of a batch by pool and pair."""
    return _checks(connection.execute(_all().where(fabric_checks.c.batch_id == batch_id)))


def unsettled(connection: Connection, limit: int) -> tuple[Check, ...]:
    """Those that wait for their job or for its end, the oldest first."""
    return _checks(_UNSETTLED.rows(connection, most=limit))


def change(
    connection: Connection,
    check: Check,
    state: CheckState,
    message: str,
    *,
    job_id: str | None = None,
    measured_at: datetime | None = None,
    same_machine: bool = False,
) -> None:
    """Move a check on; raises ``LostRace`` where another server did."""
    done = connection.execute(
        update(fabric_checks)
        .where(fabric_checks.c.id == check.id, fabric_checks.c.state == check.state)
        .values(
            state=state,
            message=message,
            job_id=job_id or check.job_id,
            measured_at=measured_at,
            same_machine=same_machine,
        )
    )
    if done.rowcount != 1:
        raise LostRace()


def add_figures(connection: Connection, check_id: str, figures: Iterable[Figure]) -> None:
    """What a check measured; of equal kinds the first counts."""
    unique: dict[tuple[str, str], Figure] = {}
    for figure in figures:
        unique.setdefault((figure.what, figure.method), figure)
    if unique:
        rows = [{"check_id": check_id, **asdict(figure)} for figure in unique.values()]
        connection.execute(insert(fabric_figures), rows)


def newest(connection: Connection) -> tuple[Measured, ...]:
    """The figures of the newest check of each pair in each pool."""
    c = fabric_checks.c
    pair = (c.zone, c.card_model, c.fabric, c.first_node, c.second_node)
    last = (
        select(*pair, func.max(c.measured_at).label("last_at"))
        .where(c.state == CheckState.MEASURED)
        .group_by(*pair)
        .subquery()
    )
    same = [c[column.name] == last.c[column.name] for column in pair]
    query = (
        select(*pair, c.measured_at, c.same_machine, *(fabric_figures.c[name] for name in _FIGURE))
        .join(last, (c.measured_at == last.c.last_at) & same[0] & same[1] & same[2] & same[3] & same[4])
        .join(fabric_figures, fabric_figures.c.check_id == c.id)
        .order_by(*pair, fabric_figures.c.what, fabric_figures.c.method)
    )
    return tuple(_measured(row) for row in connection.execute(query))


_UNSETTLED = Prepared(
    select(fabric_checks)
    .where(fabric_checks.c.state.in_((CheckState.ASKED, CheckState.RUNNING)))
    .order_by(fabric_checks.c.asked_at, fabric_checks.c.id)
    .limit(bindparam("most", type_=Integer))
)
_FIGURE = tuple(Figure.__dataclass_fields__)


def _measured(row: Row[*tuple[object, ...]]) -> Measured:
    found = row._mapping
    return Measured(
        Pool(found["zone"], found["card_model"], found["fabric"]),
        found["first_node"],
        found["second_node"],
        Figure(**{name: found[name] for name in _FIGURE}),
        found["measured_at"],
        found["same_machine"],
    )


def _all() -> Select[*tuple[object, ...]]:
    c = fabric_checks.c
    return select(fabric_checks).order_by(c.zone, c.card_model, c.fabric, c.first_node, c.second_node)


def _checks(rows: Iterable[Any]) -> tuple[Check, ...]:
    found = []
    for row in rows:
        values = row._asdict()
        pool = Pool(values.pop("zone"), values.pop("card_model"), values.pop("fabric"))
        found.append(Check(pool=pool, **values))
    return tuple(found)
