"""Nodes and cards as engines report them and as the scheduler sees them.

A node's ``generation`` counts every change of what can be placed on it: the applier of decisions compares
it before it writes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from starverse.db.prepared import Prepared, among
from starverse.db.tables import cards, nodes
from starverse.domain.cluster import CardReport, LinkReport, NodeReport
from starverse.domain.ids import CardId, NodeId
from starverse.domain.scheduling.snapshot import Card, Link, Node, NodeState
from starverse.domain.workloads.rebinding import BoundCard


@dataclass(frozen=True, slots=True)
class CardRow:
    """A card as it is recorded; ``usable``: healthy and not quarantined."""

    id: str
    node_id: str
    index: int
    uuid: str
    model: str
    memory_bytes: int
    declared: bool
    usable: bool


_REPORTED = ("zone", "fabric", "cpus", "memory_bytes", "links", "up", "message", "driver")
_CARD_REPORTED = ("node_id", "card_index", "uuid", "model", "memory_bytes", "declared", "healthy", "message")
_KNOWN = Prepared(select(*(nodes.c[name] for name in _REPORTED), nodes.c.id))
_KNOWN_CARDS = Prepared(select(*(cards.c[name] for name in _CARD_REPORTED), cards.c.id))
_INSERT_NODE = Prepared(insert(nodes), ("id", "generation", "drained", "seen_at", *_REPORTED))
_INSERT_CARD = Prepared(insert(cards), ("id", "quarantined", *_CARD_REPORTED))
_SEEN = Prepared(update(nodes).where(among(nodes.c.id, "ids")), ("seen_at",))


def record_reports(connection: Connection, reports: Iterable[NodeReport], now: datetime) -> list[str]:
    """Write what engines see now; says in words what changed. Nodes that are not reported go down.

    Linear in nodes and cards; where nothing changed it is three statements.
    """
    known = {row.id: row for row in _KNOWN.rows(connection)}
    known_cards: dict[str, Any] = {}
    healthy: dict[str, set[str]] = {}
    for row in _KNOWN_CARDS.rows(connection):
        known_cards[row.id] = row
        if row.healthy:
            healthy.setdefault(row.node_id, set()).add(row.id)
    changes: list[str] = []
    seen: set[str] = set()
    for report in reports:
        seen.add(report.node_id)
        changes += _record_node(connection, known.get(report.node_id), report, now)
        changes += _record_cards(connection, known_cards, healthy.get(report.node_id, set()), report)
    _SEEN.run(connection, ids=seen, seen_at=now)
    for node_id, row in known.items():
        if node_id not in seen and row.up:
            connection.execute(
                update(nodes)
                .where(nodes.c.id == node_id)
                .values(up=False, message="its engine does not report it", generation=nodes.c.generation + 1)
            )
            changes.append(f"node {node_id} is gone")
    return changes


_SHOWN = select(
    nodes.c.id,
    nodes.c.generation,
    nodes.c.zone,
    nodes.c.fabric,
    nodes.c.cpus,
    nodes.c.memory_bytes,
    nodes.c.links,
    nodes.c.up,
    nodes.c.drained,
    nodes.c.driver,
)
_SHOWN_CARDS = select(
    cards.c.node_id, cards.c.id, cards.c.card_index, cards.c.model, cards.c.healthy, cards.c.quarantined
).order_by(cards.c.card_index)
_NODES = Prepared(_SHOWN)
_CARDS = Prepared(_SHOWN_CARDS)
_GENERATIONS = Prepared(select(nodes.c.id, nodes.c.generation).order_by(nodes.c.id))
_NODES_NAMED = Prepared(_SHOWN.where(among(nodes.c.id, "ids")))
_CARDS_OF_NODES = Prepared(_SHOWN_CARDS.where(among(cards.c.node_id, "ids")))
_CARDS_NAMED = Prepared(select(cards).where(among(cards.c.id, "ids")))
_BUMP = Prepared(
    update(nodes).where(nodes.c.id == bindparam("wanted"), nodes.c.generation == bindparam("seen")),
    ("generation",),
)
_COUNT = Prepared(
    update(nodes).where(nodes.c.id == bindparam("wanted")).values(generation=nodes.c.generation + 1)
)


def load_nodes(connection: Connection) -> tuple[Node, ...]:
    """Every node as the scheduler sees it."""
    return _nodes(_NODES.rows(connection), _CARDS.rows(connection))


def generations(connection: Connection) -> list[tuple[NodeId, int]]:
    """(id, generation) of every node, by id."""
    return [(NodeId(node_id), generation) for node_id, generation in _GENERATIONS.rows(connection)]


def load_nodes_named(connection: Connection, node_ids: Collection[str]) -> dict[str, Node]:
    """Those of these nodes that exist, by id; costs nothing for the others."""
    found = _nodes(
        _NODES_NAMED.rows(connection, ids=node_ids), _CARDS_OF_NODES.rows(connection, ids=node_ids)
    )
    return {node.id: node for node in found}


def _nodes(node_rows: Iterable[Any], card_rows: Iterable[Any]) -> tuple[Node, ...]:
    by_node: dict[str, list[Card]] = {}
    for node_id, card_id, index, model, healthy, quarantined in card_rows:
        card = Card(CardId(card_id), index, model, healthy and not quarantined)
        by_node.setdefault(node_id, []).append(card)
    return tuple(_node(row, tuple(by_node.get(row.id, ()))) for row in node_rows)


def load_cards(connection: Connection, card_ids: Collection[str]) -> dict[str, CardRow]:
    """These cards by id."""
    if not card_ids:
        return {}
    return {
        row.id: CardRow(
            id=row.id,
            node_id=row.node_id,
            index=row.card_index,
            uuid=row.uuid,
            model=row.model,
            memory_bytes=row.memory_bytes,
            declared=row.declared,
            usable=row.healthy and not row.quarantined,
        )
        for row in _CARDS_NAMED.rows(connection, ids=card_ids)
    }


def cards_by_place(connection: Connection) -> tuple[BoundCard, ...]:
    """Every card where it is."""
    rows = connection.execute(select(cards.c.id, cards.c.node_id, cards.c.card_index, cards.c.model))
    return tuple(BoundCard(row.id, row.node_id, row.card_index, row.model) for row in rows)


def bump_generation(connection: Connection, generations: Mapping[str, int]) -> bool:
    """Count a change on each node if its generation still is the one given; false when one is not."""
    for node_id, generation in sorted(generations.items()):
        if _BUMP.run(connection, wanted=node_id, seen=generation, generation=generation + 1) != 1:
            return False
    return True


def count_release(connection: Connection, node_ids: Iterable[str]) -> None:
    """Count a change on nodes whose cards came free."""
    for node_id in sorted(set(node_ids)):
        _COUNT.run(connection, wanted=node_id)


def _record_node(connection: Connection, row: Any, report: NodeReport, now: datetime) -> list[str]:
    links = _links_text(report.links)
    values = (
        report.zone,
        report.fabric,
        report.cpus,
        report.memory_bytes,
        links,
        report.up,
        report.message,
        report.driver,
    )
    named = dict(zip(_REPORTED, values, strict=True))
    if row is None:
        _INSERT_NODE.run(connection, id=report.node_id, generation=0, drained=False, seen_at=now, **named)
        return [f"node {report.node_id} is new"]
    if row[: len(values)] == values:
        return []
    connection.execute(
        update(nodes).where(nodes.c.id == report.node_id).values(generation=nodes.c.generation + 1, **named)
    )
    return [f"node {report.node_id} changed"]


def _record_cards(
    connection: Connection, known: Mapping[str, Any], healthy: set[str], report: NodeReport
) -> list[str]:
    changes = []
    for card in report.cards:
        row, values = known.get(card.card_id), _card_values(report.node_id, card)
        if row is not None and row[: len(values)] == values:
            continue
        named = dict(zip(_CARD_REPORTED, values, strict=True))
        if row is None:
            _INSERT_CARD.run(connection, id=card.card_id, quarantined=False, **named)
        else:
            connection.execute(update(cards).where(cards.c.id == card.card_id).values(**named))
        changes.append(f"card {card.card_id} changed" if row is not None else f"card {card.card_id} is new")
    for card_id in sorted(healthy - {card.card_id for card in report.cards}):
        connection.execute(
            update(cards)
            .where(cards.c.id == card_id)
            .values(healthy=False, message="its node does not report it any more")
        )
        changes.append(f"card {card_id} is gone")
    if changes:
        count_release(connection, [report.node_id])
    return changes


def _card_values(node_id: str, card: CardReport) -> tuple[object, ...]:
    """In the order of ``_CARD_REPORTED``."""
    return (
        node_id,
        card.index,
        card.uuid,
        card.model,
        card.memory_bytes,
        card.declared,
        card.healthy,
        card.message,
    )


@lru_cache(maxsize=1024)
def _links_text(links: tuple[LinkReport, ...]) -> str:
    return json.dumps([[link.a, link.b, link.quality] for link in links])


def _node(row: Any, own_cards: tuple[Card, ...]) -> Node:
    state = NodeState.DOWN if not row.up else NodeState.DRAINED if row.drained else NodeState.USABLE
    return Node(
        id=NodeId(row.id),
        generation=row.generation,
        zone=row.zone,
        fabric=row.fabric,
        cpus=row.cpus,
        memory_bytes=row.memory_bytes,
        cards=own_cards,
        links=_links(row.links),
        state=state,
        driver=row.driver,
    )


@lru_cache(maxsize=1024)
def _links(text: str) -> tuple[Link, ...]:
    """Nodes of one kind are linked alike, so a cluster has few texts of them."""
    return tuple(Link(a, b, quality) for a, b, quality in json.loads(text))
