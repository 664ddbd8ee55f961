"""Arrivals replayed under the product's short-first order: predicted run times, EASY, a bound on waiting.

No run time is known before its job has ended. What a script name tells on the platform is here told by
bursts: jobs of one virtual cluster and size that follow each other within a quarter of an hour.
The bound is a multiple of the longest wait that first come first served would have brought about by now,
kept by a virtual FIFO that runs beside, on true run times of what has ended and predictions for the rest.
"""

from __future__ import annotations

import heapq
import math
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.philly import Arrival
from starverse.domain.scheduling.queue_order import short_first
from starverse.domain.scheduling.run_times import RunFeatures, RunTime, RunTimes
from starverse.domain.scheduling.snapshot import Pool
from starverse.domain.scheduling.when_will_i_start import SHARES, Ahead, CardTimes, play_forward

BURST_GAP_SECONDS = 900.0
LOOK_SECONDS = 3 * 3600.0
"""Between two looks at the virtual FIFO, each with one question when the newest job will start."""
POOL = Pool("philly", "card", "eth")


@dataclass(slots=True)
class Asked:
    """One answer to "when will I start?", in seconds of the trace, and how long it took."""

    number: int
    at_seconds: float
    band: tuple[float, float, float]
    took_seconds: float


@dataclass(slots=True)
class Replayed:
    """``waits`` in seconds by arrival; ``bound_seconds`` as it stood in the end."""

    waits: list[float]
    asked: list[Asked]
    bound_seconds: float


def features_of(jobs: Sequence[Arrival]) -> list[RunFeatures]:
    """The virtual cluster as team, the cards, and the burst as script."""
    last: dict[tuple[str, int], tuple[float, int]] = {}
    found = []
    for number, job in enumerate(jobs):
        key = (job.group, job.cards)
        at, burst = last.get(key, (-math.inf, 0))
        if job.at_seconds - at > BURST_GAP_SECONDS:
            burst = number
        last[key] = (job.at_seconds, burst)
        found.append(RunFeatures(*key, f"burst {burst}"))
    return found


@dataclass(slots=True)
class VirtualFifo:
    """First come first served beside the real queue; ``longest`` is its longest wait so far."""

    cards: int
    longest: float = 0.0
    queue: deque[int] = field(default_factory=deque)
    running: dict[int, float] = field(default_factory=dict)
    looked_at: float = 0.0

    def advance(self, replay: ShortFirst, now: float) -> None:
        """Play on until ``now``; what is known of run times by now moves the ends of what runs."""
        jobs = replay.jobs
        ends = [(max(at + replay.known(n, now), self.looked_at), n) for n, at in self.running.items()]
        heapq.heapify(ends)
        free = self.cards - sum(jobs[number].cards for number in self.running)
        clock = self.looked_at
        while ends or self.queue:
            head = self.queue[0] if self.queue else None
            if head is not None and jobs[head].cards <= free:
                clock = max(clock, jobs[head].at_seconds)
                self.queue.popleft()
                self.longest = max(self.longest, clock - jobs[head].at_seconds)
                self.running[head] = clock
                free -= jobs[head].cards
                heapq.heappush(ends, (clock + replay.known(head, now), head))
                continue
            if not ends or ends[0][0] > now:
                break
            clock, number = max(clock, ends[0][0]), heapq.heappop(ends)[1]
            free += jobs[number].cards
            del self.running[number]
        if self.queue:
            self.longest = max(self.longest, now - jobs[self.queue[0]].at_seconds)
        self.looked_at = now


