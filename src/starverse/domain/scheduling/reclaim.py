"""Whose cards are taken back for a claimant: nobody's unless the claimant really fits afterwards.

Only lower claims that may be reclaimed (spot, idle), never an allocation that has its notice already: it
is counted as coming free. The choice is the least in this order: cards taken (over all nodes of those
reclaimed), lost work (card-seconds since the newest verified checkpoint), bid. Exact for one node; a gang
takes its nodes one by one, cheapest first, and gives back every reclaim that turns out to be superfluous.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from starverse.domain.ids import AllocationId
from starverse.domain.scheduling.capacity import Flags, Ints, PoolRows, Room, Shape, Share
from starverse.domain.scheduling.rank import fitting
from starverse.domain.scheduling.snapshot import RunningAllocation, WaitingJob
from starverse.domain.scheduling.tally import Bound, Release, Tally, within

CHOICES_MAX = 4000
"""Sets looked at per node before the search settles for a good one."""

Cost: TypeAlias = tuple[int, int, Fraction]
"""Cards, lost card-seconds, bid times cards: compared in this order."""

Spot: TypeAlias = tuple[int, int, int]
"""What is free on one node: card bits, CPUs, bytes of memory."""

Victims: TypeAlias = tuple[Release, ...]

_NOTHING: Cost = (0, 0, Fraction(0))
_NO_BID = Fraction(10**12)


def lost_seconds(allocation: RunningAllocation, now: datetime) -> int:
    """Seconds run since the newest verified checkpoint (or since ready) that a stop now would lose."""
    if allocation.ready_at is None:
        return 0
    newest = allocation.newest_verified_checkpoint_at
    since = allocation.ready_at if newest is None else max(newest, allocation.ready_at)
    return max(0, int((now - since).total_seconds()))


def cost_of(allocation: RunningAllocation, now: datetime) -> Cost:
    """What taking this allocation costs; no bid counts as a very high one."""
    cards, bid = allocation.cards, _NO_BID if allocation.bid is None else allocation.bid
    return (cards, cards * lost_seconds(allocation, now), bid * cards)


@dataclass(slots=True)
class _Site:
    """One claimant in one pool: what it may use there, growing as victims are chosen."""

    tally: Tally
    job: WaitingJob
    shape: Shape
    pool: PoolRows
    room: Room
    bound: Bound | None
    taken: dict[str, Release] = field(default_factory=dict)

    def spot(self, place: int) -> Spot:
        row = int(self.pool.rows[place])
        return (int(self.room.bits[row]), int(self.room.cpus[row]), int(self.room.memory_bytes[row]))

    def with_release(self, spot: Spot, release: Release, place: int) -> Spot:
        """The spot when this allocation is gone from it."""
        row = int(self.pool.rows[place])
        bits, cpus, memory = spot
        for share in release.shares:
            if share.row == row:
                bits |= self.tally.returned(share).bits
                cpus, memory = cpus + share.cpus, memory + share.memory_bytes
        return (bits, cpus, memory)

    def fits(self, spot: Spot, place: int) -> bool:
        """The rule of ``rank.fitting`` for one node."""
        bits, cpus, memory = spot
        row, r = int(self.pool.rows[place]), self.shape.resources
        if self.bound is not None:
            bits &= ~int(self.bound.bits[row])
            cpus = min(cpus, int(self.bound.spare_cpus[row]))
            memory = min(memory, int(self.bound.spare_memory_bytes[row]))
        free = bits & int(self.pool.model_bits[place])
        if free.bit_count() < r.cards_per_node or cpus < r.cpus_per_node or memory < r.memory_bytes:
            return False
        if not self.pool.links_needed[place]:
            return True
        choice = self.tally.layout.graphs[row].best(free, r.cards_per_node)
        return choice is not None and choice.quality_min > 0

    def key(self, place: int) -> tuple[object, ...]:
        """Everything that the answer for this place depends on."""
        row = int(self.pool.rows[place])
        version = self.tally.row_versions.get(row, 0)
        key = (row, id(self.shape), self.pool.pool.model, self.job.claim, version, *self.spot(place))
        if self.bound is None:
            return key
        b = self.bound
        return (*key, int(b.bits[row]), int(b.spare_cpus[row]), int(b.spare_memory_bytes[row]))


class ReclaimSearch:
    """Finds the allocations to reclaim; remembers what a request of one shape would cost per node."""

    def __init__(self, tally: Tally, now: datetime) -> None:
        self._tally = tally
        self._costs: dict[str, Cost] = {}
        self._by_row: dict[int, list[Release]] = {}
        self._known: dict[tuple[object, ...], tuple[Cost, Victims] | None] = {}
        self._shares: list[tuple[Release, Share]] = []
        for release in tally.releases:
            if release.reclaimable:
                self._costs[release.allocation.id] = cost_of(release.allocation, now)
                for share in release.shares:
                    self._shares.append((release, tally.returned(share)))
                    self._by_row.setdefault(share.row, []).append(release)
        returned = [share for _, share in self._shares]
        self._open = np.ones(len(returned), dtype=np.bool_)
        self._claims = np.array([r.allocation.claim for r, _ in self._shares], dtype=np.int64)
        self._rows = np.array([s.row for s in returned], dtype=np.int64)
        self._bits = np.array([s.bits for s in returned], dtype=np.uint64)
        self._cpus = np.array([s.cpus for s in returned], dtype=np.int64)
        self._memory = np.array([s.memory_bytes for s in returned], dtype=np.int64)

    def victims(
        self, job: WaitingJob, shape: Shape, pools: tuple[PoolRows, ...], room: Room, bound: Bound | None
    ) -> Victims | None:
        """The cheapest set whose cards, with ``room`` (free and coming free), hold the whole gang.

        ``None``: no set does.
        """
        if not self._by_row:
            return None
        best: tuple[Cost, list[AllocationId], Victims] | None = None
        after = self._without_lower(job, room)
        after = after if bound is None else within(after, bound)
        for pool in pools:
            hopeful = fitting(self._tally.layout, pool, shape, after)
            site = _Site(self._tally, job, shape, pool, room.copy(), bound)
            chosen = self._in_pool(site, hopeful)
            if chosen is not None:
                ids = sorted(release.allocation.id for release in chosen)
                candidate = (self._sum(chosen), ids, chosen)
                if best is None or candidate[:2] < best[:2]:
                    best = candidate
        return best[2] if best else None

    def noticed(self, victims: Victims) -> None:
        """These are not to be had any more."""
        gone = {victim.allocation.id for victim in victims}
        rows = {share.row for victim in victims for share in victim.shares}
        for place in np.flatnonzero(self._open & np.isin(self._rows, list(rows))):
            if self._shares[place][0].allocation.id in gone:
                self._open[place] = False

    def _without_lower(self, job: WaitingJob, room: Room) -> Room:
        """The room if every lower claim that may be reclaimed were gone."""
        lower = self._open & (self._claims < job.claim)
        after, rows = room.copy(), self._rows[lower]
        np.bitwise_or.at(after.bits, rows, self._bits[lower])
        np.add.at(after.cpus, rows, self._cpus[lower])
        np.add.at(after.memory_bytes, rows, self._memory[lower])
        return after

    def _in_pool(self, site: _Site, hopeful: Flags) -> Victims | None:
        wanted = site.shape.resources.nodes
        if int(hopeful.sum()) < wanted or bool((site.pool.listed & ~hopeful).any()):
            return None
        chosen: list[int] = []
        while len(chosen) < wanted:
            open_places = hopeful.copy()
            open_places[chosen] = False
            must = open_places & site.pool.listed
            found = self._cheapest(site, must if must.any() else open_places)
            if found is None:
                return None
            place, victims = found
            chosen.append(place)
            for victim in victims:
                site.taken[victim.allocation.id] = victim
                for share in victim.shares:
                    site.room.give(self._tally.returned(share))
        return self._needed(site, chosen)

    def _cheapest(self, site: _Site, places: Flags) -> tuple[int, Victims] | None:
        """The place that costs least, the first of equal ones. Looks where the fewest cards lack first."""
        short = _cards_short(site)
        candidates = np.flatnonzero(places)
        best: tuple[Cost, int, Victims] | None = None
        for place in candidates[np.argsort(short[candidates], kind="stable")]:
            if best is not None and short[place] > best[0][0]:
                break
            key = (*site.key(int(place)), *sorted(site.taken)) if site.taken else site.key(int(place))
            if key not in self._known:
                self._known[key] = self._at(site, int(place))
            answer = self._known[key]
            if answer is not None and (best is None or (answer[0], int(place)) < best[:2]):
                best = (answer[0], int(place), answer[1])
        return None if best is None else best[1:]

    def _at(self, site: _Site, place: int) -> tuple[Cost, Victims] | None:
        """The cheapest set on one node: sets in the order of their cost, the first that is enough."""
        start = site.spot(place)
        if site.fits(start, place):
            return (_NOTHING, ())
        offers = self._offers(site, place)
        everything = start
        for release in offers:
            everything = site.with_release(everything, release, place)
        if not offers or not site.fits(everything, place):
            return None
        heap: list[tuple[Cost, tuple[int, ...]]] = [(self._costs[offers[0].allocation.id], (0,))]
        for _ in range(CHOICES_MAX):
            if not heap:
                break
            cost, picked = heapq.heappop(heap)
            victims = tuple(offers[i] for i in picked)
            if self._enough(site, place, start, victims):
                return (cost, victims)
            after = picked[-1] + 1
            if after < len(offers):
                for following in ((*picked, after), (*picked[:-1], after)):
                    heapq.heappush(heap, (self._sum(offers[i] for i in following), following))
        return self._good_enough(site, place, offers)

    def _offers(self, site: _Site, place: int) -> list[Release]:
        """Whose leaving helps on this node, cheapest first."""
        row, r = int(site.pool.rows[place]), site.shape.resources
        _, cpus, memory = site.spot(place)
        model = int(site.pool.model_bits[place]) if r.cards_per_node else 0
        needs_more = cpus < r.cpus_per_node or memory < r.memory_bytes
        bounded = site.bound is not None
        offers = [
            release
            for release in self._by_row.get(row, ())
            if release.reclaimable
            and release.allocation.claim < site.job.claim
            and release.allocation.id not in site.taken
            and (needs_more or bounded or any(s.row == row and s.bits & model for s in release.shares))
        ]
        unique = {release.allocation.id: release for release in offers}
        return sorted(unique.values(), key=lambda r: (self._costs[r.allocation.id], r.allocation.id))

    def _good_enough(self, site: _Site, place: int, offers: list[Release]) -> tuple[Cost, Victims] | None:
        """Too many sets to look at: take the cheapest ones until it fits, then drop what is not needed."""
        start, picked = site.spot(place), list[Release]()
        for release in offers:
            picked.append(release)
            if self._enough(site, place, start, picked):
                break
        for release in sorted(picked, key=lambda r: self._costs[r.allocation.id], reverse=True):
            rest = [other for other in picked if other is not release]
            if self._enough(site, place, start, rest):
                picked = rest
        return (self._sum(picked), tuple(picked))

    def _enough(self, site: _Site, place: int, start: Spot, victims: Iterable[Release]) -> bool:
        spot = start
        for release in victims:
            spot = site.with_release(spot, release, place)
        return site.fits(spot, place)

    def _needed(self, site: _Site, chosen: list[int]) -> Victims:
        """The victims taken, less those without whom every chosen node fits as well."""
        needed = dict(site.taken)
        if site.shape.resources.nodes == 1:
            return tuple(needed.values())
        for ident in sorted(needed, key=lambda i: (self._costs[i], i), reverse=True):
            rest = [release for other, release in needed.items() if other != ident]
            before = _Site(site.tally, site.job, site.shape, site.pool, site.room, site.bound)
            if all(self._enough(before, p, self._untaken(site, p), rest) for p in chosen):
                del needed[ident]
        return tuple(needed.values())

    def _untaken(self, site: _Site, place: int) -> Spot:
        """What was free on a node before any victim of this search."""
        bits, cpus, memory = site.spot(place)
        row = int(site.pool.rows[place])
        for release in site.taken.values():
            for share in release.shares:
                if share.row == row:
                    bits &= ~self._tally.returned(share).bits
                    cpus, memory = cpus - share.cpus, memory - share.memory_bytes
        return (bits, cpus, memory)

    def _sum(self, releases: Iterable[Release]) -> Cost:
        cards, lost, bid = _NOTHING
        for release in releases:
            more = self._costs[release.allocation.id]
            cards, lost, bid = cards + more[0], lost + more[1], bid + more[2]
        return (cards, lost, bid)


def _cards_short(site: _Site) -> Ints:
    """How many cards lack at each place: a lower bound of the cards to take."""
    room = site.room if site.bound is None else within(site.room, site.bound)
    free = np.bitwise_count(room.bits[site.pool.rows] & site.pool.model_bits).astype(np.int64)
    short: Ints = np.maximum(0, site.shape.resources.cards_per_node - free)
    return short
