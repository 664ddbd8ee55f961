"""The local engine answers for each allocation by itself: one damaged folder is no trouble for others."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from starverse.domain.workloads.launch import LauncherState
from starverse.engines.base import Observation, Presence
from starverse.engines.local import LocalEngine
from starverse.node.cards.declared import DeclaredCards
from starverse.node.folder import AllocationFolder

RUNNING = LauncherState("sound", 1, "running", "boot", alive_at=10.0, ready_at=5.0)
ENDED = replace(RUNNING, phase="ended", ended_at=11.0, exit_code=0)


def cut_state(folder: AllocationFolder) -> None:
    (folder / "state.json").write_text(RUNNING.to_json()[:30])


def empty_state(folder: AllocationFolder) -> None:
    (folder / "state.json").write_text("")


def state_that_cannot_be_opened(folder: AllocationFolder) -> None:
    (folder / "state.json").mkdir()


def report_that_cannot_be_opened(folder: AllocationFolder) -> None:
    folder.write_state(RUNNING)
    (folder / "report.json").mkdir()


def cut_report_alone(folder: AllocationFolder) -> None:
    (folder / "report.json").write_text(ENDED.to_json()[:30])


def cut_report_beside_a_state(folder: AllocationFolder) -> None:
    folder.write_state(RUNNING)
    cut_report_alone(folder)


def cut_report_and_state(folder: AllocationFolder) -> None:
    cut_state(folder)
    cut_report_alone(folder)


GONE, ALIVE = Presence.GONE, Presence.ALIVE


@contextmanager
def claimed(folder: AllocationFolder, held: bool) -> Iterator[None]:
    lock = os.open(folder / "claim.lock", os.O_RDWR | os.O_CREAT)
    try:
        if held:
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


@pytest.mark.parametrize(
    ("damage", "free", "held"),
    [
        (cut_state, Observation(GONE), Observation(ALIVE)),
        (empty_state, Observation(GONE), Observation(ALIVE)),
        (state_that_cannot_be_opened, Observation(ALIVE), Observation(ALIVE)),
        (report_that_cannot_be_opened, Observation(ALIVE), Observation(ALIVE)),
        (cut_report_alone, Observation(GONE), Observation(ALIVE)),
        (cut_report_beside_a_state, Observation(GONE, RUNNING), Observation(ALIVE, RUNNING)),
        (cut_report_and_state, Observation(GONE), Observation(ALIVE)),
    ],
)
@pytest.mark.parametrize("is_held", [False, True], ids=["claim free", "claim held"])
def test_a_damaged_folder_is_answered_by_its_claim_and_others_as_ever(
    tmp_path: Path,
    damage: Callable[[AllocationFolder], None],
    free: Observation,
    held: Observation,
    is_held: bool,
) -> None:
    engine = LocalEngine(tmp_path, DeclaredCards("rtx4090:1"), use_zygote=False)
    folders = {name: AllocationFolder(tmp_path / "allocations" / name) for name in ("damaged", "sound")}
    for folder in folders.values():
        folder.path.mkdir(parents=True)
    folders["sound"].write_report(ENDED)
    damage(folders["damaged"])
    with claimed(folders["damaged"], is_held):
        seen = engine.observe(["damaged", "sound", "never"])
    assert seen == {
        "damaged": held if is_held else free,
        "sound": Observation(Presence.ENDED, ENDED),
        "never": Observation(Presence.UNKNOWN),
    }
