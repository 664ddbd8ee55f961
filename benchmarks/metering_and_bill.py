"""Benchmark 14: metering Philly by card-minutes, shuffled, repeated and late; then one bill over all jobs.

Each minute of each card is one event. Events come in random order, so most are late; some are sent again,
and those cover one to five minutes. The meter charges as it goes, so that late events come after a charge.
The bound is the exact integral, worked out here in fractions from the text of pricing.md, without the
product's rating. Jobs are dealt to shards and metered a shard at a time, to bound the memory.

    python -m benchmarks.metering_and_bill --philly FOLDER [--share 0.1] [--json]
"""

from __future__ import annotations

import argparse
import csv
import gzip
import resource
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Figure, Report, emit
from starverse.domain.money import Money, round_to_fen, total
from starverse.domain.pricing.curve import Coverage, RateCurve
from starverse.domain.pricing.price_book import PriceBooks
from starverse.domain.pricing.rating import Terms
from starverse.domain.pricing.windows import epoch_second, instant_of
from starverse.domain.tariff import Tariff
from starverse.domain.timespan import Timespan
from starverse.testing.pricing import at, edited_book

NUMBER = 14
NAME = "metering and bill"
TRACE_BEGINS = "2017-09-04 00:00"
BILLED_FROM = "2026-03-04 00:00"
"""The trace is moved to where price books are; its times of day stay."""
SECOND_BOOK_FROM = "2026-05-01 12:00"
MINUTE = 60
SHARD_EVENTS = 6_000_000
CHUNK_EVENTS = 65_536

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Kind:
    """One set of terms, and its list prices in both books as the independent integral takes them."""

    tariff: Tariff
    model: str
    fabric: str
    member: str | None
    list_prices: tuple[str, str]


KINDS = tuple(
    Kind(tariff, model, fabric, member, prices)
    for tariff in (Tariff.ON_DEMAND, Tariff.SPOT, Tariff.IDLE)
    for model, fabric, prices in (
        ("rtx3090", "eth", ("1.58", "1.58")),
        ("rtx4090", "eth", ("1.66", "1.733333")),
        ("rtx4090", "ib", ("1.90", "1.90")),
        ("a100-40g", "eth", ("7.90", "7.10")),
    )
    for member in (None, "edu")
)


