"""What counts as an instance being in use, from two looks at its processes."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from starverse.domain.workloads.launch import Activity
from starverse.node.activity import (
    CPU_SHARE,
    DISK_BYTES_PER_SECOND,
    NETWORK_BYTES_PER_SECOND,
    SAMPLE_SECONDS,
    Sample,
    Usage,
    compare,
    next_look_seconds,
    read_network_bytes,
    read_processes,
    read_typed_at,
    take_sample,
)
from starverse.node.interactive import read_seen

TICKS = os.sysconf("SC_CLK_TCK")


def sample(at: float, cpu: float = 0, disk: int = 0, *, begun: int = 1, **more: float | int | None) -> Sample:
    return Sample(at, {7: Usage("python3", begun, int(cpu * TICKS), disk)}, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("after", "sources"),
    [
        (sample(110), []),
        (sample(110, cpu=10 * CPU_SHARE), []),
        (sample(110, cpu=10 * CPU_SHARE + 0.1), ["cpu"]),
        (sample(110, disk=10 * DISK_BYTES_PER_SECOND), []),
        (sample(110, disk=10 * DISK_BYTES_PER_SECOND + 1), ["disk"]),
        (sample(110, network_bytes=1000 + 10 * NETWORK_BYTES_PER_SECOND), []),
        (sample(110, network_bytes=1001 + 10 * NETWORK_BYTES_PER_SECOND), ["network"]),
        (sample(110, network_bytes=None), []),
        (sample(110, typed_at=99), []),
        (sample(110, typed_at=104), ["ssh"]),
        (sample(110, cpu=5, disk=1 << 30, begun=2), ["cpu", "disk"]),
        (sample(110, cpu=0, disk=0, begun=2), []),
        (Sample(110, {}), []),
    ],
    ids=[
        "nothing",
        "a small share of a core",
        "more than that",
        "few bytes",
        "more than few",
        "keep-alives of the network",
        "a download",
        "no network of its own",
        "typed before the look before",
        "typed since",
        "another process with the same number",
        "the same, and it does nothing",
        "all have ended",
    ],
)
def test_each_source_has_its_threshold(after: Sample, sources: list[str]) -> None:
    found = compare(sample(100, network_bytes=1000), after)
    assert [evidence.source for evidence in found] == sources
    assert all(evidence.detail for evidence in found)


def test_what_ended_between_two_looks_counts_with_its_parent() -> None:
    """pip's many short children: waited for, so that their parent has what they used."""
    before = Sample(100, {1: Usage("bash", 1, 0, 0)})
    after = Sample(110, {1: Usage("bash", 1, 3 * TICKS, 50 << 20)})
    assert [evidence.source for evidence in compare(before, after)] == ["cpu", "disk"]


def test_the_busiest_process_is_named() -> None:
    after = Sample(110, {1: Usage("idle", 1, 0, 0), 2: Usage("train", 1, 9 * TICKS, 0)})
    assert compare(Sample(100, {}), after)[0].detail == "90% of a core, most by train"


def test_looks_are_rarer_where_very_many_run() -> None:
    assert next_look_seconds(Sample(0, {})) == SAMPLE_SECONDS
    crowd = Sample(0, {pid: Usage("x", 1, 0, 0) for pid in range(2000)})
    assert next_look_seconds(crowd) == 5 * SAMPLE_SECONDS


def test_own_work_is_read_from_the_kernel(tmp_path: Path) -> None:
    """Reading and writing a few MiB shows in this process; what is ours is left out."""
    before = take_sample(time.time(), (), own_network=False)
    (tmp_path / "file").write_bytes(bytes(4 << 20))
    (tmp_path / "file").read_bytes()
    after = take_sample(time.time(), (), own_network=False)
    mine = os.getpid()
    assert after.processes[mine].disk_bytes - before.processes[mine].disk_bytes >= 8 << 20
    assert after.network_bytes is None
    assert mine not in read_processes((mine,))


def test_network_is_counted_without_the_loopback(tmp_path: Path) -> None:
    head = "Inter-|   Receive\n face |bytes    packets\n"
    loopback = "    lo:  900 1 0 0 0 0 0 0  900 1 0 0 0 0 0 0\n"
    (tmp_path / "alone").write_text(head + loopback)
    (tmp_path / "dev").write_text(head + loopback + "  eth0:  100 1 0 0 0 0 0 0  23 1 0 0 0 0 0 0\n")
    assert read_network_bytes(str(tmp_path / "alone")) is None
    assert read_network_bytes(str(tmp_path / "dev")) == 123
    assert read_network_bytes(str(tmp_path / "nothing")) is None


def test_a_terminal_tells_when_input_was_read(tmp_path: Path) -> None:
    assert read_typed_at(str(tmp_path)) is None
    for name, at in (("0", 100), ("1", 300), ("ptmx", 900)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (at, 0))
    assert read_typed_at(str(tmp_path)) == 300


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("cpu 2.5 90% of a core", Activity("cpu", 97.5, "90% of a core")),
        ("ssh 0 shell\x1b[31m", Activity("ssh", 100, "shell?[31m")),
        ("cards 0 forged", None),
        ("cpu nan x", None),
        ("cpu -5 from the future", None),
        ("cpu inf x", None),
        ("cpu", None),
        ("", None),
    ],
)
def test_the_word_from_inside_is_a_strangers(text: str, seen: Activity | None) -> None:
    assert read_seen(text, 100) == seen
