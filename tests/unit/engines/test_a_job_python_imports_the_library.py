"""``starverse.checkpoint`` beside the shims: any Python of a job imports it; it hides nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import starverse
from starverse.engines.folders.shims import LIBRARY, write_shims

SAVE = """
import sys
from pathlib import Path
from starverse.checkpoint import Checkpointer
with Checkpointer(sys.argv[1]).save(3) as folder:
    (Path(folder) / "state").write_text("3")
assert sys.modules["starverse"].__file__.startswith(sys.argv[2])
"""
WHOLE = "import starverse.checkpoint, starverse.domain.money as money; print(money.__file__)"


@pytest.fixture
def library(tmp_path: Path) -> Path:
    write_shims(tmp_path / "bin", sys.executable)
    return write_shims(tmp_path / "bin", sys.executable) / LIBRARY


def run(code: str, path: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, *words],
        env={"PYTHONPATH": path, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_python_without_any_package_saves_a_checkpoint(library: Path, tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    run(SAVE, str(library), str(tmp_path / "checkpoint"), str(library))
    assert [place.name for place in (tmp_path / "checkpoint").glob("step-*")] == ["step-0000000003-a0"]


def test_the_whole_package_behind_it_is_still_found(library: Path) -> None:
    source = Path(starverse.__file__).parents[1]
    assert run(WHOLE, f"{library}:{source}").startswith(str(source))


def test_everybody_may_read_it(library: Path) -> None:
    assert all(place.stat().st_mode & 0o004 for place in library.rglob("*"))
