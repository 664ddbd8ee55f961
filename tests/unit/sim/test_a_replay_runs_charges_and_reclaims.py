"""A trace replayed to its end: waits, money, reclaims and lost work as counted by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from starverse.domain.errors import Invalid
from starverse.domain.money import Money
from starverse.domain.pricing.price_book import PriceBooks
from starverse.domain.pricing.price_book_yaml import shipped_price_book
from starverse.domain.tariff import Tariff
from starverse.sim.cluster_file import read_nodes
from starverse.sim.figures import figures
from starverse.sim.policy import read_policy
from starverse.sim.replay import Outcome, Replay, Rules
from starverse.sim.report import html, markdown
from starverse.sim.trace import TraceJob

NOON = datetime(2026, 3, 10, 4, tzinfo=UTC)
"""In Beijing; the day's rate holds until 23:00."""


def job(number: str, minute: int, run_minutes: int, cards: int = 1, team: str = "t") -> TraceJob:
    return TraceJob(1, number, NOON + timedelta(minutes=minute), run_minutes * 60, cards, team)


def replay(jobs: list[TraceJob], policy: str = "on_demand", nodes: int = 1) -> Outcome:
    cluster = read_nodes(f"count,cards,model,cpus\n{nodes},2,rtx4090,16\n")
    rules = Rules(policy, PriceBooks([shipped_price_book()]), read_policy(policy))
    return Replay(jobs, cluster, rules).run()


def test_one_waits_for_the_other_and_both_pay_what_they_ran() -> None:
    outcome = replay([job("1", 0, 60, cards=2), job("2", 10, 30)])
    first, second = outcome.fates
    assert (first.wait_seconds, second.wait_seconds) == (60, 51 * 60)
    assert first.cost == Money.parse("3.32")
    assert second.cost == Money.parse("0.83")
    found = figures(outcome)
    assert found.revenue == Money.parse("4.15")
    assert found.cost_by_team == (("t", Money.parse("4.15")),)
    assert found.utilisation == 1.0


def test_spot_is_reclaimed_goes_on_from_its_checkpoint_and_loses_the_rest() -> None:
    outcome = replay([job("1", 0, 120, 2, "spot"), job("2", 40, 10, 2, "firm")], "spot:spot")
    spot, firm = outcome.fates
    assert (spot.tariff, firm.tariff) == (Tariff.SPOT, Tariff.ON_DEMAND)
    assert spot.reclaims == 1
    worked_minutes = 41  # from minute 1 until two minutes of grace after the notice of minute 40
    assert spot.lost_card_seconds == 2 * (worked_minutes - 30) * 60
    assert spot.cost == Money(2 * (worked_minutes + 90) * 1_660_000 * 3 // 600)
    assert firm.ended_at is not None
    assert spot.ended_at is not None
    assert spot.ended_at > firm.ended_at
    assert figures(outcome).lost_card_hours == pytest.approx(2 * 11 / 60)


def test_more_cards_than_a_node_has_are_spread_and_more_than_all_are_never_placed() -> None:
    outcome = replay([job("1", 0, 10, cards=4), job("2", 1, 10, cards=20)], nodes=2)
    assert outcome.samples[0].busy_cards == 4
    assert outcome.fates[1].refused
    assert figures(outcome).not_placed == 1


def test_the_same_trace_gives_the_same_outcome() -> None:
    jobs = [job(str(n), n % 7, 5 + n % 11, 1 + n % 2, f"t{n % 3}") for n in range(30)]
    assert replay(jobs, "spot:0.5").fates == replay(jobs, "spot:0.5").fates


@pytest.mark.parametrize("text", ["idle", "spot:", "spot:2", ""])
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        read_policy(text)


def test_reports_hold_every_replay_and_no_markup_of_the_trace() -> None:
    outcomes = [replay([job("1", 0, 10, team="<b>|x")], policy) for policy in ("on_demand", "spot")]
    found = [figures(outcome) for outcome in outcomes]
    text, page = markdown(found, ["a note"]), html(outcomes, found, ["a & note"])
    assert "|  | on_demand | spot |" in text
    assert "<b>\\|x" in text
    assert "&lt;b&gt;|x" in page
    assert "<b>" not in page
    assert page.count("<svg") == 2
    assert page.count("<polyline") == 4
    assert "a &amp; note" in page
