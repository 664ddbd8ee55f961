"""Nodes and cards as an engine reports them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile


@dataclass(frozen=True, slots=True)
class CardReport:
    """A card as the engine sees it. ``healthy`` false comes with a ``message``."""

    card_id: str
    index: int
    uuid: str
    model: str
    memory_bytes: int
    declared: bool
    healthy: bool = True
    message: str = ""


@dataclass(frozen=True, slots=True)
class LinkReport:
    """A link between two cards of a node by index; higher is better (NVLink 100, one PCIe switch 50)."""

    a: int
    b: int
    quality: int


DRAINED = "drained in "
"""How the message of a node begins on which its engine starts nothing new while what runs there goes on."""


def node_state(up: bool, message: str) -> str:
    """``up``, ``drained`` (by its engine) or ``down``."""
    if up:
        return "up"
    return "drained" if message.startswith(DRAINED) else "down"


def is_older_driver(driver: str, wanted: str) -> bool:
    """Whether an NVIDIA driver is older than the one wanted, by its numbers (``550.54.14`` after ``550.9``).

    False where one of them is not told: nothing is known against the node then.
    """
    have, need = _numbers(driver), _numbers(wanted)
    return bool(have and need) and have < need


def _numbers(version: str) -> tuple[int, ...]:
    parts = re.split(r"[.-]", version)
    numbers = tuple(int(part) for part in takewhile(str.isdecimal, parts))
    return numbers + (0,) * (4 - len(numbers)) if numbers else ()


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node as the engine sees it; ``up`` false comes with a ``message``. ``fabric``: ib, roce or eth.

    ``driver`` is the version of its NVIDIA driver, ``""``: not told.
    """

    node_id: str
    zone: str
    fabric: str
    cpus: int
    memory_bytes: int
    cards: tuple[CardReport, ...]
    links: tuple[LinkReport, ...] = ()
    up: bool = True
    message: str = ""
    driver: str = ""
