"""Lengths, sizes and prices as people type and read them."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from starverse.cli.remote.hour_prices import hours_of, price_line, yuan_text
from starverse.cli.remote.quantities import read_length

LENGTHS = {
    "0": 0, "45s": 45, "30m": 1800, "30min": 1800, "2h": 7200, "1d": 86_400, "1d12h": 129_600,
    "1h30m15s": 5415, "": None, "30": None, "00": None, "1.5h": None, "2 h": None, "h": None, "2h!": None,
    "-1h": None, "２h": None, "9999999999s": None,
}  # fmt: skip


@pytest.mark.parametrize(("typed", "seconds"), LENGTHS.items(), ids=LENGTHS.keys())
def test_a_length_is_read_or_refused(typed: str, seconds: int | None) -> None:
    assert read_length(typed) == seconds


def offer(rate: str, **changes: Any) -> Any:
    prices = [
        {"tariff": "on_demand", "rate": rate, "rate_micro_per_card_hour": "0"},
        {"tariff": "no_gpu", "rate": "0.498", "rate_micro_per_card_hour": "0"},
    ]
    return {"card": "rtx4090", "prices": prices, "next_price_change_at": None, **changes}


def test_an_hour_is_exact_whatever_the_rate() -> None:
    assert hours_of([offer("0.333333333333333333333333")], "on_demand", 3) == [
        Decimal("0.999999999999999999999999")
    ]


def test_pools_of_different_prices_give_a_span_and_other_models_count_for_nothing() -> None:
    pools = [offer("1.90"), offer("1.66"), offer("1.66"), offer("7.90", card="a100-40g")]
    line = price_line(pools, card="rtx4090", cards=8, tariff="on_demand")
    assert line == "price: 8 x rtx4090, on_demand: CNY 13.28 to 15.20 per hour, by pool"


def test_without_cards_one_card_counts() -> None:
    line = price_line([offer("1.66")], card="rtx4090", cards=8, tariff="no_gpu")
    assert line == "price: no_gpu (8 x rtx4090 stay away): CNY 0.498 per hour"


def test_what_is_not_sold_has_no_price() -> None:
    assert price_line([offer("1.66")], card="rtx4090", cards=1, tariff="spot") is None
    assert price_line([], card="rtx4090", cards=1, tariff="on_demand") is None


TEXTS = {"3.32": "3.32", "0.498": "0.498", "1": "1.00", "10": "10.00", "0": "0.00", "1.6600": "1.66"}


@pytest.mark.parametrize(("amount", "text"), TEXTS.items(), ids=TEXTS.keys())
def test_yuan_have_two_places_at_least(amount: str, text: str) -> None:
    assert yuan_text(Decimal(amount)) == text
