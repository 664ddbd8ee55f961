"""The price that submits and jobs show: from when they may start, within their limits, none after the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.app import jobs
from starverse.app.views import SubmitRequest
from starverse.domain.money import Money
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import SCRIPT, World


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with fresh_database("sqlite", tmp_path) as database:
        yield World(database, tmp_path / "data")


@pytest.mark.parametrize(
    ("option", "hour", "whole", "text"),
    [
        ("--time=2:00:00", "1.66", "3.32", "CNY 1.66 for the next hour, at most CNY 3.32"),
        ("--window=night", "0.83", "1.66", "its first hour, from 2026-03-10T15:00:00Z on"),
        ("--begin=2026-03-10T23:00:00", "0.83", "1.66", "its first hour, from 2026-03-10T15:00:00Z on"),
        ("--cost-max=0.50", "0.50", "0.50", "CNY 0.50 for the next hour, at most CNY 0.50"),
    ],
)
def test_submit_lint_and_show_say_the_same(
    world: World, option: str, hour: str, whole: str, text: str
) -> None:
    lab = world.team("lab")
    argv = ("--gres=gpu:rtx4090:1", "--time=2:00:00", option)
    asked = SubmitRequest(
        script=SCRIPT, script_name="job.sh", argv=argv, environment={"TZ": "Asia/Shanghai"}, lint=True
    )
    price = jobs.submit(world.platform, lab, asked).price
    assert price is not None
    assert (price.hour, price.time_limit_cost) == (Money.parse(hour), Money.parse(whole))
    assert text in price.text
    made = world.submit(lab, *argv[1:])
    if not option.startswith("--begin"):
        assert world.job(lab, made.number).price_hour == Money.parse(hour)


def test_a_job_that_ended_shows_no_price_but_what_going_on_with_it_would_cost(world: World) -> None:
    lab = world.team("lab")
    done = world.submit(lab, name="done").number
    night = world.submit(lab, "--window=night", name="night").number
    world.run(70, step=5)
    jobs.cancel(world.platform, lab, night)
    assert (world.job(lab, done).price_hour, world.job(lab, done).resume_price_hour) == (None, None)
    view = world.job(lab, night)
    assert (view.price_hour, view.resume_price_hour) == (None, Money.parse("0.83"))
