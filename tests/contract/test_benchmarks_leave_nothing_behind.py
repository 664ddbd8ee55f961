"""A benchmark that is ended by SIGTERM, as ``timeout`` does, ends what it started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from starverse.testing.slurm_lab import SlurmLab

REPOSITORY = Path(__file__).parents[2]
PATIENCE_SECONDS = 120.0


def until(look: Callable[[], object], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < give_up, f"not in time: {what}"
        time.sleep(0.05)


def processes_naming(folder: Path) -> list[int]:
    """Those whose command line or environment has this folder in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                told = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
            if str(folder).encode() in told:
                found.append(int(entry.name))
    return found


@pytest.fixture
def passable() -> Iterator[Path]:
    """A folder that munge and slurmrestd may pass, who run as users of their own. (Pytest's own lie below one
    that each pytest of this user closes to others when it begins.)"""
    made = Path(tempfile.mkdtemp(prefix="starverse-b-"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        shutil.rmtree(made)


@pytest.mark.parametrize(
    ("benchmark", "words", "begun"),
    [
        ("slurm_starts", ["--nodes", "2"], "starverse-lab-*/run/slurmrestd.pid"),
        ("adoption", ["--allocations", "1"], "adoption-*/*server-*.log"),
    ],
)
def test_a_benchmark_that_is_ended_takes_along_what_it_started(
    passable: Path, tmp_path: Path, benchmark: str, words: list[str], begun: str
) -> None:
    if benchmark == "slurm_starts" and (why := SlurmLab.missing()):
        pytest.skip(why)
    log = tmp_path / "said"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", f"benchmarks.{benchmark}", *words],
            env={**os.environ, "TMPDIR": str(passable)},
            cwd=REPOSITORY,
            stdout=said,
            stderr=said,
        )
    try:
        until(
            lambda: list(passable.glob(begun)) or process.poll() is not None, "the start of what it measures"
        )
        assert process.poll() is None, log.read_text()
        assert len(processes_naming(passable)) > 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
        until(lambda: not processes_naming(passable), "the end of what it started")
        assert list(passable.iterdir()) == []
    finally:
        process.kill()
        process.wait()
        for lab in passable.glob("starverse-lab-*"):
            SlurmLab.sweep(lab)
