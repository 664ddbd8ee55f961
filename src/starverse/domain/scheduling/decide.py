"""The scheduler: ``decide(snapshot, now) -> Decision``, a pure function.

Claim class by claim class, job by job in the order of :mod:`~starverse.domain.scheduling.queue_order`:

1. what may not start yet waits, what can never run is refused;
2. what fits into free cards is placed, unless it would delay a shadow start (EASY backfill);
3. what fits once cards under notice are free gets them promised and waits for them;
4. what fits once lower claims are reclaimed gets the fewest of them reclaimed, and their cards promised;
5. the first that is still blocked in its claim class and pool holds a shadow start; the rest wait.

Spot whose bid is below the price gets its notice first of all.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from fractions import Fraction

from starverse.domain.ids import JobId
from starverse.domain.scheduling.capacity import PoolRows, Room, Shape
from starverse.domain.scheduling.decision import Decision, Hold, Placement, Reclaim, Refusal, Wait
from starverse.domain.scheduling.eligibility import array_block
from starverse.domain.scheduling.queue_order import CLAIMS_IN_ORDER, ClaimQueue
from starverse.domain.scheduling.rank import Choice, choose
from starverse.domain.scheduling.reclaim import ReclaimSearch, lost_seconds
from starverse.domain.scheduling.shadow import shadow_start
from starverse.domain.scheduling.shortage import Shortage, clock, shortage, yuan
from starverse.domain.scheduling.snapshot import Blocked, Claim, Never, Pool, Snapshot, WaitingJob
from starverse.domain.scheduling.tally import Release, instant_of, tally_of, within
from starverse.domain.scheduling.team_usage import COMMITTED_SECONDS, with_commitments
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.reasons import JobEndReason, NoticeReason, WaitReason

_FOLLOWING_THE_PRICE = frozenset({Tariff.SPOT, Tariff.IDLE, Tariff.ON_DEMAND})
_PRICE = WaitReason.PRICE_ABOVE_MAX
_ENDS_AT_ONCE = {
    WaitReason.NO_CARDS: JobEndReason.NO_CARDS,
    WaitReason.NO_MONEY: JobEndReason.NO_MONEY,
    WaitReason.PRICE_ABOVE_MAX: JobEndReason.NO_CARDS,
    WaitReason.DISK_RESERVE: JobEndReason.DISK_RESERVE,
}
"""What ends a job that starts at once or not at all; a pause after a lost race is no reason."""


def decide(snapshot: Snapshot, now: datetime) -> Decision:
    """What to start, whom to give notice, and why everyone else waits.

    Deterministic, and independent of the order inside the snapshot. Each waiting job is answered exactly
    once. O(waiting x nodes) array operations in the worst case.
    """
    return _Decider(snapshot, now).run()


class _Decider:
    def __init__(self, snapshot: Snapshot, now: datetime) -> None:
        self.snapshot, self.now = snapshot, now
        self.tally = tally_of(snapshot, now)
        self.placements: list[Placement] = []
        self.reclaims: list[Reclaim] = []
        self.waits: list[Wait] = []
        self.refusals: list[Refusal] = []
        self.holds: list[Hold] = []
        self.active_tasks: dict[str, int] = {}
        self._too_big_now: set[int] = set()
        self._too_big_ever: set[tuple[int, Claim]] = set()
        self._never_fits: set[tuple[int, Claim]] = set()
        self._shortages: dict[int, tuple[int, Shortage]] = {}

    def run(self) -> Decision:
        for allocation in self.snapshot.running:
            if allocation.array_group is not None:
                group = allocation.array_group
                self.active_tasks[group] = self.active_tasks.get(group, 0) + 1
        self._notice_bids_below_price()
        self.search = ReclaimSearch(self.tally, self.now)
        ready = [job for job in self.snapshot.waiting if self._may_start(job)]
        promised = self._promises(ready)
        usage = with_commitments(self.snapshot.team_usage, self.snapshot.running, self.now)
        for claim in CLAIMS_IN_ORDER:
            queue = ClaimQueue(claim, ready, usage, promised)
            for job in queue:
                self.tally.open_promises.pop(job.job_id, None)
                placed = self._consider(job)
                if placed:
                    queue.charge(job.team_id, job.resources.cards * COMMITTED_SECONDS)
        return Decision(
            self.now,
            tuple(self.placements),
            tuple(self.reclaims),
            tuple(sorted(self.waits, key=lambda wait: wait.job_id)),
            tuple(sorted(self.refusals, key=lambda refusal: refusal.job_id)),
            tuple(self.holds),
        )

    def _notice_bids_below_price(self) -> None:
        for release in self.tally.releases:
            a = release.allocation
            if a.bid is None or release.free_at is not None or a.tariff not in _FOLLOWING_THE_PRICE:
                continue
            rate = max(self._rates(release), default=a.bid)
            if rate > a.bid:
                text = f"the price is {yuan(rate)} per card-hour, the bid {yuan(a.bid)}"
                self._reclaim(release, None, text)

    def _rates(self, release: Release) -> list[Fraction]:
        """What the allocation pays per card-hour now, on each of its nodes."""
        a, layout = release.allocation, self.tally.layout
        rates: list[Fraction] = []
        for share in release.shares:
            held = layout.node_share(share).card_ids
            node = layout.nodes[share.row]
            models = {card.model for card in node.cards if card.id in held}
            found = (self.snapshot.prices.get((node.pool(model), a.tariff)) for model in models)
            rates.extend(price * a.member_factor for price in found if price is not None)
        return rates

    def _may_start(self, job: WaitingJob) -> bool:
        if isinstance(job.blocked, Never):
            self.refusals.append(Refusal(job.job_id, job.blocked.reason, job.blocked.message))
        elif isinstance(job.blocked, Blocked):
            why = job.blocked
            if job.at_once and why.reason in _ENDS_AT_ONCE:
                self.refusals.append(Refusal(job.job_id, _ENDS_AT_ONCE[why.reason], why.message))
            else:
                self.waits.append(Wait(job.job_id, why.reason, why.message, why.until))
        else:
            never = self.tally.layout.shape(job.resources).never
            if never is None:
                return True
            self.refusals.append(Refusal(job.job_id, JobEndReason.IMPOSSIBLE, never.message))
        return False

    def _promises(self, ready: list[WaitingJob]) -> dict[JobId, datetime]:
        """Jobs in whose name cards were reclaimed, and since when."""
        claims = {job.job_id: job.claim for job in ready}
        promised = {job.job_id: job.promised_at for job in ready if job.promised_at is not None}
        for release in self.tally.releases:
            if release.promised_to in claims and release.free_at is not None:
                promised.setdefault(release.promised_to, self.now)
        self.tally.open_promises.update({job_id: claims[job_id] for job_id in promised})
        return promised

    def _consider(self, job: WaitingJob) -> bool:
        """Answer one job; whether it was placed."""
        shape = self.tally.layout.shape(job.resources)
        if job.array_group is not None:
            full = array_block(self.active_tasks.get(job.array_group, 0), job.array_running_max)
            if full is not None:
                return self._wait(job, full.reason, full.message)
        pools = tuple(pool for pool in shape.pools if self._affordable(job, pool.pool))
        if shape.pools and not pools:
            text = self._too_dear(job, shape)
            return self._refuse(job, text) if job.at_once else self._wait(job, _PRICE, text)
        choice = self._fits_now(job, shape, pools)
        if choice is not None:
            return self._place(job, choice)
        if not self._promise(job, shape, pools):
            if job.at_once:
                lack = self._behind(job, shape, pools) or self._shortage(shape, pools)
                return self._refuse(job, lack.message)
            self._block(job, shape, pools)
        return False

    def _fits_now(self, job: WaitingJob, shape: Shape, pools: tuple[PoolRows, ...]) -> Choice | None:
        if id(shape) in self._too_big_now:  # what is free only shrinks during a decision
            return None
        bound = self.tally.bound(job, self.tally.now)
        room = self.tally.room_now(bound)
        choice = choose(self.tally.layout, shape, room, self._prices(job), pools)
        if choice is None and bound is None and len(pools) == len(shape.pools):
            self._too_big_now.add(id(shape))
        return choice

    def _place(self, job: WaitingJob, choice: Choice) -> bool:
        self.tally.take_now(job, choice)
        self._count(job)
        shares = tuple(self.tally.layout.node_share(share) for share in choice.shares)
        pool = choice.pool.pool
        self.placements.append(
            Placement(job.job_id, job.number, job.team_id, job.tariff, pool, shares, choice.link_quality_min)
        )
        return True

    def _promise(self, job: WaitingJob, shape: Shape, pools: tuple[PoolRows, ...]) -> bool:
        """Promise cards that are coming free, reclaiming some if need be; false: neither is enough."""
        key = (id(shape), job.claim)
        if key in self._too_big_ever:
            return False
        tally = self.tally
        bound = tally.bound(job, tally.reclaimed_at)
        room = tally.room_soon(job)
        choice = self._choose_in(job, shape, pools, within(room, bound) if bound else room)
        if choice is not None:
            return self._await(job, choice)
        victims = self.search.victims(job, shape, pools, room, bound)
        if victims is None:
            if bound is None and len(pools) == len(shape.pools) and not tally.open_promises:
                self._too_big_ever.add(key)
            return False
        after = room.copy()
        for victim in victims:
            for share in victim.shares:
                after.give(tally.returned(share))
        choice = self._choose_in(job, shape, pools, within(after, bound) if bound else after)
        if choice is None:  # nobody is reclaimed unless the claimant really fits afterwards
            return False
        for victim in victims:
            self._reclaim(
                victim, job, f"reclaimed for job {job.number}, a greater claim ({job.tariff.value})"
            )
        self.search.noticed(victims)
        return self._await(job, choice)

    def _choose_in(
        self, job: WaitingJob, shape: Shape, pools: tuple[PoolRows, ...], room: Room
    ) -> Choice | None:
        return choose(self.tally.layout, shape, room, self._prices(job), pools)

    def _await(self, job: WaitingJob, choice: Choice) -> bool:
        """Record that the job waits for cards that are coming free for it."""
        awaited = self.tally.awaited(job, choice)
        start_at = max((r.free_at for r in awaited if r.free_at is not None), default=self.tally.reclaimed_at)
        self.tally.promise(job, choice, start_at)
        self._count(job)
        start = instant_of(start_at)
        numbers = ", ".join(sorted({release.allocation.number for release in awaited}))
        text = f"its cards are coming free from job {numbers}, by {clock(start)} at the latest"
        self.waits.append(Wait(job.job_id, WaitReason.NO_CARDS, text, start))
        self._hold(job, choice, start, shadow=False)
        return True

    def _block(self, job: WaitingJob, shape: Shape, pools: tuple[PoolRows, ...]) -> None:
        """Nothing to be had: a shadow start for the first of its claim in the pool, else just waiting."""
        tally = self.tally
        kept = {keep.pool for keep in tally.keeps if keep.claim is job.claim}
        without = tuple(pool for pool in pools if pool.pool not in kept)
        shadow = None
        if without and (id(shape), job.claim) not in self._never_fits:
            shadow = shadow_start(tally, job, shape, without, self._prices(job))
            if shadow is None and len(without) == len(shape.pools):
                self._never_fits.add((id(shape), job.claim))
        behind = self._behind(job, shape, pools)
        lack = behind or self._shortage(shape, pools)
        if shadow is None:
            self._wait(job, lack.reason, lack.message)
            return
        tally.keep(job, shadow.choice, shadow.start_at, shadow.room)
        start = instant_of(shadow.start_at)
        self._hold(job, shadow.choice, start, shadow=True)
        text = f"{lack.message}; it is next, and fits at {clock(start)} at the latest"
        self.waits.append(Wait(job.job_id, WaitReason.SHADOW_START, text, start))

    def _behind(self, job: WaitingJob, shape: Shape, pools: tuple[PoolRows, ...]) -> Shortage | None:
        """Whether only a keep of somebody else stands in the way."""
        if not self.tally.keeps or id(shape) in self._too_big_now:
            return None
        bound = self.tally.bound(job, self.tally.now)
        if bound is None or self._choose_in(job, shape, pools, self.tally.room) is None:
            return None
        mine = {pool.pool for pool in pools}
        keep = min((k for k in self.tally.keeps if k.pool in mine), key=lambda k: k.start_at, default=None)
        if keep is None:
            return Shortage(WaitReason.BEHIND_OTHERS, "what is free is kept for jobs before it")
        text = (
            f"what is free is kept for job {keep.number}, to start by {clock(instant_of(keep.start_at))}; "
            "a time limit that ends before would fit"
        )
        return Shortage(WaitReason.BEHIND_OTHERS, text)

    def _shortage(self, shape: Shape, pools: tuple[PoolRows, ...]) -> Shortage:
        known = self._shortages.get(id(shape))
        if known is not None and known[0] == self.tally.version and len(pools) == len(shape.pools):
            return known[1]
        lack = shortage(self.tally.layout, shape, pools, self.tally.room)
        if len(pools) == len(shape.pools):
            self._shortages[id(shape)] = (self.tally.version, lack)
        return lack

    def _reclaim(self, release: Release, job: WaitingJob | None, message: str) -> None:
        self.tally.notice(release, job.job_id if job else None)
        a = release.allocation
        self.reclaims.append(
            Reclaim(
                allocation_id=a.id,
                job_id=a.job_id,
                reason=NoticeReason.RECLAIM,
                for_job_id=job.job_id if job else None,
                cards=a.cards,
                lost_work_seconds=lost_seconds(a, self.now),
                message=message,
            )
        )

    def _hold(self, job: WaitingJob, choice: Choice, start: datetime, *, shadow: bool) -> None:
        nodes = tuple(self.tally.layout.nodes[share.row].id for share in choice.shares)
        self.holds.append(Hold(job.job_id, job.claim, choice.pool.pool, nodes, start, shadow))

    def _count(self, job: WaitingJob) -> None:
        if job.array_group is not None:
            self.active_tasks[job.array_group] = self.active_tasks.get(job.array_group, 0) + 1

    def _wait(self, job: WaitingJob, reason: WaitReason, message: str) -> bool:
        self.waits.append(Wait(job.job_id, reason, message))
        return False

    def _refuse(self, job: WaitingJob, message: str) -> bool:
        self.refusals.append(Refusal(job.job_id, JobEndReason.NO_CARDS, message))
        return False

    def _affordable(self, job: WaitingJob, pool: Pool) -> bool:
        price = self.snapshot.prices.get((pool, job.tariff))
        return price is None or job.bid is None or price * job.member_factor <= job.bid

    def _too_dear(self, job: WaitingJob, shape: Shape) -> str:
        found = (self.snapshot.prices.get((pool.pool, job.tariff)) for pool in shape.pools)
        lowest = min(price * job.member_factor for price in found if price is not None)
        assert job.bid is not None, "without a limit no price is above it"
        return f"the price is {yuan(lowest)} per card-hour now, its limit {yuan(job.bid)}"

    def _prices(self, job: WaitingJob) -> Callable[[Pool], Fraction]:
        prices, tariff = self.snapshot.prices, job.tariff
        return lambda pool: prices.get((pool, tariff), Fraction(0))
