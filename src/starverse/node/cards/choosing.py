"""Which source of cards this host uses: declared ones, a file that tests change, or NVML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from starverse.engines.base import NodeReport
from starverse.node.cards.declared import DeclaredCards
from starverse.node.cards.file import FileCards
from starverse.node.cards.nvml import NoDriver, open_nvml
from starverse.node.cards.source import CardSource, CardUsage

FILE_PREFIX = "file:"


class NoCards:
    """A host without cards: it has no nodes to lend, and ``reason`` says why."""

    def __init__(self, reason: NoDriver) -> None:
        self.reason = reason

    def probe(self) -> tuple[NodeReport, ...]:
        return ()

    def usage(self) -> Mapping[str, CardUsage]:
        return {}


def card_source(declared: str, *, zone: str, fabric: str) -> CardSource:
    """``declared`` as ``--declare-cards`` takes it, or ``file:PATH``; empty: the cards that are really there.

    Raises ``Invalid`` for a declaration that cannot be read.
    """
    if declared.startswith(FILE_PREFIX):
        return FileCards(Path(declared.removeprefix(FILE_PREFIX)))
    if declared:
        return DeclaredCards(declared, zone=zone, fabric=fabric)
    found = open_nvml(zone=zone, fabric=fabric)
    return NoCards(found) if isinstance(found, NoDriver) else found
