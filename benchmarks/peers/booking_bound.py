"""The most card-seconds of fixed windows that any admission could accept, in hindsight: a linear bound.

Each request may be accepted in part and all are known beforehand, so no admission reaches above it. Solved by
HiGHS through SciPy (Huangfu and Hall, 2018); one row for each start, where alone the load can grow.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]


def accepted_at_most(starts: Numbers, ends: Numbers, cards: Numbers, capacity: int) -> float:
    """Card-seconds; raises ``ImportError`` where SciPy is not there."""
    optimize: Any = importlib.import_module("scipy.optimize")
    sparse: Any = importlib.import_module("scipy.sparse")
    edges = np.unique(starts)
    begin, stop = np.searchsorted(edges, starts), np.searchsorted(edges, ends)
    rows = np.concatenate([np.arange(first, last) for first, last in zip(begin, stop, strict=True)])
    columns = np.repeat(np.arange(len(starts)), stop - begin)
    used = sparse.coo_matrix((np.repeat(cards, stop - begin), (rows, columns))).tocsr()
    worth = cards * (ends - starts)
    solved = optimize.linprog(
        -worth / worth.max(), A_ub=used, b_ub=np.full(len(edges), capacity), bounds=(0, 1), method="highs"
    )
    return float(-solved.fun * worth.max())
