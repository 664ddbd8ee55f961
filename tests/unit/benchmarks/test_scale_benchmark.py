"""The measurement of scale on a very small cluster: it runs, and names what it measured."""

from __future__ import annotations

import gzip
from pathlib import Path

from benchmarks.philly import read_arrivals
from benchmarks.scale import Settings, measure

TRACE = """timestamp,duration,num_gpus,gpu_time,cluster
2017-10-05 07:01:55,660.0,1,660.0,a
2017-10-04 07:01:55,6600.0,2,13200.0,a
2017-09-04 07:01:55,100.0,1,100.0,b
2017-10-06 07:01:55,9000.0,16,144000.0,b
"""


def trace(folder: Path) -> Path:
    file = folder / "jobs.csv.gz"
    with gzip.open(file, "wt", encoding="utf-8") as text:
        text.write(TRACE)
    return file


def test_arrivals_are_read_in_the_order_of_time(tmp_path: Path) -> None:
    found = read_arrivals(trace(tmp_path), since="2017-10-01")
    assert [(a.at_seconds, a.cards) for a in found] == [(0.0, 2), (86_400.0, 1), (172_800.0, 16)]
    assert len(read_arrivals(trace(tmp_path), 2)) == 2


def test_every_part_of_a_round_is_measured(tmp_path: Path) -> None:
    report = measure(Settings(trace(tmp_path), cards=(32,), steps=1, folder=tmp_path))
    named = {figure.name.removeprefix("32 cards: "): figure.measured for figure in report.figures}
    assert {"snapshot, a round", "decide, a round", "observe, a round", "submit, per job"} <= set(named)
    assert named["database, per job"] > 0
    assert all(value >= 0 for value in named.values())
