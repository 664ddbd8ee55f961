"""Benchmark 15, command line: a cold ``starverse`` beside ``sky --version`` and ``dstack --version``.

Each command is a process of its own, from its start to its end, with a home folder of its own; commands take
turns within a round, figures are medians over the rounds. The peers are installed from the package index,
each into a virtual environment in a temporary folder, and go with it (``--peers FOLDER`` keeps them).

    python -m benchmarks.cli_cold_start [--rounds 15] [--peers FOLDER] [--json]
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.report import Figure, Report, emit

NUMBER = 15
NAME = "CLI cold start"
SECONDS_AT_MOST = 0.150
PEERS = {"sky": "skypilot", "dstack": "dstack"}
"""Command -> the package that brings it."""

SPAN = ["--start", "2026-03-10T10:00:00+08:00", "--end", "2026-03-10T16:00:00+08:00"]
QUOTE = ["quote", "--card", "rtx4090", "--cards", "1", *SPAN]
ENTRY = "import sys; from starverse.cli.remote.entry import main; sys.exit(main())"
OURS = {"starverse --version": ["--version"], "starverse --help": ["--help"], "starverse quote": QUOTE}


@dataclass(frozen=True, slots=True)
class Peers:
    """The peers' commands that could be installed, and why the others could not."""

    commands: Mapping[str, Path]
    missing: Sequence[str] = ()


def measure(rounds: int, peers: Peers, home: Path) -> Report:
    """Time every command ``rounds`` times, after one turn that only fills the page cache."""
    script = Path(sys.executable).with_name("starverse")
    start = [str(script)] if script.exists() else [sys.executable, "-c", ENTRY]
    commands = {name: [*start, *rest] for name, rest in OURS.items()}
    commands |= {f"{name} --version": [str(path), "--version"] for name, path in peers.commands.items()}
    commands["python -c pass"] = [sys.executable, "-c", "pass"]
    samples: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(rounds + 1):
        for name, command in commands.items():
            seconds = time_command(command, home)
            if turn:
                samples[name].append(seconds)
    median = {name: statistics.median(found) for name, found in samples.items()}
    figures = [Figure(name, median[name], "s", at_most=SECONDS_AT_MOST) for name in OURS]
    for name in OURS:
        for peer in peers.commands:
            figures.append(Figure(name, median[name], "s", f"{peer} --version", median[f"{peer} --version"]))
        figures.append(Figure(name, median[name], "s", "python -c pass", median["python -c pass"]))
    conditions = {
        "rounds": rounds,
        "started_by": "its console script" if script.exists() else "its entry point",
        "spread_ms": {
            name: f"{min(found) * 1000:.0f}..{max(found) * 1000:.0f}" for name, found in samples.items()
        },
        "peers": {name: version_of(path, home) for name, path in peers.commands.items()},
    }
    return Report(NUMBER, NAME, figures, conditions, peers.missing)


def time_command(command: Sequence[str], home: Path) -> float:
    """Seconds from start to end; raises ``CalledProcessError`` when the command fails."""
    begun = time.perf_counter()
    subprocess.run(command, env=_environment(home), check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def version_of(command: Path, home: Path) -> str:
    done = subprocess.run(
        [command, "--version"], env=_environment(home), check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def install_peers(folder: Path) -> Peers:
    """Install each peer into an environment of its own below ``folder``, unless it is there already."""
    found: dict[str, Path] = {}
    missing: list[str] = []
    for command, package in PEERS.items():
        place = folder / f"venv-{package}"
        if not (place / "bin" / command).exists():
            sys.stderr.write(f"installing {package} into {place}\n")
            try:
                venv.create(place, with_pip=True)
                _pip_install(place, package)
            except (OSError, subprocess.CalledProcessError) as error:
                missing.append(f"{command} --version: {package} could not be installed ({_reason(error)})")
                continue
        found[command] = place / "bin" / command
    return Peers(found, missing)


def _pip_install(place: Path, package: str) -> None:
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", package]
    subprocess.run(pip, check=True, capture_output=True, text=True)


def _reason(error: Exception) -> str:
    text = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
    return ((text or str(error)).strip().splitlines() or [str(error)])[-1][:200]


def _environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
    return {**kept, "HOME": str(home)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 0 whatever the ratios are."""
    parser = argparse.ArgumentParser(prog="cli_cold_start", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--peers", type=Path, help="keep the peers' environments here, and use those there")
    parser.add_argument("--without-peers", action="store_true", help="install nothing; our own figures only")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="cold-start-") as name:
        folder = Path(name)
        if given.without_peers:
            peers = Peers({}, ["sky --version and dstack --version: --without-peers"])
        else:
            peers = install_peers(given.peers or folder)
        emit(measure(given.rounds, peers, folder), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
