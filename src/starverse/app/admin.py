"""What operators do and see: price books, accounts, gifts, the ledger check, nodes, status, events."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from starverse.app.platform import Platform
from starverse.db import nodes


@dataclass(frozen=True, slots=True)
class Figures:
    """Counts for metrics: nothing of any team."""

    jobs: Mapping[str, int]
    cards: Mapping[str, int]
    nodes_up: int


def figures(platform: Platform) -> Figures:
    """The platform's figures, now."""
    with platform.database.read() as connection:
        all_nodes = nodes.all_nodes(connection)
        jobs = nodes.jobs_by_state(connection)
    cards = Counter(card.state for node in all_nodes for card in node.cards)
    return Figures(jobs, dict(cards), sum(node.up for node in all_nodes))
