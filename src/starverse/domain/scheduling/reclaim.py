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
from functools import reduce
from typing import TypeAlias

import numpy as np

from starverse.domain.ids import AllocationId
from starverse.domain.scheduling.capacity import Flags, Ints, PoolRows, Room, Shape, Share
from starverse.domain.scheduling.rank import fitting
from starverse.domain.scheduling.snapshot import RunningAllocation, WaitingJob
from starverse.domain.scheduling.tally import Bound, Release, Tally, within

CHOICES_MAX = 4000
"""Sets looked at per node before the search settles for a good one."""

Cost: TypeAlias = tuple[int, int, Fraction | int]
"""Cards, lost card-seconds, bid times cards: compared in this order. Whole bids are plain integers."""

Spot: TypeAlias = tuple[int, int, int]
"""What is free on one node: card bits, CPUs, bytes of memory."""

Victims: TypeAlias = tuple[Release, ...]

_NOTHING: Cost = (0, 0, 0)
_NO_BID = Fraction(10**12)
_PLENTY_PER_CARD = 10**13


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
    whole = bid.numerator if bid.denominator == 1 else bid
    return (cards, cards * lost_seconds(allocation, now), whole * cards)


@dataclass(slots=True)
class _Site:
    """One claimant in one pool: what it may use there, growing as victims are chosen."""

    tally: Tally
    job: WaitingJob
    shape: Shape
    pool: PoolRows
    room: Room
    bound: Bound | None
    taken: dict[AllocationId, Release] = field(default_factory=dict)
    touched: dict[int, list[AllocationId]] = field(default_factory=dict)

    def spot(self, place: int) -> Spot:
        row = int(self.pool.rows[place])
        return (int(self.room.bits[row]), int(self.room.cpus[row]), int(self.room.memory_bytes[row]))

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

    def take(self, release: Release, offers: Iterable[_Offer]) -> None:
        """Count on the cards of this allocation, on each of its nodes."""
        self.taken[release.allocation.id] = release
        for offer in offers:
            self.room.give(Share(offer.row, offer.bits, offer.cpus, offer.memory_bytes))
            self.touched.setdefault(offer.row, []).append(release.allocation.id)

    def key(self, place: int) -> tuple[object, ...]:
        """Everything that the answer for this place depends on."""
        row, r = int(self.pool.rows[place]), self.shape.resources
        request = (self.pool.pool.model, r.cards_per_node, r.cpus_per_node, r.memory_bytes, self.job.claim)
        version = self.tally.row_versions.get(row, 0)
        key = (row, version, request, *self.spot(place), *sorted(self.touched.get(row, ())))
        if self.bound is None:
            return key
        b = self.bound
        return (*key, None, int(b.bits[row]), int(b.spare_cpus[row]), int(b.spare_memory_bytes[row]))


@dataclass(frozen=True, slots=True)
class _Offer:
    """What one allocation gives back on one node, and what taking it costs altogether."""

    cost: Cost
    release: Release
    row: int
    bits: int
    cpus: int
    memory_bytes: int

    @property
    def order(self) -> tuple[Cost, AllocationId]:
        return (self.cost, self.release.allocation.id)


