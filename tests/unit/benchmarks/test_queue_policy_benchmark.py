"""Benchmark 8 on small traces: the peers keep their rules, and no order knows what has not ended."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks import queue_policy as bench
from benchmarks.peers.queue_orders import easy, fifo, sjf, srpt
from benchmarks.philly import Arrival
from benchmarks.queue_replay import ShortFirst
from benchmarks.waiting_thousands import timed_answers

JOBS = [Arrival(0, 100, 4, "a"), Arrival(1, 50, 8, "a"), Arrival(2, 90, 2, "b"), Arrival(3, 500, 2, "b")]
TWO_TEAMS = [
    Arrival(10.0 * number, 100 if number % 2 else 5000, 1 + number % 4, "ab"[number % 2])
    for number in range(200)
]


@pytest.mark.parametrize(
    ("order", "waits"),
    [
        (fifo, [0, 99, 148, 147]),
        (easy, [0, 99, 0, 147]),  # the third ends before the head can start, the fourth would delay it
        (sjf, [0, 501, 0, 0]),
        (srpt, [50, 0, 49, 48]),
    ],
)
def test_each_peer_keeps_its_rule(order: object, waits: list[float]) -> None:
    assert callable(order)
    assert order(JOBS, 8) == pytest.approx(waits, abs=3)


def test_ours_beats_fifo_and_no_wait_passes_its_bound_by_much() -> None:
    first = fifo(TWO_TEAMS, 8)
    ours = ShortFirst(TWO_TEAMS, 8, bound=1.0).run()
    assert sum(ours.waits) < 0.9 * sum(first)
    assert min(ours.waits) >= 0
    assert max(ours.waits) <= 1.5 * max(first)


def test_a_decision_never_depends_on_a_run_time_that_is_not_over() -> None:
    changed = [*TWO_TEAMS[:-1], replace(TWO_TEAMS[-1], run_seconds=1.0)]
    before, after = (ShortFirst(jobs, 8, bound=1.4).run() for jobs in (TWO_TEAMS, changed))
    ended = len(TWO_TEAMS) - 1
    start = TWO_TEAMS[ended].at_seconds + before.waits[ended]
    earlier = [n for n, job in enumerate(TWO_TEAMS) if job.at_seconds + before.waits[n] <= start]
    assert [before.waits[n] for n in earlier] == [after.waits[n] for n in earlier]


def test_every_figure_is_there() -> None:
    figures = {figure.name: figure for figure in bench.figures_of(TWO_TEAMS, 8, 1.4)}
    assert figures["start off by, median, 8 cards"].peer_measured is not None
    assert 0 <= figures["starts within the band, 8 cards"].measured <= 100
    answers = bench.figures_of_answers(timed_answers(waiting=40, nodes=8), 40)
    assert [figure.target for figure in answers[:2]] == ["<= 50", "<= 50"]
