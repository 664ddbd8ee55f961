"""Cards that are lent though they are not there: ``--declare-cards rtx4090:8,a100-40g:4@550.54.14``.

What stands behind ``@`` is the driver that the node says it has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from starverse.domain.errors import FieldFault, Invalid
from starverse.engines.base import CardReport, LinkReport, NodeReport
from starverse.node.cards.models import MEMORY_BYTES
from starverse.node.cards.source import (
    FABRIC_DEFAULT,
    ZONE_DEFAULT,
    CardUsage,
    read_host_cpus,
    read_host_memory_bytes,
)

CARDS_PER_NODE_MAX = 64
CPUS_PER_CARD = 8


class DeclaredCards:
    """One node per entry, ``declared-1`` and so on; every card says that it is declared.

    CPUs are declared too (never fewer than the host has); memory is real, shared evenly by the nodes.
    Cards of a node stand in pairs behind one switch, so that placement has something to choose.
    """

    def __init__(self, text: str, *, zone: str = ZONE_DEFAULT, fabric: str = FABRIC_DEFAULT) -> None:
        entries = parse_declaration(text)
        memory = read_host_memory_bytes() // len(entries)
        self._nodes = tuple(
            _declare(f"declared-{number}", entry, memory, (zone, fabric))
            for number, entry in enumerate(entries, start=1)
        )

    def probe(self) -> tuple[NodeReport, ...]:
        return self._nodes

    def usage(self) -> Mapping[str, CardUsage]:
        return {}


@dataclass(frozen=True, slots=True)
class DeclaredNode:
    """``driver`` ``""``: it tells none."""

    model: str
    cards: int
    driver: str = ""


def parse_declaration(text: str) -> list[DeclaredNode]:
    """What each node is said to have; raises :class:`Invalid` naming every entry that is wrong."""
    entries: list[DeclaredNode] = []
    faults = []
    for entry in text.split(","):
        found = re.fullmatch(r"\s*([a-z0-9][a-z0-9-]*):(\d{1,4})(?:@(\d[\d.]{2,30}))?\s*", entry)
        if found is None or not 1 <= int(found[2]) <= CARDS_PER_NODE_MAX:
            right = f"MODEL:COUNT such as rtx4090:8, 1 to {CARDS_PER_NODE_MAX} cards on a node"
            faults.append(FieldFault("declare-cards", entry.strip(), right))
        else:
            entries.append(DeclaredNode(found[1], int(found[2]), found[3] or ""))
    if faults:
        raise Invalid(faults=faults)
    return entries


def _declare(name: str, node: DeclaredNode, memory: int, place: tuple[str, str]) -> NodeReport:
    model, count = node.model, node.cards
    return NodeReport(
        node_id=name,
        zone=place[0],
        fabric=place[1],
        cpus=max(read_host_cpus(), CPUS_PER_CARD * count),
        memory_bytes=memory,
        cards=tuple(
            CardReport(
                card_id=f"{name}-card-{index}",
                index=index,
                uuid=f"DECLARED-{name}-{index}",
                model=model,
                memory_bytes=MEMORY_BYTES.get(model, 24 * 1024**3),
                declared=True,
            )
            for index in range(count)
        ),
        links=tuple(LinkReport(index, index + 1, 50) for index in range(0, count - 1, 2)),
        driver=node.driver,
    )
