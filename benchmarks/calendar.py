"""Benchmark 12: the calendar of bookings at a million of them.

One pool of nodes of eight cards, booked for a year to the second, at 85 % of its time: admission of requests
as Philly's jobs from eight cards on ask for them, and of larger ones, of which many find no cards. Then one
node at a time beside PostgreSQL with an exclusion constraint over the same bookings (where
``STARVERSE_TEST_POSTGRES`` names one). Then Philly's jobs of eight cards or more as bookings made up to 30
days ahead, in the order in which they are made, beside the linear bound in hindsight. Every pool is counted
again, second by second.

    python -m benchmarks.calendar --philly FOLDER [--quick] [--json]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.peers.booking_bound import accepted_at_most
from benchmarks.peers.exclusion_constraint import book_all, books
from benchmarks.philly import read_arrivals
from benchmarks.report import Figure, Report, emit
from starverse.domain.ids import TeamId
from starverse.domain.scheduling.calendar.admission import (
    Accepted,
    BookingRequest,
    BookingRules,
    TeamState,
    admit,
)
from starverse.domain.scheduling.calendar.calendar import Calendar

ZERO = datetime(2026, 3, 1, tzinfo=UTC)
YEAR, DAY = 365 * 86_400, 86_400
PER_NODE = 8
MEAN_SECONDS, BUSY = 14_000, 0.85
CAPACITIES = (440, 480, 560)
RULES = BookingRules(
    open_card_hours=None, ahead_seconds=2 * YEAR, shortest_seconds=1, longest_seconds=60 * DAY, step_seconds=1
)
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Windows:
    """Bookings as arrays, in the order in which they are made; ``nodes`` only where they are of one node."""

    starts: Numbers
    ends: Numbers
    cards: Numbers
    nodes: Numbers

    def __len__(self) -> int:
        return len(self.starts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 1 when cards were booked twice."""
    options = _parse(arguments)
    random = np.random.default_rng(options.seed)
    booked = a_booked_year(random, options.bookings)
    figures: list[Figure] = []
    missing: list[str] = []
    nodes = int(booked.nodes.max()) + 1
    calendar = Calendar()
    calendar.set_capacity("pool", PER_NODE * nodes)
    begun = time.perf_counter()
    for number in random.permutation(len(booked)).tolist():
        calendar.book(str(number), "pool", PER_NODE, _at(booked.starts[number]), _at(booked.ends[number]))
    built = time.perf_counter() - begun
    jobs = philly_windows(options.philly)
    figures += _admissions(random, calendar, jobs, options)
    compared, why = _beside_postgres(random, calendar, booked, options)
    figures += compared
    missing += why
    accepted, why = _beside_bound(jobs, options)
    figures += accepted
    missing += why
    twice = _over(calendar, "pool") + sum(f.measured for f in accepted if f.unit == "s")
    figures = [f for f in figures if f.unit != "s"]
    figures.append(Figure("card booked twice", twice, "s", at_most=0))
    conditions = {
        "seed": options.seed,
        "bookings": len(booked),
        "nodes": nodes,
        "busy": BUSY,
        "built_seconds": round(built, 1),
        "book_mean_us": round(built / len(booked) * 1e6, 1),
        "requests": options.requests,
        "philly": f"{len(jobs)} jobs of 8 cards or more",
        "leads": f"0 to 30 days, uniform, {options.draws} draws; the worst is shown",
        "clock": "CPU of the thread; on the wall in the notes",
    }
    emit(Report(12, "reservation calendar", figures, conditions, missing), as_json=options.json)
    return 1 if twice else 0


