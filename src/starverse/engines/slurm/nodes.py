"""From Slurm's nodes to ours."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from starverse.domain.cluster import DRAINED
from starverse.engines.base import CardReport, LinkReport, NodeReport
from starverse.engines.slurm.facts import DRAINS, UNUSABLE, SlurmNode
from starverse.node.cards.models import MEMORY_BYTES, model_of

MIB = 1024**2
GIB = 1024**3
SAME_SOCKET = 10
FABRICS = ("ib", "roce", "eth")
_UNKNOWN_MEMORY_BYTES = 24 * GIB


def our_nodes(nodes: Iterable[SlurmNode], partitions: Collection[str]) -> tuple[SlurmNode, ...]:
    """Those in partitions of ours; without any named, all that are in one."""
    wanted = set(partitions)
    return tuple(
        node for node in nodes if (wanted & set(node.partitions) if wanted else bool(node.partitions))
    )


def report(
    node: SlurmNode, zone: str, partitions: Collection[str], models: Mapping[str, str], *, declared: bool
) -> NodeReport:
    """A node as the platform sees it. Cards are named NODE-INDEX: Slurm knows them by no other name.

    A node that a partition of somebody else uses too is not usable: two would give away its cards.
    ``models`` names gres types where our own rule would not find the right name.
    """
    up, message = _is_up(node, partitions)
    cards = tuple(
        CardReport(
            card_id=f"{node.name}-{index}",
            index=index,
            uuid=f"{node.name}-{index}",
            model=model,
            memory_bytes=MEMORY_BYTES.get(model, _UNKNOWN_MEMORY_BYTES),
            declared=declared,
        )
        for index, model in enumerate(
            model_name(cards.kind, models) for cards in node.cards for _ in range(cards.count)
        )
    )
    return NodeReport(
        node_id=node.name,
        zone=zone,
        fabric=fabric_of(node.features),
        cpus=node.cpus,
        memory_bytes=node.memory_mib * MIB,
        cards=cards,
        links=_links(len(cards), node.sockets),
        up=up,
        message=message,
    )


def model_name(kind: str, models: Mapping[str, str]) -> str:
    """Our name of a gres type; ``""`` (a gres.conf without types) has to be named by the operator."""
    named = models.get(kind) or models.get(kind.lower())
    if named:
        return named
    lower = kind.lower()
    if lower in MEMORY_BYTES:
        return lower
    size = re.search(r"(\d+)\s*gb?\b", lower)
    return model_of(kind.replace("_", " "), int(size[1]) * GIB if size else 0)


def fabric_of(features: Collection[str]) -> str:
    """The first of ib, roce and eth among the node's features; ``eth`` where it names none."""
    lower = {feature.lower() for feature in features}
    return next((fabric for fabric in FABRICS if fabric in lower), "eth")


def _is_up(node: SlurmNode, partitions: Collection[str]) -> tuple[bool, str]:
    others = sorted(set(node.partitions) - set(partitions)) if partitions else []
    if others:
        return False, f"partition {', '.join(others)} uses this node too: give it to one of them alone"
    if not node.usable:
        bad = node.states & UNUSABLE
        told = f"{DRAINED}Slurm" if bad <= DRAINS else f"Slurm says {'+'.join(sorted(bad)).lower()}"
        return False, told + (f": {node.reason}" if node.reason else "")
    return True, ""


def _links(count: int, sockets: int) -> tuple[LinkReport, ...]:
    """Cards of one socket are nearer to each other; Slurm says no more than how many sockets there are."""
    if sockets < 2 or count < 2:
        return ()
    per_socket = -(-count // sockets)
    return tuple(
        LinkReport(a, b, SAME_SOCKET)
        for a in range(count)
        for b in range(a + 1, count)
        if a // per_socket == b // per_socket
    )
