"""What machines' lives are read from a trace, and what an interval loses on them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks.checkpoint_interval import Settings, lives, measure, static_loss


def test_the_machine_given_first_is_taken_first() -> None:
    assert lives([0, 1, 2, 2, 1, 0, 1], 10.0) == ([30.0, 30.0, 10.0], [True, True, False])


@pytest.mark.parametrize(("reclaimed", "lost"), [(True, 5 + 5 + 40), (False, 5 + 5)])
def test_saves_and_what_a_reclaim_takes_are_lost(reclaimed: bool, lost: float) -> None:
    running, ended = np.array([[250.0]]), np.array([reclaimed])
    assert static_loss(running, ended, 100.0, 5.0) == lost


def test_one_trace_under_two_names_counts_once(tmp_path: Path) -> None:
    trace = {"metadata": {"gap_seconds": 60}, "data": [1] * 200 + [0] + [1] * 300 + [0, 0] + [1] * 90}
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps(trace))
    report = measure(Settings(tmp_path, starts=2, save_seconds=(6.0,)))
    assert report.conditions["pools"] == 1
    assert report.conditions["reclaims"] == 2
    best = report.figures[0].ratio
    assert best is not None
    assert 0.9 < best < 2
