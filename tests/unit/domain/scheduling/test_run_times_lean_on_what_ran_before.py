"""Predictions of run times: a script of its own, the team's size, everybody; and what ran already."""

from __future__ import annotations

import pytest

from starverse.domain.scheduling.run_times import PRIOR_SECONDS, RunFeatures, RunTimes

TRAIN = RunFeatures("vision", 8, "train.sh")


def test_before_anything_ended_the_prior_answers() -> None:
    assert RunTimes().predict(TRAIN).median_seconds == pytest.approx(PRIOR_SECONDS)


def test_a_script_that_ran_often_is_known_and_a_new_one_takes_after_its_team() -> None:
    times = RunTimes()
    for _ in range(20):
        times.observe(TRAIN, 40_000)
        times.observe(RunFeatures("vision", 8, "check.sh"), 60)
        times.observe(RunFeatures("speech", 1, "train.sh"), 600)
    known = times.predict(TRAIN).median_seconds
    assert 15_000 < known < 50_000
    assert times.predict(RunFeatures("vision", 8, "check.sh")).median_seconds < 120
    between = times.predict(RunFeatures("vision", 8, "new.sh")).median_seconds
    assert 120 < between < known
    assert times.predict(RunFeatures("speech", 1)).median_seconds == pytest.approx(600, rel=0.2)


def test_what_changed_lately_counts_most() -> None:
    times = RunTimes()
    for seconds in [100_000] * 30 + [100] * 10:
        times.observe(TRAIN, seconds)
    assert times.predict(TRAIN).median_seconds < 2_000


def test_quantiles_rise_and_never_fall_below_what_ran() -> None:
    times = RunTimes()
    for seconds in (100, 1_000, 10_000):
        times.observe(TRAIN, seconds)
    found = times.predict(TRAIN)
    rising = [found.quantile(share) for share in (0.1, 0.5, 0.9)]
    assert rising == sorted(rising)
    assert found.quantile(0.5) == pytest.approx(found.median_seconds)
    for ran in (1.0, 5_000.0, 1e7, 1e12):
        assert found.quantile(0.0, ran) >= ran
        assert found.quantile(0.9, ran) > ran
