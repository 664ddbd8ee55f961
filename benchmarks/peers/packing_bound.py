"""No rule can allocate more: the largest flow of what arrived into the cards of the models it may use.

Cards of one model are one bin; CPUs, memory and whole cards are ignored. By the theorem of the largest flow
and the smallest cut, the flow is the least, over sets of models, of: cards of these models, and what arrived
that may use none of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

from benchmarks.openb import Arrival
from starverse.domain.scheduling.fragmentation import NodeRoom


def bound_percent(nodes: Sequence[NodeRoom], arriving: Sequence[Arrival]) -> float:
    """% of all cards."""
    supply: Counter[str] = Counter()
    for node in nodes:
        supply[node.model] += sum(node.cards)
    asked: Counter[frozenset[str]] = Counter()
    for arrival in arriving:
        asked[arrival.task.models or frozenset(supply)] += arrival.task.milli
    least = min(
        sum(supply[model] for model in full)
        + sum(milli for models, milli in asked.items() if not models & set(supply) <= set(full))
        for size in range(len(supply) + 1)
        for full in combinations(sorted(supply), size)
    )
    return 100 * least / supply.total()
