"""What of a node's disk and network one workload may have at most.

A node's rate is divided into one part for each of its cards and one more for workloads without cards. So what
the cards' workloads may have together, with one without cards beside them, is never more than the node has,
and no neighbour that goes flat out takes from another's part.
"""

from __future__ import annotations

from collections.abc import Iterable


def rate_of_workload(
    limit: int | None, node_rate: int | None, places: Iterable[tuple[int, int]]
) -> int | None:
    """Bytes a second on each of its nodes; ``None``: as much as there is.

    ``limit`` is the operator's for every workload, ``node_rate`` what a node has; ``None``: not said.
    ``places``: for each node of the workload, how many cards it has there, and how many the node has. It has
    the least of them everywhere, for a gang is as fast as its slowest member.
    """
    rates = [] if limit is None else [limit]
    if node_rate is not None:
        rates += [max(1, node_rate * max(1, own) // (max(1, own, of_node) + 1)) for own, of_node in places]
    return min(rates, default=None)
