"""Resuming: the platform's choice, then the newest verified one; two failed loads fall back one step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from starverse.checkpoint import Checkpointer, Unusable
from starverse.checkpoint.loads import failed_loads, last_loaded, newest
from starverse.checkpoint.retention import prune

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def new_checkpointer(root: Path, attempt: int = 0, **environment: str) -> Checkpointer:
    given = {"STARVERSE_RETRY": str(attempt), **environment}
    return Checkpointer(root, keep_last=None, environment=given, handle_signal=False, now=lambda: NOON)


def publish(root: Path, *steps: int, attempt: int = 0) -> list[Path]:
    checkpointer = new_checkpointer(root, attempt)
    return [checkpointer.save_bytes(step, {"a": b"%d" % step}) for step in steps]


def test_a_first_run_has_nothing_to_resume(tmp_path: Path) -> None:
    checkpointer = new_checkpointer(tmp_path / "new", STARVERSE_RESUME_FROM="")
    assert checkpointer.resume_path() is None
    assert checkpointer.latest() is None
    assert checkpointer.restore() is None
    with checkpointer.restoring() as path:
        assert path is None
    assert not (tmp_path / "new").exists()


def test_the_folder_comes_from_the_argument_then_the_platform_then_here(tmp_path: Path) -> None:
    platform = {"STARVERSE_CHECKPOINT_DIR": str(tmp_path / "platform")}
    assert Checkpointer(environment=platform, handle_signal=False).directory == tmp_path / "platform"
    assert Checkpointer(tmp_path, environment=platform, handle_signal=False).directory == tmp_path
    assert Checkpointer(environment={}, handle_signal=False).directory == Path.cwd() / "checkpoints"


def test_a_later_attempt_knows_better_than_a_higher_step(tmp_path: Path) -> None:
    publish(tmp_path, 90, 100, attempt=1)
    publish(tmp_path, 95, attempt=2)
    found = new_checkpointer(tmp_path, 3).latest()
    assert found is not None
    assert (found.attempt, found.step) == (2, 95)


def test_the_platforms_choice_comes_first_unless_it_is_damaged(tmp_path: Path) -> None:
    older, newer = publish(tmp_path, 1, 2)
    checkpointer = new_checkpointer(tmp_path, 1, STARVERSE_RESUME_FROM=str(older))
    assert checkpointer.resume_path() == older
    (older / "a").write_bytes(b"?")
    assert checkpointer.resume_path() == newer


def test_what_this_attempt_published_since_is_newer_than_the_platforms_choice(tmp_path: Path) -> None:
    (chosen,) = publish(tmp_path, 1, attempt=0)
    (own,) = publish(tmp_path, 2, attempt=1)
    environment = {"STARVERSE_RESUME_FROM": str(chosen), "STARVERSE_JOB_ID": "job-1"}
    assert new_checkpointer(tmp_path, 1, **environment).resume_path() == own
    assert new_checkpointer(tmp_path, 2, **environment).resume_path() == chosen


def test_two_failed_loads_fall_back_one_step_and_that_outlives_the_process(tmp_path: Path) -> None:
    first, second, third = publish(tmp_path, 1, 2, 3)
    assert new_checkpointer(tmp_path).failed_to_load(third) == 1
    assert new_checkpointer(tmp_path).resume_path() == third
    assert new_checkpointer(tmp_path).failed_to_load(3) == 2
    assert new_checkpointer(tmp_path, STARVERSE_RESUME_FROM=str(third)).resume_path() == second
    for _ in range(2):
        new_checkpointer(tmp_path).failed_to_load(second)
    assert new_checkpointer(tmp_path).resume_path() == first
    assert newest(tmp_path) == new_checkpointer(tmp_path).latest()


def test_an_exception_while_restoring_counts_and_a_clean_end_reports_loadable(tmp_path: Path) -> None:
    older, newer = publish(tmp_path, 1, 2)
    for _ in range(2):
        with pytest.raises(ValueError, match="shape"), new_checkpointer(tmp_path, 1).restoring() as path:
            assert path == newer
            raise ValueError("the shape is another one")
    assert last_loaded(tmp_path) is None
    with new_checkpointer(tmp_path, 3).restoring() as path:
        assert path == older
    report = json.loads((tmp_path / "loaded.json").read_text())
    assert report == {
        "version": 1,
        "checkpoint": older.name,
        "attempt": 3,
        "loaded_at": "2026-01-02T12:00:00.000000Z",
    }


def test_a_process_that_dies_while_loading_counts_as_a_failed_load(tmp_path: Path) -> None:
    older, newer = publish(tmp_path, 1, 2)
    program = f"""
