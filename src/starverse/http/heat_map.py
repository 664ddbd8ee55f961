"""When cards will be free together."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from starverse.app.heat_maps import HeatMapRequest, heat_maps
from starverse.http.routing import make_router
from starverse.http.security import AnyCaller, PlatformDep
from starverse.http.shapes import InstantText, Items, Out

router = make_router("offers")


class HeatMapHourOut(Out):
    """One hour ahead; prices in yuan per card-hour, null where none was recorded."""

    at: InstantText
    probability: float
    method: str
    free: float
    price: float | None
    price_low: float | None
    price_high: float | None


class ForecastRecordOut(Out):
    """How good the forecast has been; ``skill`` below zero: the model is hidden."""

    ahead_hours: int
    skill: float
    calibration_error: float
    best_naive: str
    outcomes: int


class CheapWindowOut(Out):
    """A window for a job; ``probability`` is that of its least likely hour."""

    start: InstantText
    hours: int
    price: float | None
    probability: float


class LowWindowOut(Out):
    """Hours of the week that have been cheap; ``week_hour`` counts from Monday 00:00."""

    week_hour: int
    hours: int
    text: str
    saving: float


class HeatMapOut(Out):
    """A pool's next 72 hours. ``enough_history`` false: less than a week is known."""

    pool: str
    cards: int
    history_hours: int
    enough_history: bool
    hours: list[HeatMapHourOut]
    record: list[ForecastRecordOut]
    windows: list[CheapWindowOut]
    low_windows: list[LowWindowOut]


@router.get("/heatmap")
def show_heat_maps(
    platform: PlatformDep,
    _: AnyCaller,
    card: Annotated[str | None, Query(max_length=100)] = None,
    cards: Annotated[int, Query(ge=1, le=1_000_000, description="Free together")] = 1,
    hours: Annotated[int, Query(ge=1, le=72, description="Length of the job to place")] = 1,
    fabric: Annotated[str | None, Query(max_length=20)] = None,
) -> Items[HeatMapOut]:
    """How likely cards are free together in each of the next 72 hours, for each pool, and at what price."""
    maps = heat_maps(platform, HeatMapRequest(cards, hours, card, fabric))
    return Items[HeatMapOut](items=[HeatMapOut.model_validate(told) for told in maps])
