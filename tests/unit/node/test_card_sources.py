"""Declared cards, cards from a file, and NVML with calls that are not supported."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from starverse.domain.errors import Invalid
from starverse.engines.base import EngineUnavailable
from starverse.node.cards.declared import DeclaredCards, parse_declaration
from starverse.node.cards.file import FileCards
from starverse.node.cards.models import GIB, model_of
from starverse.node.cards.nvml import NvmlCards


def test_one_declared_node_per_entry_and_every_card_says_so() -> None:
    nodes = DeclaredCards("rtx4090:8, a100-40g:4").probe()
    assert [(node.node_id, len(node.cards)) for node in nodes] == [("declared-1", 8), ("declared-2", 4)]
    assert {card.model for card in nodes[1].cards} == {"a100-40g"}
    assert all(card.declared for node in nodes for card in node.cards)
    assert len({card.card_id for node in nodes for card in node.cards}) == 12
    assert nodes[1].cards[0].memory_bytes == 40 * GIB
    assert {node.driver for node in nodes} == {""}


def test_a_declared_node_says_the_driver_it_is_given() -> None:
    nodes = DeclaredCards("rtx4090:8@550.54.14,a100-40g:4").probe()
    assert [node.driver for node in nodes] == ["550.54.14", ""]


@pytest.mark.parametrize(
    "text",
    ["", "rtx4090", "rtx4090:0", "rtx4090:65", "RTX 4090:8", "rtx4090:8,,", ":8", "rtx4090:8@", "t4:1@new"],
)
def test_a_wrong_declaration_is_named(text: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_declaration(text)
    assert "MODEL:COUNT" in caught.value.detail


@pytest.mark.parametrize(
    ("product", "gib", "model"),
    [
        ("NVIDIA GeForce RTX 4090", 24, "rtx4090"),
        ("NVIDIA GeForce RTX 4090 D", 24, "rtx4090d"),
        ("NVIDIA GeForce RTX 3090", 24, "rtx3090"),
        ("NVIDIA GeForce RTX 2080 Ti", 11, "rtx2080ti"),
        ("NVIDIA A100-SXM4-40GB", 39.4, "a100-40g"),
        ("NVIDIA A100 80GB PCIe", 79.2, "a100-80g"),
        ("NVIDIA A800-SXM4-80GB", 79.2, "a800-80g"),
        ("Tesla V100-SXM2-32GB", 31.7, "v100-32g"),
        ("Tesla T4", 15, "t4"),
        ("NVIDIA H200", 140, "h200"),
        ("NVIDIA H100 80GB HBM3", 79.6, "h100"),
        ("NVIDIA L40S", 45, "l40s"),
        ("NVIDIA RTX 6000 Ada Generation", 48, "rtx6000-ada-generation"),
        ("", 0, "unknown"),
    ],
)
def test_model_of_a_product(product: str, gib: float, model: str) -> None:
    assert model_of(product, int(gib * GIB)) == model


def test_a_card_file_is_read_anew_each_time(tmp_path: Path) -> None:
    path = tmp_path / "cards.json"
    source = FileCards(path)
    with pytest.raises(EngineUnavailable):
        source.probe()
    card: dict[str, Any] = {"model": "rtx4090", "uuid": "GPU-1"}
    path.write_text(json.dumps({"nodes": [{"node_id": "n1", "cards": [card], "links": []}]}))
    assert source.probe()[0].cards[0].healthy
    card["foreign_processes"] = [4711]
    path.write_text(json.dumps({"nodes": [{"node_id": "n1", "cards": [card]}]}))
    sick = source.probe()[0].cards[0]
    assert not sick.healthy
    assert "4711" in sick.message
    path.write_text("{")
    with pytest.raises(EngineUnavailable):
        source.probe()


class Unsupported(Exception):
    """Stands for ``NVMLError``."""


class FakeNvml(SimpleNamespace):
    """Two cards; every call that is not given here is unsupported."""

    NVMLError = Unsupported
    NVML_P2P_CAPS_INDEX_NVLINK = 2
    NVML_P2P_STATUS_OK = 0

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str:  # noqa: N802
        return f"GPU-{handle}"

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: object) -> None:
            raise Unsupported(name)

        return refuse


def test_nvml_with_nothing_but_uuids_still_reports_its_cards() -> None:
    (node,) = NvmlCards(FakeNvml(), node_id="n1").probe()
    assert [(card.uuid, card.model, card.healthy, card.declared) for card in node.cards] == [
        ("GPU-0", "unknown", True, False),
        ("GPU-1", "unknown", True, False),
    ]
    assert node.links == ()
    assert node.driver == ""
    assert node.up


def test_nvml_reads_names_memory_links_and_faults() -> None:
    nvml = FakeNvml(
        nvmlDeviceGetName=lambda _: b"NVIDIA A100-SXM4-40GB",
        nvmlSystemGetDriverVersion=lambda: b"550.54.14",
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(total=40 * GIB),
        nvmlDeviceGetP2PStatus=lambda *_: 0,
        nvmlDeviceGetRemappedRows=lambda handle: (0, 0, 0, handle),
    )
    (node,) = NvmlCards(nvml, node_id="n1").probe()
    assert [card.model for card in node.cards] == ["a100-40g", "a100-40g"]
    assert node.driver == "550.54.14"
    assert [(link.a, link.b, link.quality) for link in node.links] == [(0, 1, 100)]
    assert [card.healthy for card in node.cards] == [True, False]
    assert "replacing" in node.cards[1].message


def test_nvml_that_stops_answering_takes_the_node_down() -> None:
    def gone(_: int) -> str:
        raise Unsupported("GPU is lost")

    (node,) = NvmlCards(FakeNvml(nvmlDeviceGetUUID=gone), node_id="n1").probe()
    assert not node.up
    assert "GPU is lost" in node.message
