"""The cold-start benchmark runs our own commands, and says plainly which peers it could not measure."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import cli_cold_start as bench

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.serial
def test_our_figures_without_peers(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "benchmarks.cli_cold_start",
        "--rounds",
        "1",
        "--without-peers",
        "--json",
    ]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    judged = [figure for figure in report["figures"] if figure["target"]]
    assert [figure["name"] for figure in judged] == list(bench.OURS)
    assert all(figure["target"] == "<= 0.15" and figure["measured"] > 0 for figure in judged)
    assert "sky --version" in report["missing"][0]


def test_a_peer_is_measured_as_it_is_and_shown_as_a_ratio(tmp_path: Path) -> None:
    peer = tmp_path / "venv-dstack" / "bin" / "dstack"
    peer.parent.mkdir(parents=True)
    peer.write_text("#!/bin/sh\necho 9.9\n")
    peer.chmod(0o755)
    report = bench.measure(1, bench.Peers({"dstack": peer}), tmp_path)
    ratios = [figure for figure in report.figures if figure.peer == "dstack --version"]
    assert len(ratios) == len(bench.OURS)
    assert all(figure.ratio and figure.ratio > 0 for figure in ratios)
    assert report.conditions["peers"] == {"dstack": "9.9"}


def test_a_command_that_fails_is_no_figure(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        bench.time_command(["/bin/false"], tmp_path)


def test_what_is_installed_already_is_not_installed_again(tmp_path: Path) -> None:
    for command, package in bench.PEERS.items():
        place = tmp_path / f"venv-{package}" / "bin"
        place.mkdir(parents=True)
        (place / command).write_text("")
    assert set(bench.install_peers(tmp_path).commands) == set(bench.PEERS)
