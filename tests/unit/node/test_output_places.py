"""Where --output may point, and that nothing leads out of there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from starverse.domain.workloads.launch import Mount
from starverse.node.log_cap import cap_log, first_byte
from starverse.node.logs import OutputRefused, open_beneath, place_of
from starverse.testing.launches import build_launch

MOUNTS = (
    Mount("/host/disk", "/data/disk", read_only=False),
    Mount("/host/digits", "/dataset/digits"),
)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("slurm-1.out", ("/host/ws", "slurm-1.out")),
        ("logs/a.out", ("/host/ws", "logs/a.out")),
        ("/workspace/a.out", ("/host/ws", "a.out")),
        ("/data/disk/a.out", ("/host/disk", "a.out")),
    ],
)
def test_place_of_an_output_file(name: str, place: tuple[str, str]) -> None:
    spec = build_launch(Path("/nowhere"), workspace="/host/ws", mounts=MOUNTS)
    assert place_of(spec, name) == place


@pytest.mark.parametrize("name", ["/etc/passwd", "../x", "/dataset/digits/x", "/workspace", "/workspacex/a"])
def test_places_outside_are_refused(name: str) -> None:
    spec = build_launch(Path("/nowhere"), workspace="/host/ws", mounts=MOUNTS)
    with pytest.raises(OutputRefused):
        place_of(spec, name)


def test_open_beneath_makes_folders_and_follows_no_link(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    os.close(open_beneath(str(inside), "a/b/c", owner=None))
    assert (inside / "a/b/c").is_file()
    (inside / "folder").symlink_to(outside)
    (inside / "file").symlink_to(outside / "planted")
    os.mkfifo(inside / "pipe")
    for path in ("folder/x", "file", "pipe", "a"):
        with pytest.raises(OSError):
            open_beneath(str(inside), path, owner=None)
    assert list(outside.iterdir()) == []


def test_the_cap_punches_whole_blocks_and_moves_no_offset(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a" * 50_000 + b"end")
    with path.open("r+b") as file:
        assert cap_log(file.fileno(), 100_000, 0) == 0
        punched = cap_log(file.fileno(), 20_000, 0)
        assert punched == 28_672
        assert first_byte(file.fileno()) == punched
        assert cap_log(file.fileno(), 20_000, punched) == punched
    assert path.stat().st_size == 50_003
    assert path.read_bytes()[punched:] == b"a" * (50_000 - punched) + b"end"
