"""The nodes to replay on, from a CSV file: openb's list of nodes, or ``count,cards,model,cpus,memory_gib``.

``zone`` and ``fabric`` may follow in the short form; a row with ``count`` 10 stands for ten equal nodes.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping

from starverse.domain.errors import FieldFault, Invalid
from starverse.domain.ids import CardId, NodeId
from starverse.domain.scheduling.capacity import CARDS_PER_NODE_MAX
from starverse.domain.scheduling.snapshot import Card, Node

NODES_MAX = 20_000


def read_nodes(text: str, model: str | None = None) -> tuple[Node, ...]:
    """``model`` replaces every model of the file, so that a price book knows it.

    Raises ``Invalid`` with the line of the first row that is no node.
    """
    lines = text.splitlines()
    head = set(lines[0].split(",")) if lines else set()
    rows = csv.DictReader(lines)
    nodes: list[Node] = []
    if not ({"sn", "cpu_milli", "gpu"} <= head or {"count", "cards", "model", "cpus"} <= head):
        fault = FieldFault("nodes", lines[0][:60] if lines else "", "count,cards,model,cpus,memory_gib")
        raise Invalid(faults=[fault])
    for row in rows:
        try:
            nodes += _openb(row, model) if "sn" in head else _short(row, model, len(nodes))
        except (ValueError, KeyError, TypeError) as error:
            fault = FieldFault("nodes", f"line {rows.line_num}", f"a node ({error})")
            raise Invalid(faults=[fault]) from error
        if len(nodes) > NODES_MAX:
            raise Invalid(faults=[FieldFault("nodes", f"line {rows.line_num}", f"at most {NODES_MAX} nodes")])
    if not nodes:
        raise Invalid(faults=[FieldFault("nodes", "no rows", "at least one node")])
    return tuple(nodes)


def _openb(row: Mapping[str, str], model: str | None) -> list[Node]:
    cards, kind = int(row["gpu"]), model or row["model"]
    memory = int(row["memory_mib"]) * 1024**2
    return [_node(row["sn"], cards, kind, int(row["cpu_milli"]) // 1000, memory, "all", "eth")]


def _short(row: Mapping[str, str], model: str | None, first: int) -> list[Node]:
    memory = int(row.get("memory_gib") or 512) * 1024**3
    zone, fabric = row.get("zone") or "all", row.get("fabric") or "eth"
    count = int(row["count"])
    if not 1 <= count <= NODES_MAX:
        raise ValueError(f"{count} nodes")
    return [
        _node(
            f"node-{first + n:05}",
            int(row["cards"]),
            model or row["model"],
            int(row["cpus"]),
            memory,
            zone,
            fabric,
        )
        for n in range(count)
    ]


def _node(name: str, cards: int, model: str, cpus: int, memory: int, zone: str, fabric: str) -> Node:
    if not 0 <= cards <= CARDS_PER_NODE_MAX or cpus < 1 or memory < 1:
        raise ValueError(f"{cards} cards, {cpus} CPUs, {memory} bytes")
    return Node(
        id=NodeId(name),
        generation=0,
        zone=zone,
        fabric=fabric,
        cpus=cpus,
        memory_bytes=memory,
        cards=tuple(Card(CardId(f"{name}/{index}"), index, model) for index in range(cards)),
    )
