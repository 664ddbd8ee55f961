"""Benchmark 14 runs on a small trace: its bound agrees with the product's rating, and finds a wrong meter."""

from __future__ import annotations

import csv
import gzip
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import metering_and_bill as bench

from starverse.domain.pricing.rating import Subject, SubjectKind, Terms, Usage, charge_usages
from starverse.domain.pricing.windows import instant_of
from starverse.domain.timespan import Timespan

REPOSITORY = Path(__file__).parents[3]
ROWS = [
    ("2017-09-04 10:30:41", 61, 1),
    ("2017-10-09 07:01:55", 66, 1),
    ("2017-10-09 22:59:47", 25, 8),
    ("2017-10-30 06:13:03", 190_000, 4),
    ("2017-11-01 11:00:00", 7_200, 2),
    ("2017-12-22 08:02:11", 0, 1),
]


@pytest.fixture
def philly(tmp_path: Path) -> Path:
    with gzip.open(tmp_path / "jobs.csv.gz", "wt", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["timestamp", "duration", "num_gpus", "gpu_time", "cluster"])
        for timestamp, seconds, cards in ROWS:
            rows.writerow([timestamp, f"{seconds}.0", cards, f"{seconds * cards}.0", "vc"])
    return tmp_path


def test_every_figure_is_there_and_no_micro_yuan_is_missing(philly: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.metering_and_bill", "--philly", str(philly), "--share", "1"]
    done = subprocess.run([*command, "--json"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    figures = {figure["name"]: figure for figure in report["figures"]}
    assert report["number"] == 14
    assert figures["metering error"]["measured"] == figures["bill error"]["measured"] == 0
    assert figures["events metered"]["target"] == ">= 100000"
    assert figures["bill over 5 jobs"]["target"] == "<= 1"
    assert {"seed", "share", "run", "peak_memory_mib"} <= report["conditions"].keys()


@pytest.mark.parametrize("kind", range(len(bench.KINDS)))
def test_the_bound_agrees_with_the_rating_of_the_product(philly: Path, kind: int) -> None:
    jobs = bench.read_jobs(philly / "jobs.csv.gz", seed=1)
    jobs.kinds[:] = kind
    found = bench.KINDS[kind]
    terms = Terms(found.tariff, found.model, found.fabric, member=found.member)
    for job in range(len(jobs)):
        span = Timespan(instant_of(int(jobs.starts[job])), instant_of(int(jobs.ends[job])))
        usage = Usage(Subject(SubjectKind.ALLOCATION, str(job)), span, int(jobs.cards[job]), terms)
        assert charge_usages([usage], bench.make_books()).total == bench.exact_amount(jobs, job)


def test_events_come_in_any_order_and_some_twice(philly: Path) -> None:
    jobs = bench.read_jobs(philly / "jobs.csv.gz", seed=1)
    chunks = list(bench.shuffled_events(jobs, 0.05, np.random.default_rng(1)))
    starts = [start for _, found, _, _ in chunks for start in found]
    assert starts != sorted(starts)
    assert len(starts) == jobs.card_minutes + sum(again for *_, again in chunks)
    assert sum(again for *_, again in chunks) == int(jobs.card_minutes * 0.05)


def test_a_meter_on_wrong_terms_is_found_out(philly: Path) -> None:
    jobs = bench.read_jobs(philly / "jobs.csv.gz", seed=1)
    curves = bench.make_curves(jobs)
    numbers = np.random.default_rng(1)
    settings = bench.Settings(philly)
    assert bench.meter_shard(jobs, curves, settings, numbers).error == 0
    assert bench.meter_shard(jobs, curves[1:] + curves[:1], settings, numbers).error > 0
