"""Nodes as engines report them, with defaults."""

from __future__ import annotations

from starverse.domain.cluster import CardReport, NodeReport

GIB = 1024**3


def node_report(
    node_id: str = "n1", model: str = "rtx4090", cards: int = 8, *, fabric: str = "eth", zone: str = "bj1"
) -> NodeReport:
    """A node of declared cards of one model."""
    return NodeReport(
        node_id=node_id,
        zone=zone,
        fabric=fabric,
        cpus=64,
        memory_bytes=256 * GIB,
        cards=tuple(
            CardReport(
                card_id=f"{node_id}:{index}",
                index=index,
                uuid=f"GPU-{node_id}-{index}",
                model=model,
                memory_bytes=24 * GIB,
                declared=True,
            )
            for index in range(cards)
        ),
    )