import os, signal
from starverse.checkpoint import Checkpointer
with Checkpointer({str(tmp_path)!r}, environment={{}}).restoring() as path:
    print(path, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    tried = [
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=False
        ).stdout.strip()
        for _ in range(3)
    ]
    assert tried == [str(newer), str(newer), str(older)]


def test_a_load_that_works_forgets_the_failures_before(tmp_path: Path) -> None:
    (only,) = publish(tmp_path, 1)
    checkpointer = new_checkpointer(tmp_path)
    checkpointer.failed_to_load(only)
    checkpointer.loaded(only)
    assert failed_loads(tmp_path) == {}
    checkpointer.failed_to_load(only)
    assert checkpointer.resume_path() == only


def test_a_given_up_step_may_be_saved_anew(tmp_path: Path) -> None:
    publish(tmp_path, 1, 2)
    for _ in range(2):
        new_checkpointer(tmp_path).failed_to_load(2)
    new_checkpointer(tmp_path).save_bytes(2, {"a": b"better"})
    found = new_checkpointer(tmp_path).latest()
    assert found is not None
    assert (found.path / "a").read_bytes() == b"better"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 1, "failed": {"../x": 9, "step-0000000001-a0": "2"}}']
)
def test_a_spoilt_record_counts_as_empty(tmp_path: Path, text: str) -> None:
    (only,) = publish(tmp_path, 1)
    (tmp_path / "failed_loads.json").write_text(text)
    (tmp_path / "loaded.json").write_text(text)
    assert new_checkpointer(tmp_path).resume_path() == only
    assert last_loaded(tmp_path) is None


@pytest.mark.parametrize("what", [99, "elsewhere/step-1"])
def test_a_report_about_nothing_is_refused(tmp_path: Path, what: int | str) -> None:
    publish(tmp_path, 1)
    with pytest.raises(Unusable):
        new_checkpointer(tmp_path).loaded(what)


def test_pruning_spares_the_only_verified_one(tmp_path: Path) -> None:
    paths = publish(tmp_path, 1, 2, 3, 4, 5)
    for path in paths[2:]:
        (path / "a").write_bytes(b"?")
    prune(tmp_path, keep_last=2)
    assert [path.is_dir() for path in paths] == [False, True, False, True, True]


def test_pruning_removes_nothing_when_nothing_verifies(tmp_path: Path) -> None:
    paths = publish(tmp_path, 1, 2, 3)
    for path in paths:
        (path / "a").write_bytes(b"?")
    assert prune(tmp_path, keep_last=1) == []


def test_pruning_spares_the_one_to_fall_back_to(tmp_path: Path) -> None:
    first, second, third = publish(tmp_path, 1, 2, 3)
    for _ in range(2):
        new_checkpointer(tmp_path).failed_to_load(third)
    prune(tmp_path, keep_last=1)
    assert [path.is_dir() for path in (first, second, third)] == [False, True, True]


def test_the_library_needs_nothing_but_the_standard_library() -> None:
    program = """
import sys
before = set(sys.modules)
import starverse.checkpoint
new = {name.split(".")[0] for name in set(sys.modules) - before}
print(sorted(new - set(sys.stdlib_module_names) - {"starverse", "blake3"}))
print(sorted(name for name in sys.modules if name.startswith("starverse.") and "checkpoint" not in name))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={**os.environ}
    )
    assert done.stdout.splitlines() == ["[]", "[]"]