@dataclass(frozen=True, slots=True)
class Jobs:
    """The trace as arrays of one entry a job: epoch seconds, cards, index of its kind in ``KINDS``."""

    starts: Integers
    ends: Integers
    cards: Integers
    kinds: Integers

    def chosen(self, which: NDArray[np.bool_] | Integers) -> Jobs:
        return Jobs(self.starts[which], self.ends[which], self.cards[which], self.kinds[which])

    @property
    def card_minutes(self) -> int:
        return int((-(-(self.ends - self.starts) // MINUTE) * self.cards).sum())

    def __len__(self) -> int:
        return len(self.starts)


@dataclass(frozen=True, slots=True)
class Settings:
    """``share`` of the jobs is metered (all are billed); ``repeated`` of the events are sent once more."""

    philly: Path
    share: float = 0.1
    repeated: float = 0.05
    rounds: int = 5
    seed: int = 14


@dataclass(frozen=True, slots=True)
class Metered:
    """``seconds`` is the meter's own time, without making the events; ``error`` in micro-yuan.

    ``cpu_seconds`` is what it took of one core: on a machine that others load it says more.
    """

    events: int
    repeats: int
    seconds: float
    cpu_seconds: float
    error: int
    charges: int


def measure(settings: Settings) -> Report:
    """Read the trace, meter a share of it, bill all of it."""
    jobs = read_jobs(settings.philly / "jobs.csv.gz", settings.seed)
    numbers = np.random.default_rng(settings.seed)
    curves = make_curves(jobs)
    sample = jobs.chosen(numbers.random(len(jobs)) < settings.share)
    metered = [meter_shard(shard, curves, settings, numbers) for shard in deal(sample, numbers)]
    exact = [exact_amount(jobs, job) for job in range(len(jobs))]
    bills = [timed_bill(jobs, curves) for _ in range(settings.rounds)]
    bill_error = max(
        abs(mine.micro - truth.micro)
        for amounts, _, _ in bills
        for mine, truth in zip(amounts, exact, strict=True)
    )
    events = sum(part.events for part in metered)
    seconds = sum(part.seconds for part in metered)
    rating_note = "the rating of all jobs and one statement; the database is not in it"
    figures = [
        Figure("metering error", sum(part.error for part in metered), "micro-yuan", at_most=0),
        Figure("events metered", events / seconds, "events/s", at_least=100_000),
        Figure("bill error", bill_error, "micro-yuan", at_most=0),
        Figure(
            f"bill over {len(jobs)} jobs",
            statistics.median(found for _, _, found in bills),
            "s",
            at_most=1,
            note=rating_note,
        ),
    ]
    conditions = {
        "data": f"{len(jobs)} jobs of Philly, {jobs.card_minutes} card-minutes",
        "run": f"{len(sample)} jobs, {sample.card_minutes} card-minutes, {events} events "
        f"({sum(part.repeats for part in metered)} sent again) in {len(metered)} shards",
        "share": settings.share,
        "seed": settings.seed,
        "events_per_cpu_second": round(events / sum(part.cpu_seconds for part in metered)),
        "order": "uniformly shuffled within a shard",
        "terms": f"{len(KINDS)} kinds, two price-book versions",
        "charged": f"{sum(part.charges for part in metered)} times, each the growth of a running total",
        "bill": f"{bills[0][1].decimal()} CNY, rounded to the fen once",
        "rounds_of_the_bill": settings.rounds,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    return Report(NUMBER, NAME, figures, conditions)


def read_jobs(path: Path, seed: int) -> Jobs:
    """Every job of the trace that ran, moved to 2026, with terms drawn by the seed."""
    moved = at(BILLED_FROM) - at(TRACE_BEGINS)
    starts, seconds, cards = [], [], []
    with gzip.open(path, "rt", newline="") as file:
        for row in csv.DictReader(file):
            length = int(Fraction(row["duration"]))
            if length > 0:
                starts.append(epoch_second(at(row["timestamp"]) + moved))
                seconds.append(length)
                cards.append(int(row["num_gpus"]))
    begun = np.array(starts, np.int64)
    kinds = np.random.default_rng(seed).integers(0, len(KINDS), len(starts))
    return Jobs(begun, begun + np.array(seconds, np.int64), np.array(cards, np.int64), kinds)


def make_books() -> PriceBooks:
    """The shipped book, and a version that comes into effect in the middle of the trace."""
    second = edited_book(
        ("effective_from: 2026-03-01T00:00:00+08:00", f"effective_from: {at(SECOND_BOOK_FROM).isoformat()}"),
        ('rtx4090: "1.66"', 'rtx4090: "1.733333"'),
        ('a100-40g: "7.90"', 'a100-40g: "7.10"'),
    )
    return PriceBooks([edited_book(), second])


def make_curves(jobs: Jobs) -> list[RateCurve]:
    """One curve a kind, over the whole trace."""
    books = make_books()
    horizon = Timespan(instant_of(int(jobs.starts.min())), instant_of(int(jobs.ends.max())))
    return [
        RateCurve(Terms(kind.tariff, kind.model, kind.fabric, member=kind.member), horizon, books)
        for kind in KINDS
    ]


def deal(jobs: Jobs, numbers: np.random.Generator) -> Iterator[Jobs]:
    """The jobs in shards of about ``SHARD_EVENTS`` events each, drawn by chance."""
    count = -(-jobs.card_minutes // SHARD_EVENTS)
    shards = numbers.integers(0, count, len(jobs)) if count else np.zeros(0, np.int64)
    for shard in range(count):
        yield jobs.chosen(shards == shard)


def meter_shard(
    jobs: Jobs, curves: Sequence[RateCurve], settings: Settings, numbers: np.random.Generator
) -> Metered:
    """Meter every card-minute of a shard in random order, charging after each chunk of events."""
    lane_job = np.repeat(np.arange(len(jobs)), jobs.cards).tolist()
    lane_curve = [curves[kind] for kind in np.repeat(jobs.kinds, jobs.cards).tolist()]
    coverage = [Coverage.empty() for _ in lane_job]
    accrued, charged = [0] * len(jobs), [0] * len(jobs)
    denominators = [curves[kind].denominator for kind in jobs.kinds.tolist()]
    events = repeats = charges = 0
    seconds = cpu_seconds = 0.0
    for lanes, starts, ends, again in shuffled_events(jobs, settings.repeated, numbers):
        begun, cpu_begun = time.perf_counter(), time.process_time()
        touched = set()
        for lane, start, end in zip(lanes, starts, ends, strict=True):
            for fresh_start, fresh_end in coverage[lane].add(start, end):
                job = lane_job[lane]
                accrued[job] += lane_curve[lane].numerator(fresh_start, fresh_end)
                touched.add(job)
        for job in touched:
            growth = accrued[job] // denominators[job] - charged[job]
            charged[job] += growth
            charges += growth > 0
        seconds += time.perf_counter() - begun
        cpu_seconds += time.process_time() - cpu_begun
        events += len(lanes)
        repeats += again
    error = sum(abs(charged[job] - exact_amount(jobs, job).micro) for job in range(len(jobs)))
    return Metered(events, repeats, seconds, cpu_seconds, error, charges)


def shuffled_events(
    jobs: Jobs, repeated: float, numbers: np.random.Generator
) -> Iterator[tuple[list[int], list[int], list[int], int]]:
    """Chunks of events as ``(lane, start, end)`` lists, and how many repeats; a lane is a card."""
    lane_starts, lane_ends = np.repeat(jobs.starts, jobs.cards), np.repeat(jobs.ends, jobs.cards)
    firsts = np.concatenate([[0], np.cumsum(-(-(lane_ends - lane_starts) // MINUTE))])
    count = int(firsts[-1])
    again = numbers.integers(0, count, int(count * repeated)) if count else np.zeros(0, np.int64)
    sent = np.concatenate([np.arange(count), again + count])  # from `count` on: sent once more
    numbers.shuffle(sent)
    for first in range(0, len(sent), CHUNK_EVENTS):
        found = sent[first : first + CHUNK_EVENTS]
        minutes = np.where(found < count, 1, numbers.integers(1, 6, len(found)))
        which = found % count
        lanes = np.searchsorted(firsts, which, side="right") - 1
        starts = lane_starts[lanes] + (which - firsts[lanes]) * MINUTE
        ends = np.minimum(starts + minutes * MINUTE, lane_ends[lanes])
        yield lanes.tolist(), starts.tolist(), ends.tolist(), int((found >= count).sum())


def timed_bill(jobs: Jobs, curves: Sequence[RateCurve]) -> tuple[list[Money], Money, float]:
    """Rate every job and round one statement: amounts, what is to pay, and the seconds it took."""
    begun = time.perf_counter()
    amounts = [0] * len(jobs)
    for kind, curve in enumerate(curves):
        own = np.flatnonzero(jobs.kinds == kind)
        costs = curve.numerators(jobs.starts[own], jobs.ends[own])
        rows = zip(own.tolist(), costs.tolist(), jobs.cards[own].tolist(), strict=True)
        for job, cost, cards in rows:
            amounts[job] = cost * cards // curve.denominator
    lines = [Money(amount) for amount in amounts]
    return lines, round_to_fen(total(lines)), time.perf_counter() - begun


def exact_amount(jobs: Jobs, job: int) -> Money:
    """What a job costs by pricing.md, in fractions, from the local second of the day; nothing of rating."""
    kind = KINDS[int(jobs.kinds[job])]
    start, end, change = int(jobs.starts[job]), int(jobs.ends[job]), epoch_second(at(SECOND_BOOK_FROM))
    exact = Fraction(0)
    for price, first, last in (
        (kind.list_prices[0], start, min(end, change)),
        (kind.list_prices[1], max(start, change), end),
    ):
        if first < last:
            night = _night_seconds(last) - _night_seconds(first)
            weighted = last - first - (Fraction(night, 2) if kind.tariff is Tariff.ON_DEMAND else 0)
            exact += Fraction(price) * 1_000_000 * weighted / 3600
    factor = {Tariff.ON_DEMAND: Fraction(1), Tariff.SPOT: Fraction(3, 10), Tariff.IDLE: Fraction(27, 100)}
    exact *= factor[kind.tariff] * (Fraction(9, 10) if kind.member else 1) * int(jobs.cards[job])
    return Money(exact.numerator // exact.denominator)


def _night_seconds(until: int) -> int:
    """Seconds between 23:00 and 08:00 at +08:00 since a midnight there; that zone has no summer time."""
    local = until + 8 * 3600
    days, second = divmod(local, 86_400)
    return days * 9 * 3600 + min(second, 8 * 3600) + max(0, second - 23 * 3600)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 1 when a micro-yuan is wrong, whatever the speeds are."""
    parser = argparse.ArgumentParser(prog="metering_and_bill", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--philly", type=Path, required=True, help="the folder with jobs.csv.gz")
    parser.add_argument("--share", type=float, default=0.1, help="of the jobs to meter; 1 takes minutes")
    parser.add_argument("--repeated", type=float, default=0.05, help="share of events sent again")
    parser.add_argument("--rounds", type=int, default=5, help="how often to time the bill")
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    report = measure(Settings(given.philly, given.share, given.repeated, given.rounds, given.seed))
    emit(report, as_json=given.json)
    return 1 if any(figure.measured for figure in report.figures if figure.at_most == 0) else 0


if __name__ == "__main__":
    sys.exit(main())
