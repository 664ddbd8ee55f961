"""A pool's past as even samples, with its gaps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from starverse.domain.errors import Invalid

Floats = NDArray[np.float64]
HOUR_SECONDS = 3600
WEEK_HOURS = 168


@dataclass(frozen=True, slots=True, eq=False)
class HourlySeries:
    """Free cards (or prices) at even steps from ``start`` on, the newest last.

    ``values`` is one-dimensional; NaN marks a gap. A step is an hour unless the past was kept finer
    (``step_seconds``); horizons are always hours. ``start`` is aware; hours of the day and of the week
    are those of its zone.
    """

    start: datetime
    values: Floats
    step_seconds: int = HOUR_SECONDS

    def __post_init__(self) -> None:
        if self.start.tzinfo is None:
            raise Invalid("a series starts at an instant with a zone")
        if not 0 < self.step_seconds <= HOUR_SECONDS or self.values.ndim != 1:
            raise Invalid("a series is one row of samples, at most an hour apart")

    def __len__(self) -> int:
        return len(self.values)

    @property
    def hours(self) -> float:
        """How much past there is, gaps included."""
        return len(self.values) * self.step_seconds / HOUR_SECONDS

    @property
    def end(self) -> datetime:
        """The instant of the newest sample; hour 1 of a forecast is an hour after it."""
        return self.start + timedelta(seconds=max(0, len(self.values) - 1) * self.step_seconds)

    @property
    def gap_share(self) -> float:
        """The share of samples that are missing; 1.0 without samples."""
        return float(np.isnan(self.values).mean()) if len(self.values) else 1.0

    def filled(self) -> HourlySeries:
        """Gaps take the last value before them (the first ones, the first value there is)."""
        known = ~np.isnan(self.values)
        if not known.any():
            return replace(self, values=np.empty(0))
        last = np.maximum.accumulate(np.where(known, np.arange(len(self.values)), 0))
        last = np.where(known[last], last, int(known.argmax()))
        return replace(self, values=self.values[last])

    def hourly(self) -> HourlySeries:
        """The samples on the hour from ``start`` on."""
        if self.step_seconds == HOUR_SECONDS:
            return self
        at = np.arange(0, int(self.hours)) * HOUR_SECONDS // self.step_seconds
        return HourlySeries(self.start, self.values[at])


def from_samples(samples: list[tuple[datetime, float]]) -> HourlySeries:
    """Hourly series of samples in any order, with gaps where an hour has none; of two in an hour, the later.

    Raises :class:`Invalid` without samples.
    """
    if not samples:
        raise Invalid("there are no samples to make a series of")
    ordered = sorted(samples, key=lambda sample: sample[0])
    start = ordered[0][0].replace(minute=0, second=0, microsecond=0)
    hour_of = [int((at - start).total_seconds()) // HOUR_SECONDS for at, _ in ordered]
    values = np.full(hour_of[-1] + 1, np.nan)
    for hour, (_, value) in zip(hour_of, ordered, strict=True):
        values[hour] = value
    return HourlySeries(start, values)
