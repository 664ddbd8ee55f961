"""The nodes as last read: only those whose generation moved are read again.

A node's generation counts every change of what the scheduler sees of it, so equal generations are equal
nodes. Only for reading transactions: what a writing one sees may be rolled back.
"""

from __future__ import annotations

from threading import Lock

from sqlalchemy import Connection

from starverse.db import inventory
from starverse.domain.scheduling.fit import kinds_of
from starverse.domain.scheduling.snapshot import Node


class NodeMemory:
    """Of one database; safe for several threads. What an older snapshot puts back is read again, no more."""

    def __init__(self) -> None:
        self._nodes: tuple[Node, ...] = ()
        self._kinds: tuple[tuple[Node, ...], tuple[Node, ...]] = ((), ())
        self._lock = Lock()

    def read(self, connection: Connection) -> tuple[Node, ...]:
        """Every node, by id; the very same tuple while nothing changed."""
        generations = inventory.generations(connection)
        with self._lock:
            nodes = self._nodes
        if [(node.id, node.generation) for node in nodes] == generations:
            return nodes
        known = {(node.id, node.generation): node for node in nodes}
        changed = [node_id for node_id, generation in generations if (node_id, generation) not in known]
        fresh = inventory.load_nodes_named(connection, changed)
        nodes = tuple(fresh.get(pair[0]) or known[pair] for pair in generations)
        with self._lock:
            self._nodes = nodes
        return nodes

    def kinds(self, nodes: tuple[Node, ...]) -> tuple[Node, ...]:
        """One node of each kind of them; remembered while the nodes are the same."""
        of, kinds = self._kinds
        if of is not nodes:
            kinds = kinds_of(nodes)
            self._kinds = (nodes, kinds)
        return kinds
