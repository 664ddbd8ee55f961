"""Whatever a script does to its log, the disk's reserve stays: copies wait, logs keep their newest part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from starverse.checkpoint.errors import DiskFull
from starverse.domain.workloads.launch import LaunchSpec
from starverse.node.checkpoint_template import Template, publish_copy, restore_copy
from starverse.node.folder import AllocationFolder
from starverse.node.log_keeping import HELD_BYTES_MIN, LogKeeper, held_bytes, open_logs
from starverse.testing.launches import MIB, build_launch

EVERYTHING = 2**62
"""A reserve that no disk has: there is no room at all."""


@pytest.fixture
def spec(tmp_path: Path) -> Iterator[LaunchSpec]:
    made = build_launch(tmp_path, disk_reserve_bytes=0)
    for folder in (made.folder, made.workspace, made.logs, made.checkpoints):
        Path(folder).mkdir(parents=True)
    yield made


def keep(spec: LaunchSpec) -> LogKeeper:
    return open_logs(spec, AllocationFolder(spec.folder))


def copy_of(spec: LaunchSpec) -> Path:
    return Path(spec.workspace, "slurm-123.out")


def log_of(spec: LaunchSpec) -> Path:
    return Path(spec.logs, "1.out")


def breathe() -> None:
    """Nothing beats here."""


@pytest.mark.parametrize("hole_at", ["begin", "middle", "end", "everywhere"])
def test_a_hole_in_the_log_is_one_in_the_copy(spec: LaunchSpec, hole_at: str) -> None:
    huge = 1 << 40
    keeper = keep(spec)
    size = {"begin": huge + 5, "middle": huge + 5, "end": huge, "everywhere": huge}[hole_at]
    if hole_at in ("middle", "end"):
        os.write(keeper.logs[0], b"first")
    os.ftruncate(keeper.logs[0], huge)
    if hole_at in ("begin", "middle"):
        os.write(keeper.logs[0], b" last")
    keeper.finish(breathe)
    status = copy_of(spec).stat()
    assert status.st_size == size
    assert status.st_blocks * 512 <= 64 * 1024
    with copy_of(spec).open("rb") as copy:
        assert copy.read(5) == (b"first" if hole_at in ("middle", "end") else b"\0" * 5)
        copy.seek(size - 5)
        assert copy.read() == (b" last" if hole_at in ("begin", "middle") else b"\0" * 5)


def test_a_copy_waits_at_the_reserve_says_so_once_and_goes_on_with_room(spec: LaunchSpec) -> None:
    keeper = keep(replace(spec, disk_reserve_bytes=EVERYTHING))
    os.write(keeper.logs[0], b"line\n" * 1000)
    for second in range(3):
        keeper.tend(float(second))
    assert copy_of(spec).read_bytes() == b""
    assert log_of(spec).read_text().count("waits at byte 0") == 1
    assert "starverse job logs 123" in log_of(spec).read_text()
    keeper.finish(breathe)
    assert "ends at byte 0" in log_of(spec).read_text()
    roomy = keep(replace(spec, open_mode="append"))
    roomy.finish(breathe)
    assert copy_of(spec).read_bytes() == log_of(spec).read_bytes()


def test_a_log_holds_no_more_than_before_while_there_is_no_room(spec: LaunchSpec) -> None:
    keeper = keep(replace(spec, disk_reserve_bytes=EVERYTHING))
    for second in range(5):
        os.write(keeper.logs[0], b"x" * (4 * MIB - 1) + b"\n")
        keeper.tend(float(second))
        assert held_bytes(keeper.logs[0]) <= HELD_BYTES_MIN * 2
    assert log_of(spec).stat().st_size > 20_000_000, "no offset may move"
    assert log_of(spec).read_text("latin-1").count("keeps its newest") <= 1


def test_a_log_that_its_script_cuts_off_is_still_capped(spec: LaunchSpec) -> None:
    keeper = keep(replace(spec, log_cap_bytes=MIB))
    os.write(keeper.logs[0], b"x" * (4 * MIB))
    os.ftruncate(keeper.logs[0], 1 << 40)
    keeper.tend(0)
    os.ftruncate(keeper.logs[0], 0)
    os.write(keeper.logs[0], b"y" * (4 * MIB))
    keeper.tend(100)
    assert held_bytes(keeper.logs[0]) < 2 * MIB


def test_the_template_copies_nothing_into_the_reserve(tmp_path: Path) -> None:
    workspace, root = tmp_path / "workspace", tmp_path / "checkpoints"
    (workspace / "state").mkdir(parents=True)
    (workspace / "state" / "weights").write_bytes(b"w" * 1000)
    full = Template(workspace, "state", root, reserve_bytes=EVERYTHING)
    with pytest.raises(DiskFull, match="reserve"):
        publish_copy(full)
    assert publish_copy(Template(workspace, "state", root)).checkpoint is not None
    with pytest.raises(OSError, match="reserve"):
        restore_copy(full)
    assert (workspace / "state" / "weights").read_bytes() == b"w" * 1000
