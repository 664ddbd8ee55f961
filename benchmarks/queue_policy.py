"""Benchmark 8: the queue of Philly without oracle run times, beside FIFO, EASY and two clairvoyant orders.

One pool of 440, 480 and 560 cards, all arrivals of the trace; a job takes that many cards wherever they are.
The product's order predicts run times from ended runs alone and lets go first whoever has waited ``--bound``
times the longest wait that first come first served would have brought about by then. On the way it is asked
when a job will start, and the answers are held against what came.

    python -m benchmarks.queue_policy --philly FOLDER [--cards 440 480 560] [--bound 1.4] [--quick] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.queue_orders import easy, fifo, sjf, srpt
from benchmarks.philly import Arrival, read_arrivals
from benchmarks.queue_replay import Replayed, ShortFirst
from benchmarks.report import Figure, Report, emit
from benchmarks.waiting_thousands import Answers, timed_answers

NUMBER = 8
NAME = "queue policy without oracle run times"
QUICK_ARRIVALS = 3000
HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Settings:
    """``cards`` of each run; ``quick`` takes a few thousand arrivals of October and a small queue."""

    philly: Path
    cards: tuple[int, ...] = (440, 480, 560)
    bound: float = 1.4
    quick: bool = False


def measure(settings: Settings) -> Report:
    """All runs, one after another."""
    count = QUICK_ARRIVALS if settings.quick else None
    since = "2017-10-05" if settings.quick else ""
    found = read_arrivals(settings.philly / "jobs.csv.gz", count, since=since)
    jobs = [job for job in found if job.run_seconds > 0]
    figures: list[Figure] = []
    took = {}
    for cards in settings.cards:
        begun = time.process_time()
        figures += figures_of([job for job in jobs if job.cards <= cards], cards, settings.bound)
        took[cards] = round(time.process_time() - begun)
    waiting = 1000 if settings.quick else 10_000
    figures += figures_of_answers(timed_answers(waiting=waiting, nodes=waiting // 5), waiting)
    conditions = {
        "data": f"{len(jobs)} jobs of Philly",
        "bound": f"{settings.bound} times the longest wait of the virtual FIFO so far",
        "predicted_from": "virtual cluster, cards, and bursts of submission in the place of script names",
        "clairvoyant": "EASY, SJF and SRPT are given the true run times; SRPT preempts at no cost",
        "cpu_seconds": ", ".join(f"{cards}: {seconds}" for cards, seconds in took.items()),
        "seed": "none: nothing is drawn",
    }
    return Report(NUMBER, NAME, figures, conditions)


def figures_of(jobs: Sequence[Arrival], cards: int, bound: float) -> list[Figure]:
    """Mean and longest wait on so many cards, ours over FIFO's, and each peer for comparison."""
    first = fifo(jobs, cards)
    ours = ShortFirst(jobs, cards, bound).run()
    fifo_mean, fifo_longest = statistics.fmean(first) / HOUR, max(first) / HOUR
    mean, longest = statistics.fmean(ours.waits) / HOUR, max(ours.waits) / HOUR
    figures = [
        Figure(f"mean wait, {cards} cards", mean, "h", "FIFO", fifo_mean, at_most=0.1),
        Figure(f"longest wait, {cards} cards", longest, "h", "FIFO", fifo_longest, at_most=1.0),
    ]
    peers = (("EASY, clairvoyant", easy), ("SJF, clairvoyant", sjf), ("SRPT, clairvoyant", srpt))
    for name, order in peers:
        waits = order(jobs, cards)
        figures.append(Figure(f"mean wait, {cards} cards", mean, "h", name, statistics.fmean(waits) / HOUR))
        figures.append(Figure(f"longest wait, {cards} cards", longest, "h", name, max(waits) / HOUR))
    return figures + figures_of_starts(jobs, ours, cards)


def figures_of_starts(jobs: Sequence[Arrival], ours: Replayed, cards: int) -> list[Figure]:
    """How far the predicted starts were off, and how often the start lay within the band."""
    if not ours.asked:
        return []
    came = [
        max(0.0, jobs[one.number].at_seconds + ours.waits[one.number] - one.at_seconds) for one in ours.asked
    ]
    off = [abs(one.band[1] - real) / HOUR for one, real in zip(ours.asked, came, strict=True)]
    inside = [one.band[0] <= real <= one.band[2] + 1 for one, real in zip(ours.asked, came, strict=True)]
    typical = statistics.median(came) / HOUR
    return [
        Figure(
            f"start off by, median, {cards} cards",
            statistics.median(off),
            "h",
            "median of what was still to wait",
            typical,
        ),
        Figure(f"starts within the band, {cards} cards", 100 * statistics.fmean(inside), "%"),
    ]


def figures_of_answers(answers: Answers, waiting: int) -> list[Figure]:
    """How long one answer takes in the product, on an outlook kept for the round."""
    return [
        Figure(f"when will I start, {waiting} wait", 1000 * answers.waiting, "ms", at_most=50),
        Figure(f"the same, not submitted, {waiting} wait", 1000 * answers.not_submitted, "ms", at_most=50),
        Figure(f"outlook of a round, {waiting} wait", 1000 * answers.outlook, "ms"),
        Figure(f"whole decision, {waiting} wait, {waiting // 5} nodes", answers.decision, "s"),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="queue_policy", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--philly", type=Path, required=True, help="the folder with jobs.csv.gz")
    parser.add_argument("--cards", type=int, nargs="+", default=[440, 480, 560])
    parser.add_argument("--bound", type=float, default=1.4, help="times the longest wait of a virtual FIFO")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    report = measure(Settings(given.philly, tuple(given.cards), given.bound, given.quick))
    emit(report, as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
