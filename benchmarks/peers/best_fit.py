"""Best fit: the node with the least left over, cards and CPUs each as a share of the largest node's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from starverse.domain.scheduling.fragmentation import CARD, NodeRoom, Place, Task


class BestFit:
    """One pass of arrays over all nodes for each task; a part of a card goes to the fullest that takes it."""

    def __init__(self, nodes: Sequence[NodeRoom]) -> None:
        width = max(len(node.cards) for node in nodes)
        self.cards = np.zeros((len(nodes), width), dtype=np.int32)
        for row, node in enumerate(nodes):
            self.cards[row, : len(node.cards)] = node.cards
        self.cpu_milli = np.array([node.cpu_milli for node in nodes], dtype=np.int64)
        self.memory_mib = np.array([node.memory_mib for node in nodes], dtype=np.int64)
        self.models = np.array([node.model for node in nodes])
        self._largest = (width * CARD, int(self.cpu_milli.max()))
        self._allowed: dict[frozenset[str], np.ndarray] = {}

    def place(self, task: Task, memory_mib: int = 0) -> Place | None:
        """Where the task goes, taken at once; ``None`` where it fits nowhere."""
        if task.models not in self._allowed:
            free_choice = np.ones(len(self.models), dtype=bool)
            listed = np.isin(self.models, sorted(task.models))
            self._allowed[task.models] = listed if task.models else free_choice
        good = self._allowed[task.models] & (self.cpu_milli >= task.cpu_milli)
        good &= self.memory_mib >= memory_mib
        if task.cards:
            good &= (self.cards >= task.card_milli).sum(1) >= task.cards
        rows = np.flatnonzero(good)
        if not rows.size:
            return None
        left = self.cards[rows].sum(1) / self._largest[0] + self.cpu_milli[rows] / self._largest[1]
        row = int(rows[left.argmin()])
        able = np.flatnonzero(self.cards[row] >= task.card_milli)
        order = able[np.argsort(self.cards[row][able], kind="stable")]
        chosen = tuple(int(place) for place in order[: task.cards])
        self.cards[row, list(chosen)] -= task.card_milli
        self.cpu_milli[row] -= task.cpu_milli
        self.memory_mib[row] -= memory_mib
        return Place(row, chosen)