class ShortFirst:
    """One replay on ``cards`` cards; ``bound`` times the longest virtual wait is when a job goes first."""

    def __init__(self, jobs: Sequence[Arrival], cards: int, bound: float = math.inf) -> None:
        self.jobs, self.cards, self.bound = jobs, cards, bound
        self.features = features_of(jobs)
        self.times = RunTimes()
        self.fifo = VirtualFifo(cards)
        self.begun: dict[int, float] = {}
        self.ended: set[int] = set()
        self.bursts: dict[str, deque[int]] = {}
        self.running: list[tuple[float, int]] = []
        self.free, self.overdue_until = cards, -math.inf
        self._predicted: dict[str, RunTime] = {}
        self.asked: list[Asked] = []

    def run(self) -> Replayed:
        """Play all arrivals to the end."""
        jobs, come, look_at = self.jobs, 0, 0.0
        while come < len(jobs) or self.running:
            now = self.running[0][0] if self.running else math.inf
            now = min(now, jobs[come].at_seconds) if come < len(jobs) else now
            while self.running and self.running[0][0] <= now:
                self._end(heapq.heappop(self.running)[1])
            while come < len(jobs) and jobs[come].at_seconds <= now:
                self.bursts.setdefault(self.features[come].script, deque()).append(come)
                self.fifo.queue.append(come)
                come += 1
            if now >= look_at:
                look_at = now + LOOK_SECONDS
                self._look(now, come - 1)
            if self.free:
                self._start_what_may(now)
        waits = [self.begun[number] - job.at_seconds for number, job in enumerate(jobs)]
        return Replayed(waits, self.asked, self.bound * self.fifo.longest)

    def known(self, number: int, now: float) -> float:
        """The run time as far as it is known: true once it ended, else expected beyond what it ran."""
        if number in self.ended:
            return self.jobs[number].run_seconds
        ran = now - self.begun[number] if number in self.begun else 0.0
        return self._predict(number).quantile(0.7, ran)

    def _end(self, number: int) -> None:
        job = self.jobs[number]
        self.free += job.cards
        self.ended.add(number)
        self.times.observe(self.features[number], job.run_seconds)
        self._predicted.pop(self.features[number].script, None)

    def _look(self, now: float, newest: int) -> None:
        self._predicted.clear()
        if self.bound < math.inf:
            self.fifo.advance(self, now)
            self.overdue_until = now - self.bound * max(self.fifo.longest, LOOK_SECONDS)
        waiting = sorted(self._key(number, now) for queue in self.bursts.values() for number in queue)
        if not waiting:
            return
        begun = time.perf_counter()
        order = [number for *_, number in waiting]
        asked = order[newest % len(order)]
        order = order[: newest % len(order) + 1]
        band = sorted(self._forward(order, share, now) for share in SHARES)
        took = time.perf_counter() - begun
        self.asked.append(Asked(asked, now, (band[0], band[1], band[2]), took))

    def _forward(self, order: Sequence[int], share: float, now: float) -> float:
        """Seconds from now until the last of ``order`` starts."""
        releases = []
        for _, number in self.running:
            ran = now - self.begun[number]
            left = self._predict(number).quantile(share, ran) - ran
            releases.append((left, self.jobs[number].cards))
        ahead = [
            Ahead((POOL,), self.jobs[number].cards, self._predict(number).quantile(share)) for number in order
        ]
        start = play_forward({POOL: CardTimes(self.free, releases)}, ahead)[-1]
        assert start is not None, "no job of the trace is larger than the cluster"
        return start

    def _predict(self, number: int) -> RunTime:
        script = self.features[number].script
        if script not in self._predicted:
            self._predicted[script] = self.times.predict(self.features[number])
        return self._predicted[script]

    def _key(self, number: int, now: float) -> tuple[bool, float, int]:
        job = self.jobs[number]
        work = self._predict(number).median_seconds * job.cards
        bound = now - self.overdue_until
        return (*short_first(now - job.at_seconds, bound, work), number)

    def _start_what_may(self, now: float) -> None:
        """In order; the first that does not fit holds a shadow start that those after it do not delay."""
        heads = [self._key(queue[0], now) for queue in self.bursts.values()]
        heapq.heapify(heads)
        shadow, spare = math.inf, -1
        while heads and self.free:
            number = heapq.heappop(heads)[2]
            cards = self.jobs[number].cards
            if spare >= 0 and cards <= self.free:
                if now + self._predict(number).median_seconds > shadow:
                    if cards > spare:
                        continue
                    spare -= cards
            elif cards > self.free:
                if spare < 0:
                    shadow, spare = self._shadow(cards, now)
                continue
            self._start(number, now)
            queue = self.bursts.get(self.features[number].script)
            if queue:
                heapq.heappush(heads, self._key(queue[0], now))

    def _start(self, number: int, now: float) -> None:
        script, job = self.features[number].script, self.jobs[number]
        queue = self.bursts[script]
        queue.popleft()
        if not queue:
            del self.bursts[script]
        self.begun[number] = now
        self.free -= job.cards
        heapq.heappush(self.running, (now + job.run_seconds, number))

    def _shadow(self, wanted: int, now: float) -> tuple[float, int]:
        ends = []
        for _, number in self.running:
            began = self.begun[number]
            ends.append((began + self._predict(number).quantile(0.5, now - began), self.jobs[number].cards))
        free = self.free
        for end, given in sorted(ends):
            free += given
            if free >= wanted:
                return max(end, now), free - wanted
        return math.inf, 0
