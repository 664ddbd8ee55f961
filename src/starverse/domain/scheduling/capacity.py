"""The snapshot as arrays: what is free on every node, and which nodes of which pools a request may use.

One row per node, nodes in the order of their ids. Cards are bits of a 64-bit mask per node, so counting
the free cards of a thousand nodes is one array operation. ``Layout`` never changes during a decision;
``Room`` is what is free at some moment and is consumed as the decision goes on. The answers equal those
of :func:`~starverse.domain.scheduling.fit.fits` (a property test holds them together).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from starverse.domain.errors import InvariantBroken
from starverse.domain.ids import CardId, NodeId
from starverse.domain.scheduling.fit import Misfit, impossible, models_asked, permanent_reason
from starverse.domain.scheduling.fragmentation import WholeCards
from starverse.domain.scheduling.snapshot import NO_MODEL, Node, NodeShare, NodeState, Pool
from starverse.domain.scheduling.topology import LinkGraph, link_graph, ordered_cards, positions
from starverse.domain.workloads.specs import Resources

CARDS_PER_NODE_MAX = 64

Ints: TypeAlias = npt.NDArray[np.int64]
Bits: TypeAlias = npt.NDArray[np.uint64]
Flags: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Share:
    """A :class:`~starverse.domain.scheduling.snapshot.NodeShare` in the words of the arrays."""

    row: int
    bits: int
    cpus: int
    memory_bytes: int


@dataclass(slots=True)
class Room:
    """What is free per node row. CPUs and memory may fall below zero where what is still coming free was
    promised already; that only means that nothing more goes there."""

    bits: Bits
    cpus: Ints
    memory_bytes: Ints

    def copy(self) -> Room:
        return Room(self.bits.copy(), self.cpus.copy(), self.memory_bytes.copy())

    def take(self, share: Share) -> None:
        self.bits[share.row] &= ~np.uint64(share.bits)
        self.cpus[share.row] -= share.cpus
        self.memory_bytes[share.row] -= share.memory_bytes

    def give(self, share: Share) -> None:
        """The reverse of :meth:`take`; the caller leaves out bits of cards that may not be used."""
        self.bits[share.row] |= np.uint64(share.bits)
        self.cpus[share.row] += share.cpus
        self.memory_bytes[share.row] += share.memory_bytes


@dataclass(frozen=True, slots=True)
class PoolRows:
    """The rows of one pool that a request could use when idle, and the bits of the pool's model there.

    ``graphs`` groups them by layout (positions into ``rows``); ``links_needed`` marks those where the
    request must get linked cards; ``listed`` those that it must use.
    """

    pool: Pool
    rows: Ints
    model_bits: Bits
    graphs: tuple[tuple[LinkGraph, Ints], ...]
    links_needed: Flags
    listed: Flags


@dataclass(frozen=True, slots=True)
class Shape:
    """A request as the arrays see it; equal requests share one. ``never`` says that it cannot fit here."""

    resources: Resources
    never: Misfit | None
    pools: tuple[PoolRows, ...]

    @property
    def count(self) -> int:
        return self.resources.cards_per_node


@dataclass(frozen=True, slots=True)
class Layout:
    """The nodes of a snapshot, indexed. ``usable_bits`` are the healthy cards of usable nodes;
    ``kinds`` are the rows of nodes with the same zone, fabric, size, driver and count of cards per model."""

    nodes: tuple[Node, ...]
    row_of: dict[NodeId, int]
    card_ids: tuple[tuple[CardId, ...], ...]
    card_bits: dict[CardId, int]
    graphs: tuple[LinkGraph, ...]
    usable: Flags
    usable_bits: Bits
    model_bits: dict[str, Bits]
    kinds: tuple[tuple[int, ...], ...]
    shapes: dict[Resources, Shape]
    usual: WholeCards

    def shape(self, resources: Resources) -> Shape:
        """The shape of a request; thought about once per distinct request."""
        known = self.shapes.get(resources)
        if known is None:
            known = self.shapes[resources] = _shape(self, resources)
        return known

    def idle_room(self) -> Room:
        """Everything that usable nodes have."""
        return Room(
            bits=self.usable_bits.copy(),
            cpus=np.array([node.cpus for node in self.nodes], dtype=np.int64),
            memory_bytes=np.array([node.memory_bytes for node in self.nodes], dtype=np.int64),
        )

    def shares(self, shares: Iterable[NodeShare]) -> tuple[Share, ...]:
        """Shares of known nodes; cards that a node no longer has are passed over."""
        return tuple(
            Share(
                row=self.row_of[share.node_id],
                bits=sum(self.card_bits.get(card_id, 0) for card_id in share.card_ids),
                cpus=share.cpus,
                memory_bytes=share.memory_bytes,
            )
            for share in shares
            if share.node_id in self.row_of
        )

    def node_share(self, share: Share) -> NodeShare:
        """Back to ids, with the node's generation."""
        node = self.nodes[share.row]
        names = self.card_ids[share.row]
        chosen = tuple(names[place] for place in positions(share.bits))
        return NodeShare(node.id, chosen, share.cpus, share.memory_bytes, node.generation)


