"""A script that cannot be executed by its own fault ends at once as in a shell, and says what is missing."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starverse.domain.workloads.launch import LauncherState, LaunchSpec
from starverse.engines.base import Presence
from starverse.engines.local import LocalEngine
from starverse.node.cards.declared import DeclaredCards
from starverse.testing.launches import build_launch, own

TEAM_UID = 200_001


class Bench:
    """A local engine on which one workload runs to its end."""

    def __init__(self, data: Path, driver: str) -> None:
        self.data = data
        self.driver = driver
        self.engine = LocalEngine(data, DeclaredCards("rtx4090:8"), driver=driver)
        self.engine.start()

    def run(self, **changes: Any) -> tuple[LauncherState, LaunchSpec]:
        uid = TEAM_UID if os.geteuid() == 0 else None
        whole = changes.pop("whole_script", None)
        spec = build_launch(self.data, own("begins"), driver=self.driver, unix_uid=uid, **changes)
        spec = spec if whole is None else replace(spec, script=whole)
        self.engine.submit(spec)
        give_up = time.monotonic() + 30
        while True:
            seen = self.engine.observe([spec.allocation_id])[spec.allocation_id]
            if seen.presence is Presence.ENDED and seen.state is not None:
                return seen.state, spec
            assert time.monotonic() < give_up, seen
            time.sleep(0.01)

    def close(self) -> None:
        for entry in (self.data / "allocations").iterdir():
            self.engine.clean(entry.name)
        self.engine.close()


@pytest.fixture(params=["bwrap", "process"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param == "bwrap" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    made = Bench(tmp_path, request.param)
    try:
        yield made
    finally:
        made.close()


def log_of(spec: LaunchSpec) -> str:
    return Path(spec.logs, "1.out").read_text()


BROKEN = {
    "no such interpreter": ({"whole_script": "#!/bin/nosuch -x\ntrue\n"}, 127, "interpreter '/bin/nosuch'"),
    "a carriage return": ({"whole_script": "#!/bin/bash\r\ntrue\r\n"}, 127, r"interpreter '/bin/bash\r'"),
    "below a file": ({"whole_script": "#!/bin/bash/x\ntrue\n"}, 127, "interpreter '/bin/bash/x'"),
    "a folder as interpreter": ({"whole_script": "#!/usr\ntrue\n"}, 126, "interpreter '/usr'"),
    "no such --chdir": ({"chdir": "nowhere"}, 127, "nowhere: No such file or directory"),
}


@pytest.mark.parametrize("case", BROKEN, ids=lambda case: case.replace(" ", "_"))
def test_it_ends_as_the_scripts_fault_and_names_what_is_missing(bench: Bench, case: str) -> None:
    changes, code, words = BROKEN[case]
    state, spec = bench.run(**changes)
    assert state.ready_at is not None
    assert (state.exit_code, state.exit_signal, state.stopped_by) == (code, None, "")
    assert words in state.failure
    assert words in log_of(spec)


def test_the_plain_process_finds_what_a_sandbox_would_show(tmp_path: Path) -> None:
    """Slurm's commands on PATH, its folders where they really lie, a home that can be written."""
    (tmp_path / "passable").mkdir()
    bench = Bench(tmp_path / "closed", "process")
    (tmp_path / "closed").chmod(0o700)
    script = """command -v sbatch squeue starverse
echo "submitted from $SLURM_SUBMIT_DIR, now in $PWD"
touch "$HOME/.kept" "$TMPDIR/t" "$SLURM_SUBMIT_DIR/here" "$STARVERSE_CHECKPOINT_DIR/c" && echo written
touch "$(dirname "$STARVERSE_NOTICE_FILE")/forged" 2>/dev/null && echo forged
squeue --version
"$STARVERSE_PYTHON" -c 'print("python", 6 * 7)'
ls "$(dirname "$(dirname "$(dirname "$SLURM_SUBMIT_DIR")")")"
"""
    try:
        state, spec = bench.run(script=script)
        log = log_of(spec).splitlines()
    finally:
        bench.close()
    assert state.exit_code == 0, log
    shims = f"{spec.folder}/run/bin"
    assert log[:3] == [f"{shims}/{name}" for name in ("sbatch", "squeue", "starverse")]
    assert log[3] == f"submitted from {spec.workspace}, now in {spec.workspace}"
    assert log[4] == "written"
    assert "python 42" in log
    assert Path(spec.workspace, "here").exists()
    if os.geteuid() == 0:
        assert "forged" not in log
        assert "channel.sock" not in log
        assert "sandbox" not in log


@pytest.mark.parametrize("driver", ["bwrap", "process"])
def test_an_engine_says_what_its_driver_does_not_isolate(tmp_path: Path, driver: str) -> None:
    from starverse.node.sandbox.drivers import DRIVERS

    engine = LocalEngine(tmp_path, DeclaredCards("rtx4090:8"), driver=driver)
    said = "\n".join(engine.capabilities.cannot)
    for text in DRIVERS[driver]().cannot:
        assert f"{text} (driver {driver})" in said
