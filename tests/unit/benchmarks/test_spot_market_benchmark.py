"""What a reclaim costs in the replay of firm and spot work, and what a forecast keeps back."""

from __future__ import annotations

import pytest
from benchmarks.philly import Arrival
from benchmarks.spot_market import Cluster, InOrderOfArrival, WithForecast, jobs_of

FIRM = frozenset({"firm"})
HOUR = 3600.0


@pytest.mark.parametrize("policy", [InOrderOfArrival, WithForecast])
def test_firm_work_takes_cards_from_spot_which_goes_on_from_its_save(
    policy: type[InOrderOfArrival] | type[WithForecast],
) -> None:
    arrivals = [Arrival(0, 1800, 4, "spot"), Arrival(900, HOUR, 4, "firm")]
    outcome = Cluster(4, policy()).replay(jobs_of(arrivals, 4, FIRM))
    assert outcome.reclaims == 1
    assert outcome.firm_wait == 0
    assert outcome.spot_wait == HOUR
    assert outcome.lost_card_hours == pytest.approx(4 * 300 / HOUR)


def test_every_job_ends_and_more_cards_mean_less_waiting() -> None:
    arrivals = [Arrival(at * 60.0, 1200, 1 + at % 3, "firm" if at % 5 == 0 else "spot") for at in range(60)]
    narrow, wide = (Cluster(n, WithForecast()).replay(jobs_of(arrivals, n, FIRM)) for n in (8, 64))
    assert wide.reclaims == wide.spot_wait == wide.firm_wait == 0
    assert narrow.spot_wait > 0


def test_long_work_leaves_cards_that_firm_demand_is_used_to_ask_back() -> None:
    policy = WithForecast(quantile=1.0)
    for hour in range(60):
        policy.observe(4 if hour % 2 else 0, hour * HOUR)
    long_one, short_one = jobs_of([Arrival(0, 9 * HOUR, 4, "long"), Arrival(0, 60, 4, "short")], 8, FIRM)
    for job in (long_one, short_one):
        policy.ended(job)
    policy.add(long_one, 0)
    assert policy.next(4, 0, 60 * HOUR) is None
    policy.add(short_one, 0)
    assert policy.next(4, 0, 60 * HOUR) is short_one