def a_booked_year(random: np.random.Generator, count: int) -> Windows:
    """``count`` bookings of one node each over a year: on each node one after another, with gaps."""
    gap = MEAN_SECONDS * (1 / BUSY - 1)
    each = min(int(YEAR / (MEAN_SECONDS + gap)), max(count // 4, 1))
    nodes = -(-count // each)
    lengths = 1 + random.exponential(MEAN_SECONDS, (nodes, each)).astype(np.int64)
    gaps = random.exponential(gap, (nodes, each)).astype(np.int64)
    starts = np.cumsum(lengths + gaps, axis=1) - lengths
    node = np.repeat(np.arange(nodes), each)[:count]
    begin = starts.ravel()[:count]
    return Windows(begin, begin + lengths.ravel()[:count], np.full(len(node), PER_NODE), node)


def philly_windows(folder: Path) -> Windows:
    """Jobs from eight cards on, by arrival; whole seconds, one at least."""
    jobs = [job for job in read_arrivals(folder / "jobs.csv.gz") if job.cards >= PER_NODE]
    starts = np.array([int(job.at_seconds) for job in jobs], np.int64)
    ends = starts + np.array([max(1, int(job.run_seconds)) for job in jobs], np.int64)
    return Windows(
        starts, ends, np.array([job.cards for job in jobs], np.int64), np.zeros(len(jobs), np.int64)
    )


def _admissions(
    random: np.random.Generator, calendar: Calendar, jobs: Windows, options: argparse.Namespace
) -> Iterator[Figure]:
    """p99 of an admission with its booking, which is released again; both kinds of requests."""
    free = int(calendar.capacity("pool") * (1 - BUSY))
    for name, cards in (
        ("admission p99, as Philly asks", random.choice(jobs.cards, options.requests)),
        ("admission p99, larger ones", random.integers(1, 2 * free + 2, options.requests)),
    ):
        wall, cpu, refused = [], [], 0
        starts = random.integers(0, YEAR, options.requests).tolist()
        lengths = (1 + random.exponential(MEAN_SECONDS, options.requests).astype(np.int64)).tolist()
        for number, (start, length, count) in enumerate(zip(starts, lengths, cards.tolist(), strict=True)):
            request = _request(f"r{number}", int(count), start, start + length, 0)
            begun, spent = time.perf_counter(), time.thread_time()
            answer = _admit_and_book(calendar, request)
            cpu.append(time.thread_time() - spent)
            wall.append(time.perf_counter() - begun)
            refused += not answer
            if answer:
                calendar.release(request.booking_id, request.start)
        note = (
            f"CPU, p50 {_milli(cpu, 50):.3f} ms; on the wall p50 {_milli(wall, 50):.3f}, p99 "
            f"{_milli(wall, 99):.3f} ms; {refused} of {len(wall)} refused, each with what would fit"
        )
        yield Figure(name, _milli(cpu, 99), "ms", at_most=1, note=note)
    yield from _searches(random, calendar, options)


def _searches(
    random: np.random.Generator, calendar: Calendar, options: argparse.Namespace
) -> Iterator[Figure]:
    """p99 of the two questions alone: cards free in a window, first window of a year."""
    starts = random.integers(0, YEAR, options.requests).tolist()

    def free(at: int) -> object:
        return calendar.free("pool", _at(at), _at(at + MEAN_SECONDS))

    def first(at: int) -> object:
        return calendar.first_window("pool", 2 * PER_NODE, MEAN_SECONDS, _at(at), _at(at + YEAR))

    asked: tuple[tuple[str, Callable[[int], object]], ...] = (
        ("free cards in a window, p99", free),
        ("first window within a year, p99", first),
    )
    for name, question in asked:
        seconds = []
        for start in starts:
            begun = time.thread_time()
            question(start)
            seconds.append(time.thread_time() - begun)
        yield Figure(name, _milli(seconds, 99), "ms", at_most=1)


def _beside_postgres(
    random: np.random.Generator, calendar: Calendar, booked: Windows, options: argparse.Namespace
) -> tuple[list[Figure], list[str]]:
    """The same requests for one node each, here and there, over the same bookings."""
    url = os.environ.get("STARVERSE_TEST_POSTGRES", "").replace("+psycopg", "")
    if not url:
        return [], ["PostgreSQL with an exclusion constraint: STARVERSE_TEST_POSTGRES names none"]
    starts = random.integers(0, YEAR, options.peer_requests)
    ends = starts + 1 + random.exponential(MEAN_SECONDS, options.peer_requests).astype(np.int64)
    windows = list(zip(starts.tolist(), ends.tolist(), strict=True))
    ours = []
    for number, (start, end) in enumerate(windows):
        begun = time.thread_time()
        _admit_and_book(calendar, _request(f"p{number}", PER_NODE, start, end, 0))
        ours.append(time.thread_time() - begun)
    rows = zip(booked.nodes.tolist(), booked.starts.tolist(), booked.ends.tolist(), strict=True)
    with books(url, int(booked.nodes.max()) + 1, rows) as connection:
        flushes = connection.execute("SHOW fsync").fetchone()
        theirs = book_all(connection, windows)
    cpu = theirs.backend_cpu_seconds
    note = (
        f"CPU on both sides, of PostgreSQL its backend's alone{'' if cpu else ' (not to be had: its wall)'}; "
        f"p50 on its wall {_milli(theirs.seconds, 50):.3f} ms; it booked {sum(theirs.booked)} of "
        f"{len(windows)}; fsync {(flushes or ('?',))[0]}, synchronous_commit off; what is booked here has to "
        "be written to a database besides, which is not counted"
    )
    figure = Figure(
        "bookings of a node",
        len(windows) / sum(ours),
        "/s",
        "PostgreSQL, exclusion constraint",
        len(windows) / (cpu or sum(theirs.seconds)),
        at_least=20,
        note=note,
    )
    return [figure], []


def _beside_bound(jobs: Windows, options: argparse.Namespace) -> tuple[list[Figure], list[str]]:
    """Card-hours accepted of Philly's, the worst draw of leads, and seconds over capacity (unit ``s``)."""
    figures: list[Figure] = []
    for capacity in CAPACITIES:
        try:
            bound = accepted_at_most(jobs.starts, jobs.ends, jobs.cards, capacity) / 3600
        except ImportError as error:
            return figures, [f"the linear bound: SciPy is not importable here ({error})"]
        hours = []
        for draw in range(options.draws):
            random = np.random.default_rng(options.seed + draw)
            leads = random.integers(0, 30 * DAY, len(jobs))
            calendar = Calendar()
            calendar.set_capacity("pool", capacity)
            hours.append(_accept(calendar, jobs, leads) / 3600)
            figures.append(Figure("seconds over", _over(calendar, "pool"), "s"))
        offered = int((jobs.cards * (jobs.ends - jobs.starts)).sum()) / 3600
        figures.append(
            Figure(
                f"card-hours accepted, {capacity} cards",
                min(hours),
                "h",
                "linear bound in hindsight",
                bound,
                at_least=0.92,
                note=f"{min(hours):,.0f} to {max(hours):,.0f} of {offered:,.0f} h asked for",
            )
        )
    return figures, []


def _accept(calendar: Calendar, jobs: Windows, leads: Numbers) -> int:
    """Card-seconds accepted of fixed windows in the order in which they are booked."""
    got = 0
    for number in np.argsort(jobs.starts - leads, kind="stable").tolist():
        start, end, cards = int(jobs.starts[number]), int(jobs.ends[number]), int(jobs.cards[number])
        request = _request(str(number), cards, start, end, start - int(leads[number]))
        got += cards * (end - start) * _admit_and_book(calendar, request)
    return got


def _admit_and_book(calendar: Calendar, request: BookingRequest) -> bool:
    if not isinstance(admit(request, calendar, TeamState(), RULES), Accepted):
        return False
    return calendar.book(request.booking_id, request.pool, request.cards, request.start, request.end)


def _request(name: str, cards: int, start: int, end: int, booked_at: int) -> BookingRequest:
    return BookingRequest(name, TeamId("team"), "pool", cards, _at(start), _at(end), _at(booked_at))


def _over(calendar: Calendar, pool: str) -> int:
    """Seconds during which more is booked than there is, counted without the calendar's own structure."""
    found = [(b.start_second, b.end_second, b.cards) for b in calendar.bookings() if b.pool == pool]
    spans = np.array(found, np.int64).reshape(-1, 3)
    times = np.concatenate((spans[:, 0], spans[:, 1]))
    changes = np.concatenate((spans[:, 2], -spans[:, 2]))
    order = np.lexsort((changes, times))
    level = np.cumsum(changes[order])
    lasting = np.diff(times[order], append=times[order][-1:])
    return int(lasting[level > calendar.capacity(pool)].sum())


def _milli(seconds: list[float], percent: int) -> float:
    return float(np.percentile(seconds, percent)) * 1e3


def _at(second: Any) -> datetime:
    return ZERO + timedelta(seconds=int(second))


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--philly", type=Path, required=True, help="folder with jobs.csv.gz")
    parser.add_argument("--bookings", type=int, default=1_000_000)
    parser.add_argument("--requests", type=int, default=10_000, help="admissions timed of each kind")
    parser.add_argument("--peer-requests", type=int, default=2_000, help="beside PostgreSQL")
    parser.add_argument("--draws", type=int, default=3, help="of leads")
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--quick", action="store_true", help="a thousandth of it: does it run?")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    if options.quick:
        options.bookings, options.requests, options.peer_requests, options.draws = 1000, 50, 20, 1
    return options


if __name__ == "__main__":
    sys.exit(main())
