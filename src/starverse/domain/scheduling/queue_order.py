"""Who is next: reservation and package > on-demand > spot (by bid, then time) > idle.

Within a claim class: the team with the fewest decayed card-seconds, then submit time, then id. What a
decision has already placed counts for its team, so the order is asked for job by job. A job in whose
name cards were reclaimed goes first in its class: they were taken for it and it must not lose them to
a neighbour in the queue.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from fractions import Fraction

from starverse.domain.ids import JobId, TeamId
from starverse.domain.scheduling.snapshot import Claim, WaitingJob

CLAIMS_IN_ORDER = tuple(sorted(Claim, reverse=True))


class ClaimQueue:
    """The waiting jobs of one claim class, handed out one after the other. O(log teams) each."""

    def __init__(
        self,
        claim: Claim,
        jobs: Iterable[WaitingJob],
        usage: Mapping[TeamId, float],
        promised: Mapping[JobId, datetime],
    ) -> None:
        mine = [job for job in jobs if job.claim is claim]
        first = [job for job in mine if job.job_id in promised]
        rest = [job for job in mine if job.job_id not in promised]
        self._usage = dict(usage)
        self._first = deque(sorted(first, key=lambda job: (promised[job.job_id], _by_time(job))))
        self._spot: deque[WaitingJob] = deque()
        self._teams: dict[TeamId, deque[WaitingJob]] = {}
        if claim is Claim.SPOT:
            self._spot.extend(sorted(rest, key=_by_bid))
        else:
            for job in sorted(rest, key=_by_time):
                self._teams.setdefault(job.team_id, deque()).append(job)
        self._heap = [self._entry(team) for team in self._teams]
        heapq.heapify(self._heap)

    def __iter__(self) -> Iterator[WaitingJob]:
        """The next job each time; :meth:`charge` in between changes who is next."""
        while self._first:
            yield self._first.popleft()
        while self._spot:
            yield self._spot.popleft()
        while self._heap:
            entry = heapq.heappop(self._heap)
            team = entry[3]
            fresh = self._entry(team)
            if fresh != entry:  # charged since it was pushed
                heapq.heappush(self._heap, fresh)
                continue
            job = self._teams[team].popleft()
            if self._teams[team]:
                heapq.heappush(self._heap, self._entry(team))
            yield job

    def charge(self, team: TeamId, card_seconds: float) -> None:
        """Count what was just placed."""
        self._usage[team] = self._usage.get(team, 0.0) + card_seconds

    def _entry(self, team: TeamId) -> tuple[float, datetime, JobId, TeamId]:
        head = self._teams[team][0]
        return (self._usage.get(team, 0.0), head.submitted_at, head.job_id, team)


def short_first(waited_seconds: float, bound_seconds: float, card_seconds: float) -> tuple[bool, float]:
    """Sort key of the order without oracle run times: the smallest expected work first, with a bound.

    Who has waited for the bound goes before all others, the longest wait first; else the fewest expected
    card-seconds (:class:`~starverse.domain.scheduling.run_times.RunTimes`) go first.
    """
    overdue = waited_seconds >= bound_seconds
    return (not overdue, -waited_seconds if overdue else card_seconds)


def _by_time(job: WaitingJob) -> tuple[datetime, JobId]:
    return (job.submitted_at, job.job_id)


def _by_bid(job: WaitingJob) -> tuple[Fraction, datetime, JobId]:
    return (-job.bid_rank, job.submitted_at, job.job_id)
