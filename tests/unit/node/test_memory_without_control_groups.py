"""Too much memory where no control group says so: a job ends, an instance loses its largest process alone."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from starverse.node.custody import Custody
from starverse.node.folder import AllocationFolder
from starverse.node.limits import Cgroups, CgroupSupport
from starverse.node.steady_clock import SteadyClock
from starverse.testing.launches import MIB, build_launch

CODE = "import sys; x = bytearray(int(sys.argv[1]) * 1024**2); print('has it', flush=True); sys.stdin.read()"


class Processes:
    """A workload of two processes, one large, one small."""

    def __init__(self) -> None:
        self.large, self.small = (
            subprocess.Popen(
                [sys.executable, "-S", "-c", CODE, mebibytes],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for mebibytes in ("150", "1")
        )
        self.all_killed = False
        for process in (self.large, self.small):
            assert process.stdout is not None
            process.stdout.readline()

    def processes_inside(self) -> list[int]:
        return [process.pid for process in (self.small, self.large) if process.poll() is None]

    def kill(self) -> None:
        self.all_killed = True

    def close(self) -> None:
        for process in (self.large, self.small):
            process.kill()
            process.communicate()


@pytest.fixture
def inside() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.close()


def custody_of(inside: Processes, folder: Path, said: list[str], **changes: Any) -> Custody:
    spec = build_launch(folder, **changes)
    spec = replace(spec, limits=replace(spec.limits, memory_bytes=100 * MIB))
    custody = Custody(spec, AllocationFolder(folder), SteadyClock(), said.append)
    custody.workload = cast(Any, inside)
    custody._cgroups = Cgroups(CgroupSupport(), "none")
    return custody


def test_an_instance_loses_its_largest_process_and_goes_on(inside: Processes, tmp_path: Path) -> None:
    said: list[str] = []
    custody = custody_of(inside, tmp_path, said, interactive=True)
    custody.watch_memory()
    custody.watch_memory()
    assert inside.large.wait(10) == -9
    custody.watch_memory()
    assert (inside.small.poll(), inside.all_killed, custody.killed) == (None, False, False)
    (line,) = said
    assert "out of memory" in line and "the largest was killed" in line


def test_a_job_ends_whole(inside: Processes, tmp_path: Path) -> None:
    said: list[str] = []
    custody = custody_of(inside, tmp_path, said)
    custody.watch_memory()
    assert (inside.all_killed, custody.killed) == (True, True)
