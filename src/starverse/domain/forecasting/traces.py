"""A trace of free cards in JSON, as the public ones are: steps of equal length, without times."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import numpy as np

from starverse.domain.errors import Invalid
from starverse.domain.forecasting.series import HourlySeries

TRACE_START = datetime(1970, 1, 5, tzinfo=UTC)
"""Traces carry no times: the first sample is taken as Monday 00:00."""


def read_trace(text: str) -> tuple[HourlySeries, HourlySeries | None]:
    """Free cards and, where the trace has them, prices. Raises ``Invalid`` with what is wrong."""
    try:
        trace = json.loads(text)
        gap = int(trace["metadata"]["gap_seconds"])
        data = np.array([np.nan if value is None else float(value) for value in trace["data"]])
        paid = [np.nan if value is None else float(value) for value in trace.get("prices") or []]
    except (ValueError, KeyError, TypeError) as wrong:
        raise Invalid(
            f"this is no trace: {wrong!r}",
            hint='it is JSON: {"metadata": {"gap_seconds": 300}, "data": [0, 3], "prices": [1.2, 0.9]}',
        ) from wrong
    if len(data) == 0 or (data < 0).any() or np.isinf(data).any():
        raise Invalid("a trace has at least one sample, and none below zero")
    series = HourlySeries(TRACE_START, data, gap)
    return series, HourlySeries(TRACE_START, np.array(paid), gap) if len(paid) == len(data) else None
