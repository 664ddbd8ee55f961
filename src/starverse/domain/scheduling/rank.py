"""Which nodes: where the request fits, in which order, and the choice made.

Cheapest pool first. Inside it the best linked cards, then the fewest links broken, then where free cards lose
least of their use to the usual requests (``fragmentation.py``), then the tightest fit
(fewest cards of the model left over, then fewest cards of any model, then fewest CPUs), so that whole
nodes stay whole for those who need them; then the node id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from starverse.domain.scheduling.capacity import Flags, Layout, PoolRows, Room, Shape, Share, qualities
from starverse.domain.scheduling.snapshot import Pool


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a whole gang goes: one share per node, all of one pool."""

    pool: PoolRows
    shares: tuple[Share, ...]
    link_quality_min: int


def fitting(layout: Layout, pool: PoolRows, shape: Shape, room: Room) -> Flags:
    """Which rows of the pool take one node's part of the request, given this room."""
    r, rows = shape.resources, pool.rows
    free = room.bits[rows] & pool.model_bits
    good = layout.usable[rows] & (room.cpus[rows] >= r.cpus_per_node)
    good &= room.memory_bytes[rows] >= r.memory_bytes
    good &= np.bitwise_count(free) >= r.cards_per_node
    if pool.links_needed.any():
        weakest, _ = qualities(pool, free, r.cards_per_node)
        good &= ~pool.links_needed | (weakest > 0)
    return good


def choose(
    layout: Layout,
    shape: Shape,
    room: Room,
    prices: Callable[[Pool], Fraction],
    pools: tuple[PoolRows, ...],
) -> Choice | None:
    """The best place for the whole gang; ``None`` when no pool takes it whole.

    ``room`` is what the job may use (holds of others taken out), ``prices`` the rate of a pool; among
    equally cheap pools the better links win, then the tighter fit.
    """
    found: list[tuple[tuple[Fraction, int, int, Pool], PoolRows, list[int]]] = []
    for pool in pools:
        good = fitting(layout, pool, shape, room)
        if int(good.sum()) < shape.resources.nodes or bool((pool.listed & ~good).any()):
            continue
        places, weakest, left_over = _best_places(layout, pool, shape, room, good)
        found.append(((prices(pool.pool), -weakest, left_over, pool.pool), pool, places))
    if not found:
        return None
    _, pool, places = min(found, key=lambda candidate: candidate[0])
    return _take(layout, pool, shape, room, places)


def _best_places(
    layout: Layout, pool: PoolRows, shape: Shape, room: Room, good: Flags
) -> tuple[list[int], int, int]:
    """The best positions in the pool, their weakest link, and the cards left over beside them."""
    r = shape.resources
    places = np.flatnonzero(good)
    everything = room.bits[pool.rows]
    free = everything & pool.model_bits
    weakest, broken = qualities(pool, free, r.cards_per_node)
    left = np.bitwise_count(free).astype(np.int64) - r.cards_per_node
    keys = (
        room.cpus[pool.rows][places],
        np.bitwise_count(everything)[places].astype(np.int64),
        left[places],
        layout.usual.losses(
            left[places] + r.cards_per_node, room.cpus[pool.rows][places], (r.cards_per_node, r.cpus_per_node)
        ),
        broken[places],
        -weakest[places],
        ~pool.listed[places],
    )
    best = places[np.lexsort(keys)[: r.nodes]]  # stable: equal rows stay in the order of node ids
    return [int(p) for p in best], int(weakest[best].min()), int(left[best].sum())


def _take(layout: Layout, pool: PoolRows, shape: Shape, room: Room, places: list[int]) -> Choice:
    r, shares, weakest = shape.resources, [], []
    for place in sorted(places):
        row = int(pool.rows[place])
        free = int(room.bits[row] & pool.model_bits[place])
        choice = layout.graphs[row].best(free, r.cards_per_node)
        assert choice is not None, "fitting() counted the cards"
        shares.append(Share(row, choice.mask, r.cpus_per_node, r.memory_bytes))
        weakest.append(choice.quality_min)
    return Choice(pool, tuple(shares), min(weakest))
