"""Queue orders to compare with: first come first served, EASY, and the clairvoyant SJF and SRPT.

Each replays arrivals on ``cards`` cards and returns the seconds that each waits. EASY (Lifka, 1995: the head
of the queue holds a reservation, others may pass if they do not delay it) is given the true run times here.
SJF starts the shortest that fits, SRPT preempts at no cost for whoever has least left: neither can be had
without an oracle, and neither bounds the longest wait.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence

from benchmarks.philly import Arrival


def fifo(jobs: Sequence[Arrival], cards: int) -> list[float]:
    """Strictly in order of arrival: nobody passes the head."""
    free, now = cards, 0.0
    ends: list[tuple[float, int]] = []
    waits = []
    for job in jobs:
        now = max(now, job.at_seconds)
        while ends and (ends[0][0] <= now or free < job.cards):
            end, given = heapq.heappop(ends)
            now, free = max(now, end), free + given
        free -= job.cards
        heapq.heappush(ends, (now + job.run_seconds, job.cards))
        waits.append(now - job.at_seconds)
    return waits


def sjf(jobs: Sequence[Arrival], cards: int) -> list[float]:
    """Clairvoyant: whenever cards are free, the shortest of those that fit starts."""
    waits = [0.0] * len(jobs)
    queues: dict[int, list[tuple[float, int]]] = {}
    ends: list[tuple[float, int]] = []
    free, come = cards, 0
    while come < len(jobs) or ends:
        now = ends[0][0] if ends else jobs[come].at_seconds
        if come < len(jobs):
            now = min(now, jobs[come].at_seconds)
        while ends and ends[0][0] <= now:
            free += heapq.heappop(ends)[1]
        while come < len(jobs) and jobs[come].at_seconds <= now:
            heapq.heappush(queues.setdefault(jobs[come].cards, []), (jobs[come].run_seconds, come))
            come += 1
        while fitting := [(queue[0], size) for size, queue in queues.items() if queue and size <= free]:
            (seconds, number), size = min(fitting)
            heapq.heappop(queues[size])
            waits[number] = now - jobs[number].at_seconds
            free -= size
            heapq.heappush(ends, (now + seconds, size))
    return waits


def srpt(jobs: Sequence[Arrival], cards: int) -> list[float]:
    """Clairvoyant and preempting at no cost: the least work left runs; the wait is all time not running."""
    run = [job.run_seconds for job in jobs]
    size = [job.cards for job in jobs]
    left, waits = list(run), [0.0] * len(jobs)
    order: list[tuple[float, int]] = []
    running: list[int] = []
    now, come = 0.0, 0
    while come < len(jobs) or order:
        arrives = jobs[come].at_seconds if come < len(jobs) else float("inf")
        until = min(arrives, now + min((left[number] for number in running), default=float("inf")))
        for number in running:  # the keys of those that run move, the rest stand still
            order.pop(bisect.bisect_left(order, (left[number], number)))
            left[number] = max(0.0, left[number] - (until - now))
            if left[number] > 1e-6:
                bisect.insort(order, (left[number], number))
            else:
                waits[number] = max(0.0, until - jobs[number].at_seconds - run[number])
        now = until
        while come < len(jobs) and jobs[come].at_seconds <= now:
            bisect.insort(order, (jobs[come].run_seconds, come))
            come += 1
        free, running = cards, []
        for _, number in order:
            if size[number] <= free:
                free -= size[number]
                running.append(number)
                if not free:
                    break
    return waits


def easy(jobs: Sequence[Arrival], cards: int) -> list[float]:
    """EASY backfill in order of arrival with the true run times."""
    waits = [0.0] * len(jobs)
    queues: dict[int, list[int]] = {}
    running: list[tuple[float, int]] = []
    free, come = cards, 0
    while come < len(jobs) or running:
        now = running[0][0] if running else jobs[come].at_seconds
        if come < len(jobs):
            now = min(now, jobs[come].at_seconds)
        while running and running[0][0] <= now:
            free += heapq.heappop(running)[1]
        while come < len(jobs) and jobs[come].at_seconds <= now:
            queues.setdefault(jobs[come].cards, []).append(come)
            come += 1
        head: tuple[int, float, int] | None = None  # number, shadow start, cards to spare then
        while free and queues:
            place = _next_of_easy(jobs, queues, free, now, head)
            if place is None:
                if head is not None:
                    break
                first = min(queue[0] for queue in queues.values())
                head = (first, *_shadow(running, free, jobs[first].cards, now))
                continue
            size, index = place
            number = queues[size].pop(index)
            if not queues[size]:
                del queues[size]
            if head is not None and now + jobs[number].run_seconds > head[1]:
                head = (head[0], head[1], head[2] - size)
            waits[number] = now - jobs[number].at_seconds
            free -= size
            heapq.heappush(running, (now + jobs[number].run_seconds, size))
    return waits


def _next_of_easy(
    jobs: Sequence[Arrival],
    queues: dict[int, list[int]],
    free: int,
    now: float,
    head: tuple[int, float, int] | None,
) -> tuple[int, int] | None:
    """Size and place of who starts next: the first of all, or with a head blocked the first that may pass."""
    if head is None:
        size = min(queues, key=lambda each: queues[each][0])
        return (size, 0) if size <= free else None
    found: list[tuple[int, int, int]] = []
    for size, queue in queues.items():
        if size > free:
            continue
        for index, number in enumerate(queue):
            if number != head[0] and (size <= head[2] or now + jobs[number].run_seconds <= head[1]):
                found.append((number, size, index))
                break
    if not found:
        return None
    _, size, index = min(found)
    return size, index


def _shadow(running: list[tuple[float, int]], free: int, wanted: int, now: float) -> tuple[float, int]:
    """When ``wanted`` cards will be free, and how many are to spare then."""
    for end, given in sorted(running):
        free += given
        if free >= wanted:
            return max(end, now), free - wanted
    raise ValueError(f"{wanted} cards are more than there are")
