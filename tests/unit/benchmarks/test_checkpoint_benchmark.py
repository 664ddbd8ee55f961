"""Benchmark 5 runs, and says the same as a table and as JSON. Its times are not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]


def run(folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "benchmarks.checkpoint_engine", "--gib", "0.01", "--repeats", "1"]
    done = subprocess.run(
        [*command, "--kills", "3", "--folder", str(folder), *options],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.serial
def test_every_figure_has_its_peer_of_the_same_run(tmp_path: Path) -> None:
    report = json.loads(run(tmp_path, "--json"))
    figures = {figure["name"]: figure for figure in report["figures"]}
    assert report["number"] == 5
    for name, target in [("save_async blocks", 1.3), ("restore, verified", 1.25)]:
        figure = figures[name]
        assert figure["target"] == f"<= {target}x"
        assert figure["ratio"] == figure["measured"] / figure["peer_measured"]
        assert figure["reached"] == (figure["ratio"] <= target)
    assert figures["torn restores"]["measured"] == 0
    assert figures["torn restores"]["reached"] is True
    assert {"seed", "flush_p50_ms", "hash", "cores"} <= report["conditions"].keys()
    has_peers = any("DCP" in (figure["peer"] or "") for figure in report["figures"])
    assert has_peers != any("PyTorch is not importable" in reason for reason in report["missing"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.serial
def test_the_table_names_figure_peer_ratio_and_target(tmp_path: Path) -> None:
    table = run(tmp_path)
    assert table.startswith("benchmark 5: checkpoint engine")
    assert "memory copy" in table
    assert "<= 1.3x" in table
    assert "flush_p50_ms" in table