class ReclaimSearch:
    """Finds the allocations to reclaim; remembers what a request of one shape would cost per node."""

    def __init__(self, tally: Tally, now: datetime) -> None:
        self._tally = tally
        self._by_row: dict[int, list[_Offer]] = {}
        self._by_id: dict[AllocationId, list[_Offer]] = {}
        self._known: dict[tuple[object, ...], tuple[Cost, Victims] | None] = {}
        for release in tally.releases:
            if release.reclaimable:
                cost = cost_of(release.allocation, now)
                for share in map(tally.returned, release.shares):
                    offer = _Offer(cost, release, share.row, share.bits, share.cpus, share.memory_bytes)
                    self._by_row.setdefault(share.row, []).append(offer)
                    self._by_id.setdefault(release.allocation.id, []).append(offer)
        for offers in self._by_row.values():
            offers.sort(key=lambda offer: offer.order)
        every = self._offers = [offer for offers in self._by_row.values() for offer in offers]
        self._open = np.ones(len(every), dtype=np.bool_)
        self._claims = np.array([offer.release.allocation.claim for offer in every], dtype=np.int64)
        self._rows = np.array([offer.row for offer in every], dtype=np.int64)
        self._bits = np.array([offer.bits for offer in every], dtype=np.uint64)
        self._cpus = np.array([offer.cpus for offer in every], dtype=np.int64)
        self._memory = np.array([offer.memory_bytes for offer in every], dtype=np.int64)
        per_card = [_per_card(offer.cost) for offer in every]
        self._lost = np.array([lost for lost, _ in per_card], dtype=np.int64)
        self._bids = np.array([bid for _, bid in per_card], dtype=np.int64)

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
            if self._offers[place].release.allocation.id in gone:
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
                site.take(victim, self._by_id[victim.allocation.id])
        return self._needed(site, chosen)

    def _cheapest(self, site: _Site, places: Flags) -> tuple[int, Victims] | None:
        """The place that costs least. Looks first where the lower bound of the cost is least."""
        bounds = self._bounds(site)
        candidates = np.flatnonzero(places)
        order = np.lexsort([bound[candidates] for bound in reversed(bounds)])
        best: tuple[Cost, int, Victims] | None = None
        for place in map(int, candidates[order]):
            if best is not None and best[0] <= tuple(int(bound[place]) for bound in bounds):
                break
            key = site.key(place)
            if key not in self._known:
                self._known[key] = self._at(site, place)
            answer = self._known[key]
            if answer is not None and (best is None or answer[0] < best[0]):
                best = (answer[0], place, answer[1])
        return None if best is None else best[1:]

    def _bounds(self, site: _Site) -> tuple[Ints, Ints, Ints]:
        """No set of allocations at a place costs less: the cards that lack there, all of them taken from
        the one with the least lost work, or with the lowest bid, per card."""
        short = _cards_short(site)
        lower = self._open & (self._claims < site.job.claim)
        bounds = [short]
        for per_card in (self._lost, self._bids):
            least = np.full(len(self._tally.layout.nodes), _PLENTY_PER_CARD, dtype=np.int64)
            np.minimum.at(least, self._rows[lower], per_card[lower])
            bounds.append(short * least[site.pool.rows])
        return bounds[0], bounds[1], bounds[2]

    def _at(self, site: _Site, place: int) -> tuple[Cost, Victims] | None:
        """The cheapest set on one node: sets in the order of their cost, the first that is enough."""
        start = site.spot(place)
        if site.fits(start, place):
            return (_NOTHING, ())
        offers = self._helpful(site, place)
        if not offers or not site.fits(_with(start, offers), place):
            return None
        heap: list[tuple[Cost, tuple[int, ...]]] = [(offers[0].cost, (0,))]
        for _ in range(CHOICES_MAX):
            if not heap:
                break
            cost, picked = heapq.heappop(heap)
            chosen = [offers[i] for i in picked]
            if site.fits(_with(start, chosen), place):
                return (cost, tuple(offer.release for offer in chosen))
            after = picked[-1] + 1
            if after < len(offers):
                more = offers[after].cost
                heapq.heappush(heap, (_add(cost, more), (*picked, after)))
                swapped = (*picked[:-1], after)
                heapq.heappush(heap, (_total(offers[i].cost for i in swapped), swapped))
        return _good_enough(site, place, offers)

    def _helpful(self, site: _Site, place: int) -> list[_Offer]:
        """Whose leaving helps on this node, cheapest first."""
        row, r = int(site.pool.rows[place]), site.shape.resources
        _, cpus, memory = site.spot(place)
        model = int(site.pool.model_bits[place]) if r.cards_per_node else 0
        any_helps = site.bound is not None or cpus < r.cpus_per_node or memory < r.memory_bytes
        return [
            offer
            for offer in self._by_row.get(row, ())
            if offer.release.free_at is None
            and offer.release.allocation.claim < site.job.claim
            and offer.release.allocation.id not in site.taken
            and (any_helps or offer.bits & model)
        ]

    def _needed(self, site: _Site, chosen: list[int]) -> Victims:
        """The victims taken, less those without whom every chosen node fits as well."""
        needed = dict(site.taken)
        if site.shape.resources.nodes == 1:
            return tuple(needed.values())
        untaken = {place: self._untaken(site, place) for place in chosen}
        for ident in sorted(needed, key=lambda i: self._by_id[i][0].order, reverse=True):
            rest = [offer for other in needed if other != ident for offer in self._by_id[other]]
            if all(
                site.fits(_with(spot, [o for o in rest if o.row == site.pool.rows[place]]), place)
                for place, spot in untaken.items()
            ):
                del needed[ident]
        return tuple(needed.values())

    def _untaken(self, site: _Site, place: int) -> Spot:
        """What was free on a node before any victim of this search."""
        bits, cpus, memory = site.spot(place)
        row = int(site.pool.rows[place])
        for offer in (o for ident in site.touched.get(row, ()) for o in self._by_id[ident] if o.row == row):
            bits &= ~offer.bits
            cpus, memory = cpus - offer.cpus, memory - offer.memory_bytes
        return (bits, cpus, memory)

    def _sum(self, releases: Iterable[Release]) -> Cost:
        return _total(self._by_id[release.allocation.id][0].cost for release in releases)


def _good_enough(site: _Site, place: int, offers: list[_Offer]) -> tuple[Cost, Victims]:
    """Too many sets to look at: take the cheapest ones until it fits, then drop what is not needed."""
    start, picked = site.spot(place), list[_Offer]()
    for offer in offers:
        picked.append(offer)
        if site.fits(_with(start, picked), place):
            break
    for offer in sorted(picked, key=lambda o: o.order, reverse=True):
        rest = [other for other in picked if other is not offer]
        if site.fits(_with(start, rest), place):
            picked = rest
    return (_total(offer.cost for offer in picked), tuple(offer.release for offer in picked))


def _with(spot: Spot, offers: Iterable[_Offer]) -> Spot:
    """The spot when these allocations are gone from it."""
    bits, cpus, memory = spot
    for offer in offers:
        bits |= offer.bits
        cpus, memory = cpus + offer.cpus, memory + offer.memory_bytes
    return (bits, cpus, memory)


def _add(cost: Cost, more: Cost) -> Cost:
    return (cost[0] + more[0], cost[1] + more[1], cost[2] + more[2])


def _total(costs: Iterable[Cost]) -> Cost:
    return reduce(_add, costs, _NOTHING)


def _per_card(cost: Cost) -> tuple[int, int]:
    """Lost work and bid per card, rounded down; an allocation without cards bounds nothing."""
    cards, lost, bid = cost
    return (lost // cards, min(_PLENTY_PER_CARD, int(bid // cards))) if cards else (0, 0)


def _cards_short(site: _Site) -> Ints:
    """How many cards lack at each place: a lower bound of the cards to take."""
    room = site.room if site.bound is None else within(site.room, site.bound)
    free = np.bitwise_count(room.bits[site.pool.rows] & site.pool.model_bits).astype(np.int64)
    short: Ints = np.maximum(0, site.shape.resources.cards_per_node - free)
    return short
