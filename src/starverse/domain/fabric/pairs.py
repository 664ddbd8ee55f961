"""Which pairs of nodes to measure next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime


def choose_pairs(
    nodes: Collection[str], last_measured: Mapping[frozenset[str], datetime], pairs_max: int
) -> tuple[tuple[str, str], ...]:
    """At most so many different pairs: every node once before any twice, what was measured longest ago first.

    Greedy, in ``O(pairs_max x nodes)``; the same input gives the same pairs. Fewer than two nodes: none.
    """
    by_node: dict[str, datetime] = {}
    for pair, at in last_measured.items():
        for node in pair:
            by_node[node] = max(at, by_node.get(node, at))
    chosen: list[tuple[str, str]] = []
    taken: set[frozenset[str]] = set()
    uses = Counter[str]()

    def age(at: datetime | None) -> float:
        """Never before everything else, then the oldest."""
        return float("-inf") if at is None else at.timestamp()

    def ages(first: str, second: str) -> tuple[float, float]:
        """Of the pair, then of the second node with anyone."""
        return age(last_measured.get(frozenset((first, second)))), age(by_node.get(second))

    while len(chosen) < pairs_max:
        best: tuple[str, str] | None = None
        for first in sorted(nodes, key=lambda node: (uses[node], age(by_node.get(node)), node)):
            partners = [node for node in nodes if node != first and frozenset((first, node)) not in taken]
            if partners:
                second = min(partners, key=lambda node: (uses[node], *ages(first, node), node))
                best = (first, second)
                break
        if best is None:
            break
        chosen.append((min(best), max(best)))
        taken.add(frozenset(best))
        uses.update(best)
    return tuple(chosen)