def layout_of(nodes: Iterable[Node], requests: Iterable[tuple[int, int]] = ()) -> Layout:
    """Index the nodes; raises :class:`InvariantBroken` for a node of more than 64 cards.

    ``requests`` are the usual ones, cards and CPUs per node, that what stays free should suit.
    """
    ordered = tuple(sorted(nodes, key=lambda node: node.id))
    cards = tuple(ordered_cards(node) for node in ordered)
    models: dict[str, list[int]] = {NO_MODEL: [0] * len(ordered)}
    usable_bits = [0] * len(ordered)
    card_bits: dict[CardId, int] = {}
    for row, (node, its_cards) in enumerate(zip(ordered, cards, strict=True)):
        if len(its_cards) > CARDS_PER_NODE_MAX:
            raise InvariantBroken(
                f"{node.id} has {len(its_cards)} cards; at most {CARDS_PER_NODE_MAX} per node"
            )
        usable = 0
        for place, card in enumerate(its_cards):
            bit = card_bits[card.id] = 1 << place
            if card.model not in models:
                models[card.model] = [0] * len(ordered)
            models[card.model][row] |= bit
            usable |= bit if card.usable else 0
        usable_bits[row] = usable if node.state is NodeState.USABLE else 0
    return Layout(
        nodes=ordered,
        row_of={node.id: row for row, node in enumerate(ordered)},
        card_ids=tuple(tuple(card.id for card in its_cards) for its_cards in cards),
        card_bits=card_bits,
        graphs=tuple(link_graph(node) for node in ordered),
        usable=np.array([node.state is NodeState.USABLE for node in ordered], dtype=np.bool_),
        usable_bits=np.array(usable_bits, dtype=np.uint64),
        model_bits={model: np.array(bits, dtype=np.uint64) for model, bits in models.items()},
        kinds=_kinds(ordered),
        shapes={},
        usual=WholeCards(
            requests, max(map(len, cards), default=0), max((node.cpus for node in ordered), default=0)
        ),
    )


def qualities(pool: PoolRows, bits: Bits, count: int) -> tuple[Ints, Ints]:
    """The weakest link and the broken links of the best ``count`` cards per row of the pool.

    ``bits`` are the free cards of the pool's model per row; rows with too few give 0. Equal masks of
    equal layouts are looked at once.
    """
    weakest, broken = np.zeros(len(pool.rows), dtype=np.int64), np.zeros(len(pool.rows), dtype=np.int64)
    if count == 0:
        return weakest, broken
    for graph, places in pool.graphs:
        if not graph.linked:
            continue
        masks, which = np.unique(bits[places], return_inverse=True)
        choices = [graph.best(int(mask), count) for mask in masks]
        weakest[places] = np.array([c.quality_min if c else 0 for c in choices], dtype=np.int64)[which]
        broken[places] = np.array([c.broken if c else 0 for c in choices], dtype=np.int64)[which]
    return weakest, broken


def _kinds(nodes: tuple[Node, ...]) -> tuple[tuple[int, ...], ...]:
    rows: dict[tuple[object, ...], list[int]] = {}
    for row, node in enumerate(nodes):
        models = tuple(sorted(card.model for card in node.cards))
        kind = (node.zone, node.fabric, node.cpus, node.memory_bytes, node.driver, models)
        rows.setdefault(kind, []).append(row)
    return tuple(map(tuple, rows.values()))


def _shape(layout: Layout, resources: Resources) -> Shape:
    found: dict[Pool, list[int]] = {}
    anywhere = replace(resources, exclude=(), nodelist=())
    named = bool(resources.exclude or resources.nodelist)
    for kind in layout.kinds:
        first = layout.nodes[kind[0]]
        for model in models_asked(first, resources):
            if permanent_reason(first, anywhere, model) is None:
                rows = [
                    row
                    for row in kind
                    if not named or permanent_reason(layout.nodes[row], resources, model) is None
                ]
                found.setdefault(first.pool(model), []).extend(rows)
    pools = []
    for pool in sorted(found):
        rows = sorted(found[pool])
        on = {layout.nodes[row].id for row in rows} if resources.nodelist else set()
        if len(rows) >= resources.nodes >= len(resources.nodelist) and on.issuperset(resources.nodelist):
            pools.append(_pool_rows(layout, resources, pool, rows))
    never = None if pools else impossible(layout.nodes, resources)
    return Shape(resources, never, tuple(pools))


def _pool_rows(layout: Layout, resources: Resources, pool: Pool, rows: list[int]) -> PoolRows:
    index = np.array(rows, dtype=np.int64)
    model_bits = layout.model_bits[pool.model][index]
    by_graph: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        by_graph.setdefault(id(layout.graphs[row]), []).append(place)
    graphs = tuple(
        (layout.graphs[rows[places[0]]], np.array(places, dtype=np.int64)) for places in by_graph.values()
    )
    needed = np.zeros(len(rows), dtype=np.bool_)
    idle = layout.usable_bits[index] & model_bits
    for graph, places in graphs:
        if graph.linked and resources.cards_per_node > 1:
            needed[places] = [graph.links_needed(int(idle[p]), resources.cards_per_node) for p in places]
    return PoolRows(
        pool=pool,
        rows=index,
        model_bits=model_bits,
        graphs=graphs,
        links_needed=needed,
        listed=np.array([layout.nodes[row].id in resources.nodelist for row in rows], dtype=np.bool_),
    )
