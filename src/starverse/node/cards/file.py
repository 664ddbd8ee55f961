"""Cards read from a JSON file that tests and trials change while the platform runs.

``{"nodes": [{"node_id", "zone", "fabric", "cpus", "memory_bytes", "up", "message", "driver",
"links": [[a, b, q]], "cards": [{"uuid", "model", "memory_bytes", "healthy", "message", "memory_used_bytes",
"foreign_processes": [pid, ...], "declared"}]}]}``; all but ``node_id`` and a card's ``model`` are optional.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from starverse.engines.base import CardReport, EngineUnavailable, LinkReport, NodeReport
from starverse.node.cards.models import MEMORY_BYTES
from starverse.node.cards.source import FABRIC_DEFAULT, ZONE_DEFAULT, read_host_cpus, read_host_memory_bytes


class FileCards:
    """The file is read anew at each probe."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def probe(self) -> tuple[NodeReport, ...]:
        """Raises :class:`EngineUnavailable` while the file is not there or is not right."""
        try:
            raw = json.loads(self._path.read_text())
            return tuple(_node(node) for node in raw["nodes"])
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


def _card(node: str, index: int, raw: dict[str, Any]) -> CardReport:
    model = str(raw["model"])
    message = raw.get("message", "")
    foreign = raw.get("foreign_processes", [])
    if foreign:
        message = message or f"foreign process {foreign[0]} is on the card"
    return CardReport(
        card_id=raw.get("card_id", f"{node}-card-{index}"),
        index=int(raw.get("index", index)),
        uuid=raw.get("uuid", f"GPU-{node}-{index}"),
        model=model,
        memory_bytes=int(raw.get("memory_bytes", MEMORY_BYTES.get(model, 24 * 1024**3))),
        declared=bool(raw.get("declared", True)),
        healthy=bool(raw.get("healthy", True)) and not foreign,
        message=message,
    )
