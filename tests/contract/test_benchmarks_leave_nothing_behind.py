"""A benchmark that is ended by SIGTERM, as ``timeout`` does, ends what it started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from starverse.testing.slurm_lab import SlurmLab

REPOSITORY = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0


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


@pytest.mark.parametrize(
    ("benchmark", "words", "begun"),
    [
        ("slurm_starts", ["--nodes", "2"], "starverse-lab-*/run/slurmrestd.pid"),
        ("adoption", ["--allocations", "3"], "adoption-*/*server-*.log"),
    ],
)
def test_a_benchmark_that_is_ended_takes_along_what_it_started(
    tmp_path_factory: pytest.TempPathFactory, benchmark: str, words: list[str], begun: str
) -> None:
    if benchmark == "slurm_starts" and (why := SlurmLab.missing()):
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("b")
    temporary = Path(tempfile.gettempdir())
    for opened in (folder, *(parent for parent in folder.parents if temporary in parent.parents)):
        opened.chmod(0o755)  # munge and slurmrestd run as users of their own
    process = subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.{benchmark}", *words],
        env={**os.environ, "TMPDIR": str(folder)},
        cwd=REPOSITORY,
        stdout=subprocess.DEVNULL,
    )
    try:
        until(lambda: list(folder.glob(begun)) or process.poll() is not None, "the start of what it measures")
        assert process.poll() is None
        assert len(processes_naming(folder)) > 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
        until(lambda: not processes_naming(folder), "the end of what it started")
        assert list(folder.iterdir()) == []
    finally:
        process.kill()
        process.wait()
        for lab in folder.glob("starverse-lab-*"):
            SlurmLab.sweep(lab)
