"""Nodes and cards as people see them, and what an operator changes on them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, func, select, update

from starverse.db.tables import allocation_cards, allocations, cards, jobs, nodes
from starverse.domain.cluster import node_state
from starverse.domain.ids import format_job_number


@dataclass(frozen=True, slots=True)
class CardUse:
    """A card and who uses it now; ``job_number`` and ``team_id`` are ``None`` when it is free.

    ``healthy`` false comes with a ``message``, and so does ``quarantined`` where the platform did it.
    """

    id: str
    node_id: str
    index: int
    model: str
    memory_bytes: int
    declared: bool
    healthy: bool
    quarantined: bool
    message: str
    job_number: str | None = None
    team_id: str | None = None

    @property
    def state(self) -> str:
        """free, busy, quarantined or unhealthy: what keeps it from being placed on comes first."""
        if self.quarantined:
            return "quarantined"
        if not self.healthy:
            return "unhealthy"
        return "free" if self.team_id is None else "busy"


@dataclass(frozen=True, slots=True)
class NodeUse:
    """A node with its cards."""

    id: str
    zone: str
    fabric: str
    up: bool
    drained: bool
    message: str
    cpus: int
    memory_bytes: int
    seen_at: datetime
    cards: tuple[CardUse, ...]

    @property
    def state(self) -> str:
        """``up``, ``drained`` by the engine, or ``down``; the operator's wish stands beside it."""
        return node_state(self.up, self.message)

    @property
    def takes_work(self) -> bool:
        return self.up and not self.drained


def all_nodes(connection: Connection) -> tuple[NodeUse, ...]:
    """Every node with its cards and their use, by id."""
    users = {
        row.card_id: (format_job_number(row.number, row.array_index), row.team_id)
        for row in connection.execute(
            select(allocation_cards.c.card_id, jobs.c.number, jobs.c.array_index, jobs.c.team_id)
            .join(allocations, allocations.c.id == allocation_cards.c.allocation_id)
            .join(jobs, jobs.c.id == allocations.c.job_id)
            .where(allocation_cards.c.open.is_(True))
        )
    }
    by_node: dict[str, list[CardUse]] = defaultdict(list)
    for row in connection.execute(select(cards).order_by(cards.c.node_id, cards.c.card_index)):
        number, team_id = users.get(row.id, (None, None))
        by_node[row.node_id].append(
            CardUse(
                id=row.id,
                node_id=row.node_id,
                index=row.card_index,
                model=row.model,
                memory_bytes=row.memory_bytes,
                declared=row.declared,
                healthy=row.healthy,
                quarantined=row.quarantined,
                message=row.quarantined_because or row.message,
                job_number=number,
                team_id=team_id,
            )
        )
    return tuple(
        NodeUse(
            id=row.id,
            zone=row.zone,
            fabric=row.fabric,
            up=row.up,
            drained=row.drained,
            message=row.message,
            cpus=row.cpus,
            memory_bytes=row.memory_bytes,
            seen_at=row.seen_at,
            cards=tuple(by_node[row.id]),
        )
        for row in connection.execute(select(nodes).order_by(nodes.c.id))
    )


def set_drained(connection: Connection, node_id: str, drained: bool) -> bool:
    """Whether there is such a node. Counts as a change of what can be placed on it."""
    done = connection.execute(
        update(nodes).where(nodes.c.id == node_id).values(drained=drained, generation=nodes.c.generation + 1)
    )
    return done.rowcount == 1


def set_quarantined(connection: Connection, card_id: str, quarantined: bool, because: str = "") -> bool:
    """Whether there is such a card. Counts as a change of its node. ``because`` is shown as its message."""
    done = connection.execute(
        update(cards)
        .where(cards.c.id == card_id)
        .values(quarantined=quarantined, quarantined_because=because if quarantined else "")
    )
    holder = select(cards.c.node_id).where(cards.c.id == card_id).scalar_subquery()
    connection.execute(update(nodes).where(nodes.c.id == holder).values(generation=nodes.c.generation + 1))
    return done.rowcount == 1


def jobs_by_state(connection: Connection) -> dict[str, int]:
    """How many jobs are in each state, for metrics."""
    rows = connection.execute(select(jobs.c.state, func.count()).group_by(jobs.c.state))
    return {str(row[0]): int(row[1]) for row in rows}
