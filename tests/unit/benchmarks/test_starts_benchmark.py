"""Benchmark 15's local half: figures from samples, one real start beside raw spawns, honest gaps."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path

import pytest
from benchmarks import platform_starts, starts

from starverse.node.instance_agent import SSHD

ENGINE = {"start": [0.040], "raw": [0.005], "raw python": [0.020], "whole": [0.06]}
INSTANCE = {"instance": [0.045], "connection": [0.008], "sshd": [0.005]}
RECLAIM = {"notice": [0.01], "reclaim": [0.09]}
PLATFORM = {
    "platform answer": [0.010],
    "platform start": [0.047],
    "platform claim": [0.15],
    "platform elsewhere": [0.16],
}


def test_what_the_control_plane_adds_is_the_difference_of_the_medians() -> None:
    figures = starts.figures_of({**ENGINE, **RECLAIM, **PLATFORM}, rate=20.0)
    added = next(figure for figure in figures if figure.name.startswith("added"))
    assert added.measured == pytest.approx(7.0)
    assert added.reached is True
    start = figures[0]
    assert start.ratio == pytest.approx(8.0)
    assert (start.target, start.reached) == ("<= 10x", True)


def test_an_instance_stands_beside_bubblewrap_and_a_job_where_there_is_an_sshd() -> None:
    figures = starts.figures_of({**ENGINE, **INSTANCE, **RECLAIM}, rate=None)
    ratios = [figure.ratio for figure in figures if "instance" in figure.name]
    assert ratios == pytest.approx([9.0, 1.125, 1.6])
    assert not any("instance" in f.name for f in starts.figures_of({**ENGINE, **RECLAIM}, rate=None))


def test_without_a_platform_only_the_engine_is_shown() -> None:
    names = [figure.name for figure in starts.figures_of({**ENGINE, **RECLAIM}, rate=None)]
    assert not any("platform" in name or "API" in name for name in names)


def test_a_platform_that_does_not_come_up_is_said_and_not_shown(tmp_path: Path) -> None:
    (tmp_path / "row").mkdir()
    (tmp_path / "row" / "data").write_text("a file where the data folder should be")
    samples, rate, missing = platform_starts.measure_platform(tmp_path, 1, 1, 1)
    assert (samples, rate) == ({}, None)
    assert "starverse up` ended" in missing[0]


@pytest.mark.serial
def test_one_start_and_one_reclaim_on_the_real_engine(tmp_path: Path) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    samples: starts.Samples = defaultdict(list)
    with starts.engine_of(tmp_path / "engine") as trial:
        starts.time_starts(trial, samples, 1)
        starts.time_reclaims(trial, samples, 1)
    expected = [*ENGINE, *RECLAIM, *(INSTANCE if Path(SSHD).exists() else ())]
    assert {key: len(found) for key, found in samples.items()} == dict.fromkeys(expected, 1)
    assert all(found[0] > 0 for found in samples.values())
    assert samples["start"][0] < samples["whole"][0]
    assert samples["notice"][0] < samples["reclaim"][0]
