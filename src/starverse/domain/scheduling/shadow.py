"""When will a blocked job fit, if nothing new delays it: the shadow start of EASY backfilling.

Every running allocation gives its cards back at its time limit at the latest, one under notice at its
deadline, one that the job's claim may reclaim after a grace. What fits grows with time, so the earliest
instant is found by bisection over the releases: O(log n) looks of O(nodes) each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from starverse.domain.scheduling.capacity import Bits, Ints, PoolRows, Room, Shape, Share
from starverse.domain.scheduling.rank import Choice, choose, fitting
from starverse.domain.scheduling.snapshot import Pool, WaitingJob
from starverse.domain.scheduling.tally import Tally
from starverse.domain.scheduling.topology import LinkGraph


@dataclass(frozen=True, slots=True)
class Shadow:
    """Where and when a blocked job will fit; ``room`` is what is free then. ``start_at`` since the epoch."""

    choice: Choice
    start_at: float
    room: Room


@dataclass(frozen=True, slots=True)
class _Releases:
    times: npt.NDArray[np.float64]
    rows: Ints
    bits: Bits
    cpus: Ints
    memory_bytes: Ints

    def room(self, base: Room, until: float) -> Room:
        """The base and all that is given back up to ``until``."""
        room, due = base.copy(), self.times <= until
        rows = self.rows[due]
        np.bitwise_or.at(room.bits, rows, self.bits[due])
        np.add.at(room.cpus, rows, self.cpus[due])
        np.add.at(room.memory_bytes, rows, self.memory_bytes[due])
        return room


def shadow_start(
    tally: Tally,
    job: WaitingJob,
    shape: Shape,
    pools: tuple[PoolRows, ...],
    prices: Callable[[Pool], Fraction],
) -> Shadow | None:
    """The earliest start of the whole gang in one of ``pools``; ``None``: not within any time limit.

    Earlier keeps count as used until their own job's time limit, which may err on the late side.
    """
    base, releases = _outlook(tally, job, pools)

    def good(until: float) -> bool:
        room = releases.room(base, until)
        return any(_takes(tally, pool, shape, room) for pool in pools)

    times = np.unique(releases.times)
    if not len(times) or not good(float(times[-1])):
        return None
    low, high = 0, len(times) - 1
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if good(float(times[middle])) else (middle + 1, high)
    start_at = float(times[low])
    room = releases.room(base, start_at)
    choice = choose(tally.layout, shape, room, prices, pools)
    assert choice is not None, "good() said that one of the pools takes it"
    return Shadow(_on_cards_in_use(tally, shape, choice, room), start_at, room)


def _takes(tally: Tally, pool: PoolRows, shape: Shape, room: Room) -> bool:
    good = fitting(tally.layout, pool, shape, room)
    return int(good.sum()) >= shape.resources.nodes and not bool((pool.listed & ~good).any())


def _outlook(tally: Tally, job: WaitingJob, pools: tuple[PoolRows, ...]) -> tuple[Room, _Releases]:
    """What is free now beside earlier keeps, and everything that is given back later."""
    layout = tally.layout
    mine = np.zeros(len(layout.nodes), dtype=np.bool_)
    for pool in pools:
        mine[pool.rows] = True
    base, kept = tally.room.copy(), tally.pinned.copy()
    found: list[tuple[float, Share]] = []
    for keep in tally.keeps:
        for share in keep.shares:
            base.take(share)
            kept[share.row] |= np.uint64(share.bits)
            found.append((keep.end_at, share))
    for end_at, shares in tally.later:
        found.extend((end_at, share) for share in shares)
    for release in tally.releases:
        at = release.ends_at if release.free_at is None else release.free_at
        if release.reclaimable and release.allocation.claim < job.claim:
            at = min(at, tally.reclaimed_at)
        for share in release.shares:
            bits = share.bits & int(layout.usable_bits[share.row]) & ~int(kept[share.row])
            found.append((at, Share(share.row, bits, share.cpus, share.memory_bytes)))
    chosen = [(at, share) for at, share in found if mine[share.row] and math.isfinite(at)]
    return base, _Releases(
        times=np.array([at for at, _ in chosen], dtype=np.float64),
        rows=np.array([share.row for _, share in chosen], dtype=np.int64),
        bits=np.array([share.bits for _, share in chosen], dtype=np.uint64),
        cpus=np.array([share.cpus for _, share in chosen], dtype=np.int64),
        memory_bytes=np.array([share.memory_bytes for _, share in chosen], dtype=np.int64),
    )


def _on_cards_in_use(tally: Tally, shape: Shape, choice: Choice, room: Room) -> Choice:
    """The same nodes, but rather cards that are in use now: what is free stays open to backfilling."""
    shares = []
    for share in choice.shares:
        place = int(np.flatnonzero(choice.pool.rows == share.row)[0])
        free_then = int(room.bits[share.row] & choice.pool.model_bits[place])
        graph = tally.layout.graphs[share.row]
        linked = bool(choice.pool.links_needed[place])
        bits = _rather(graph, free_then, int(tally.room.bits[share.row]), shape.count, linked)
        shares.append(Share(share.row, bits, share.cpus, share.memory_bytes))
    return Choice(choice.pool, tuple(shares), choice.link_quality_min)


def _rather(graph: LinkGraph, free_then: int, free_now: int, count: int, linked: bool) -> int:
    in_use = free_then & ~free_now
    among = graph.best(in_use, count)
    if among is not None and (among.quality_min > 0 or not linked):
        return among.mask
    if not linked and among is None:
        rest = graph.best(free_then & free_now, count - in_use.bit_count())
        if rest is not None:
            return in_use | rest.mask
    best = graph.best(free_then, count)
    assert best is not None, "the room then takes the job"
    return best.mask
