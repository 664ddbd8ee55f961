# ruff: noqa: N802  (names of the binding)
"""When a card may be lent on, by what its source tells of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from starverse.domain.workloads.launch import GrantedCard, UncleanCard
from starverse.engines.base import EngineUnavailable
from starverse.node.cards.declared import DeclaredCards
from starverse.node.cards.file import FileCards
from starverse.node.cards.hygiene import GrantedCards, fault_of, granted_cards
from starverse.node.cards.nvml import NvmlCards
from starverse.node.cards.source import CardUsage
from starverse.testing.launches import build_launch

GIB = 1024**3
CARD = CardUsage(24 * GIB)


@pytest.mark.parametrize(
    ("usage", "why"),
    [
        (CARD, ""),
        (replace(CARD, memory_used_bytes=0), ""),
        (replace(CARD, memory_used_bytes=GIB // 2), ""),
        (replace(CARD, memory_used_bytes=GIB), "1.0 GiB of its memory are held by nobody"),
        (replace(CARD, memory_bytes=141 * GIB, memory_used_bytes=GIB), ""),
        (replace(CARD, processes=(4711,)), "process 4711 is still on it"),
        (replace(CARD, utilisation=1.0), ""),
    ],
    ids=[
        "nothing told",
        "empty",
        "what a driver keeps",
        "held",
        "a large card keeps more",
        "a process",
        "busy only",
    ],
)
def test_what_is_known_against_a_card(usage: CardUsage, why: str) -> None:
    assert fault_of(usage) == why


def write_cards(path: Path, *cards: dict[str, Any]) -> FileCards:
    path.write_text(
        json.dumps({"nodes": [{"node_id": "n", "cards": [{"model": "rtx4090", **c} for c in cards]}]})
    )
    return FileCards(path)


def test_a_card_is_waited_for_until_it_is_clean(tmp_path: Path) -> None:
    held = {"memory_used_bytes": 8 * GIB}
    cards = GrantedCards("n", {"GPU-n-0": 0, "GPU-n-1": 1}, write_cards(tmp_path / "c", {}, held))
    assert cards.unclean() == (UncleanCard("n", 1, "8.0 GiB of its memory are held by nobody"),)
    looks = 0

    def come_clean() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            write_cards(tmp_path / "c", {}, {"memory_used_bytes": 0})

    assert cards.settle(60, come_clean) == ()
    assert looks == 3


def test_what_does_not_come_clean_is_told_after_its_time(tmp_path: Path) -> None:
    source = write_cards(tmp_path / "c", {"foreign_processes": [7]}, {"foreign_processes": [8]})
    cards = GrantedCards("n", {"GPU-n-0": 0}, source)
    assert cards.settle(0.0, lambda: None) == (UncleanCard("n", 0, "process 7 is still on it"),), (
        "only its own"
    )


def test_a_source_that_does_not_answer_says_nothing_against_a_card(tmp_path: Path) -> None:
    broken = FileCards(tmp_path / "missing")
    with pytest.raises(EngineUnavailable):
        broken.usage()
    assert GrantedCards("n", {"GPU-n-0": 0}, broken).unclean() == ()
    assert GrantedCards("n", {"GPU-n-0": 0}, None).unclean() == ()


def test_the_card_that_works_hardest_is_evidence(tmp_path: Path) -> None:
    source = write_cards(tmp_path / "c", {"utilisation": 0.0}, {"utilisation": 0.4}, {"utilisation": 0.9})
    cards = GrantedCards("n", {"GPU-n-0": 0, "GPU-n-1": 1}, source)
    assert cards.busiest() == (1, 0.4)
    assert GrantedCards("n", {"GPU-n-0": 0}, source).busiest() is None


def test_which_source_a_launch_has(tmp_path: Path) -> None:
    declared = build_launch(tmp_path)
    assert granted_cards(declared, "").source is None, "what is not there is always clean"
    assert isinstance(granted_cards(declared, str(tmp_path / "c")).source, FileCards)
    own = DeclaredCards("rtx4090:2")
    assert granted_cards(declared, "", own).source is own
    far = GrantedCard("c", 5, "GPU-far", "rtx4090", declared=True, node="other")
    assert granted_cards(replace(declared, cards=(far,)), "").uuids == {}, "those of this node only"


class FakeNvml:
    """Three cards: one tells all by version 2, one by version 1 only, one nothing at all."""

    nvmlMemory_v2 = 2  # noqa: N815  (the binding's own name)

    class NVMLError(Exception):
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 3

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> bytes:
        return b"GPU-%d" % handle

    def nvmlDeviceGetMemoryInfo(self, handle: int, version: int = 1) -> SimpleNamespace:
        if handle == 2 or (handle == 1 and version == 2):
            raise self.NVMLError
        return SimpleNamespace(total=24 * GIB, used=(0 if version == 2 else 600 * 1024**2))

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        if handle:
            raise self.NVMLError
        return SimpleNamespace(gpu=37, memory=1)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> list[SimpleNamespace]:
        if handle == 2:
            raise self.NVMLError
        return [SimpleNamespace(pid=9), SimpleNamespace(pid=3)] if handle == 0 else []


def test_what_a_driver_does_not_tell_is_left_open() -> None:
    assert NvmlCards(FakeNvml(), node_id="n").usage() == {
        "GPU-0": CardUsage(24 * GIB, 0.37, 0, (3, 9)),
        "GPU-1": CardUsage(24 * GIB, None, 600 * 1024**2, ()),
        "GPU-2": CardUsage(0, None, None, ()),
    }
