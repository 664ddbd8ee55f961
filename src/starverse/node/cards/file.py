"""Cards read from a JSON file that tests and trials change while the platform runs.

``{"nodes": [{"node_id", "zone", "fabric", "cpus", "memory_bytes", "up", "message", "driver",
"links": [[a, b, q]], "cards": [{"uuid", "model", "memory_bytes", "healthy", "message", "declared",
"memory_used_bytes", "utilisation", "foreign_processes": [pid, ...]}]}]}``; all but ``node_id`` and a card's
``model`` are optional.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from starverse.engines.base import CardReport, EngineUnavailable, LinkReport, NodeReport
from starverse.node.cards.models import MEMORY_BYTES
from starverse.node.cards.source import (
    FABRIC_DEFAULT,
    ZONE_DEFAULT,
    CardUsage,
    read_host_cpus,
    read_host_memory_bytes,
)

_Shape = TypeVar("_Shape")


class FileCards:
    """The file is read anew at each probe."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        return self._path

    def probe(self) -> tuple[NodeReport, ...]:
        """Raises :class:`EngineUnavailable` while the file is not there or is not right."""
        return self._read(lambda nodes: tuple(_node(node) for node in nodes))

    def usage(self) -> Mapping[str, CardUsage]:
        """As :meth:`probe`; cards of which the file says nothing of the kind are left out."""

        def read(nodes: list[dict[str, Any]]) -> dict[str, CardUsage]:
            return {
                _uuid(str(node["node_id"]), index, card): _usage(card)
                for node in nodes
                for index, card in enumerate(node.get("cards", ()))
                if {"memory_used_bytes", "utilisation", "foreign_processes"} & card.keys()
            }

        return self._read(read)

    def _read(self, shape: Callable[[Any], _Shape]) -> _Shape:
        try:
            return shape(json.loads(self._path.read_text())["nodes"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise EngineUnavailable(
                f"the card file {self._path.name} cannot be read: {error!r}", hint="mend the file"
            ) from error


def _node(raw: dict[str, Any]) -> NodeReport:
    name = str(raw["node_id"])
    return NodeReport(
        node_id=name,
        zone=raw.get("zone", ZONE_DEFAULT),
        fabric=raw.get("fabric", FABRIC_DEFAULT),
        cpus=int(raw.get("cpus", read_host_cpus())),
        memory_bytes=int(raw.get("memory_bytes", read_host_memory_bytes())),
        cards=tuple(_card(name, index, card) for index, card in enumerate(raw.get("cards", ()))),
        links=tuple(LinkReport(int(a), int(b), int(quality)) for a, b, quality in raw.get("links", ())),
        up=bool(raw.get("up", True)),
        message=raw.get("message", ""),
        driver=str(raw.get("driver", "")),
    )


def _uuid(node: str, index: int, raw: dict[str, Any]) -> str:
    return str(raw.get("uuid", f"GPU-{node}-{index}"))


def _memory(raw: dict[str, Any]) -> int:
    return int(raw.get("memory_bytes", MEMORY_BYTES.get(str(raw["model"]), 24 * 1024**3)))


def _usage(raw: dict[str, Any]) -> CardUsage:
    return CardUsage(
        memory_bytes=_memory(raw),
        utilisation=None if raw.get("utilisation") is None else float(raw["utilisation"]),
        memory_used_bytes=None if raw.get("memory_used_bytes") is None else int(raw["memory_used_bytes"]),
        processes=tuple(int(pid) for pid in raw.get("foreign_processes", ())),
    )


def _card(node: str, index: int, raw: dict[str, Any]) -> CardReport:
    model = str(raw["model"])
    message = raw.get("message", "")
    foreign = raw.get("foreign_processes", [])
    if foreign:
        message = message or f"foreign process {foreign[0]} is on the card"
    return CardReport(
        card_id=raw.get("card_id", f"{node}-card-{index}"),
        index=int(raw.get("index", index)),
        uuid=_uuid(node, index, raw),
        model=model,
        memory_bytes=_memory(raw),
        declared=bool(raw.get("declared", True)),
        healthy=bool(raw.get("healthy", True)) and not foreign,
        message=message,
    )
