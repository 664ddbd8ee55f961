"""Fragmentation gradient descent as published: Weng et al., Beware of Fragmentation, USENIX ATC 2023.

A node's fragments for a usual task are all its free cards where the task does not fit, else those too small
for it; a task goes where their expectation grows least. As in the authors' simulator the score is a whole
number from 0 to 100 of a sigmoid, the usual tasks cover 95 % of arrivals, and the first of equals wins.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from starverse.domain.scheduling.fragmentation import (
    CARD,
    Floats,
    Ints,
    NodeRoom,
    Placer,
    Task,
    Workload,
    Worth,
)

COVERED = 0.95


class FragmentWorth(Worth):
    """Worth is what is no fragment, in thousandths of a card."""

    @classmethod
    def of(cls, workload: Workload, nodes: Sequence[NodeRoom]) -> FragmentWorth:
        ours = Worth.of(workload, nodes)
        free = np.arange(CARD + 1)[:, None]
        part = np.array([task.card_milli for task in workload.tasks], dtype=np.int64)
        return cls(
            ours.models,
            ours.cpu_milli,
            np.array([task.milli for task in workload.tasks], dtype=np.float32),
            ours.allowed,
            (ours.allowed * np.array(workload.shares)).astype(np.float32),
            np.where(free >= part, free, 0).astype(np.float32),
        )

    def of_rows(self, fits: Floats, cpu_milli: Ints, model: Ints) -> Floats:
        fit = (cpu_milli[:, None] >= self.cpu_milli) & (fits >= self.cards)
        worth: Floats = np.einsum("nk,nk->n", fits * fit, self.weight[model])
        return worth


class FragmentationGradient(Placer):
    """The published rule; ``place`` as :class:`Placer` has it."""

    def __init__(self, arrivals: Sequence[Task], nodes: Sequence[NodeRoom]) -> None:
        super().__init__(Workload.of_arrivals(arrivals, COVERED), nodes, FragmentWorth)

    def pick(self, cost: npt.NDArray[np.floating], best: int, task: Task) -> int:
        score = np.floor(100 / (1 + np.exp((cost - task.milli) / CARD)))
        return int((score == score[best]).argmax())
