"""Two engines on one data folder: what the one wrote last for a launcher never hides what the other wants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from starverse.domain.workloads.launch import Desired
from starverse.engines.base import EngineUnavailable
from starverse.engines.local import LocalEngine
from starverse.node.cards.declared import DeclaredCards
from starverse.node.channel_server import ChannelServer
from starverse.node.folder import AllocationFolder

WANTED = Desired(funded_until=100.0, notice_reason="reclaim", notice_deadline=50.0)
OUTDATED = Desired(funded_until=100.0)


def test_what_an_outdated_server_wrote_is_written_over(tmp_path: Path) -> None:
    one, other = (LocalEngine(tmp_path, DeclaredCards("rtx4090:1"), use_zygote=False) for _ in range(2))
    folder = AllocationFolder(tmp_path / "allocations" / "a1")
    folder.path.mkdir(parents=True)
    (folder / "spec.json").write_text("{}")
    one.steer("a1", WANTED)
    other.steer("a1", OUTDATED)  # it decided this before, and hung
    assert folder.read_desired() == OUTDATED
    one.steer("a1", WANTED)
    assert folder.read_desired() == WANTED


def test_what_stands_there_is_not_written_again(tmp_path: Path) -> None:
    engine = LocalEngine(tmp_path, DeclaredCards("rtx4090:1"), use_zygote=False)
    folder = AllocationFolder(tmp_path / "allocations" / "a1")
    folder.path.mkdir(parents=True)
    (folder / "spec.json").write_text("{}")
    engine.steer("a1", WANTED)
    before = (folder / "desired.json").stat()
    engine.steer("a1", WANTED)
    assert (folder / "desired.json").stat() == before


class Overheard(ChannelServer):
    """Notes what is sent."""

    sent: tuple[Desired, ...] = ()

    def send(self, allocation_id: str, desired: Desired) -> None:
        self.sent += (desired,)
        super().send(allocation_id, desired)


def test_what_cannot_be_written_down_is_said_all_the_same_until_it_can(tmp_path: Path) -> None:
    channels: list[Overheard] = []

    def open_channel(answers: Any) -> ChannelServer:
        channels.append(Overheard(tmp_path / "channel.sock", answers))
        return channels[0]

    engine = LocalEngine(tmp_path, DeclaredCards("rtx4090:1"), use_zygote=False, open_channel=open_channel)
    folder = AllocationFolder(tmp_path / "allocations" / "a1")
    folder.path.mkdir(parents=True)
    (folder / "spec.json").write_text("{}")
    (folder / ".desired.json.new").mkdir()  # as on a full disk
    for _ in range(2):
        with pytest.raises(EngineUnavailable, match="cannot be written"):
            engine.steer("a1", Desired(stop=True))
    (folder / ".desired.json.new").rmdir()
    engine.steer("a1", Desired(stop=True))
    assert folder.read_desired() == Desired(stop=True)
    assert channels[0].sent == (Desired(stop=True),) * 3


def test_a_server_that_starts_leaves_the_files_of_another_in_their_place(tmp_path: Path) -> None:
    first = LocalEngine(tmp_path, DeclaredCards("rtx4090:1"), use_zygote=False)
    first.start()
    seen = set((tmp_path / "sandbox").glob("etc-*"))
    assert seen
    second = LocalEngine(
        tmp_path,
        DeclaredCards("rtx4090:1"),
        use_zygote=False,
        open_channel=lambda answers: ChannelServer(tmp_path / "other.sock", answers),
    )
    second.start()
    assert seen <= set((tmp_path / "sandbox").glob("etc-*"))
    for engine in (first, second):
        engine.close()
