"""``starverse quote``: text and JSON for people and scripts; what is wrong is raised for the entry point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from starverse.cli.local.quote import command
from starverse.domain.errors import Invalid
from starverse.domain.pricing.price_book_yaml import shipped_price_book_text

NIGHT = ["--card", "rtx4090", "--start", "2026-03-10T22:59:47+08:00", "--end", "2026-03-10T23:00:12+08:00"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, [*NIGHT, *arguments])


def test_text_shows_each_segment_with_its_reasons_and_what_costs_less() -> None:
    result = run("--edu", "--credit", "0.005")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "CNY 0.007885: 1 x rtx4090 (eth), on_demand",
        "",
        "START                      END                        CARDS  PER CARD-HOUR  FACTORS                                     AMOUNT",  # noqa: E501
        "2026-03-10T22:59:47+08:00  2026-03-10T23:00:00+08:00      1          1.494  1.66 x on_demand 1 x edu 0.9              0.005395",  # noqa: E501
        "2026-03-10T23:00:00+08:00  2026-03-10T23:00:12+08:00      1          0.747  1.66 x on_demand 1 x night 0.5 x edu 0.9   0.00249",  # noqa: E501
        "",
        "coupon 0.00, credit 0.005, cash 0.002885",
        "",
        "What costs less:",
        "   TOTAL  TARIFF               START                      END",
        "0.002801  idle (not for jobs)  2026-03-10T22:59:47+08:00  2026-03-10T23:00:12+08:00",
        "0.003112  spot                 2026-03-10T22:59:47+08:00  2026-03-10T23:00:12+08:00",
        "0.005187  on_demand            2026-03-10T23:00:00+08:00  2026-03-10T23:00:25+08:00",
    ]


def test_json_is_the_quote_and_nothing_else() -> None:
    shown = json.loads(run("--json").stdout)
    assert list(shown) == [
        "currency",
        "total_micro",
        "coupon_micro",
        "credit_micro",
        "cash_micro",
        "segments",
        "cheaper",
    ]
    assert [segment["amount_micro"] for segment in shown["segments"]] == [5_994, 2_767]


def test_a_reservation_and_a_renewed_package_can_be_quoted() -> None:
    week = ["--card", "rtx4090", "--cards", "8", "--tariff", "reserved", "--json"]
    week += ["--start", "2026-03-20T00:00:00+08:00", "--end", "2026-03-27T00:00:00+08:00"]
    booked = CliRunner().invoke(command, [*week, "--booked-at", "2026-03-13T00:00:00+08:00"])
    assert json.loads(booked.stdout)["total_micro"] == 1_338_624_000
    month = ["--card", "rtx4090", "--tariff", "month", "--edu", "--json", "--renew"]
    month += ["--start", "2026-03-31T12:00:00+08:00", "--end", "2026-05-31T12:00:00+08:00"]
    assert json.loads(CliRunner().invoke(command, month).stdout)["total_micro"] == 2 * 672_300_000


def test_another_price_book_is_used_and_its_warnings_go_to_stderr(tmp_path: Path) -> None:
    path = tmp_path / "book.yaml"
    path.write_text(
        shipped_price_book_text().replace('"1.66"', '"3.32"').replace('"0.75"', '"0.90"'), "utf-8"
    )
    result = run("--json", "--price-book", str(path))
    assert json.loads(result.stdout)["total_micro"] == 17_522
    assert result.stderr.startswith("warning: tariffs.day: ")


REFUSED = [
    ("a time without its offset", ["--start", "2026-03-10T22:59:47"], "start"),
    ("a time that is none", ["--end", "tomorrow"], "end"),
    ("a time beyond all clocks", ["--booked-at", "0001-01-01T00:00:00+08:00"], "booked_at"),
    ("money with seven places", ["--credit", "0.1234567"], "credit"),
    ("negative money", ["--coupon=-1"], "coupon"),
    ("an unknown card", ["--card", "rtx5090"], "card"),
    ("no card at all", ["--cards", "0"], "cards"),
    ("an unknown tariff", ["--tariff", "gratis"], "tariff"),
    ("a price book that is none", ["--price-book", "BROKEN"], "price book"),
    ("a price book that is no text", ["--price-book", "BINARY"], "price book"),
]


@pytest.mark.parametrize(("arguments", "field"), [r[1:] for r in REFUSED], ids=[r[0] for r in REFUSED])
def test_what_is_wrong_names_field_value_and_what_would_be_right(
    arguments: list[str], field: str, tmp_path: Path
) -> None:
    (tmp_path / "BROKEN").write_text("", "utf-8")
    (tmp_path / "BINARY").write_bytes(b"\xff\xfe")
    files = {name: str(tmp_path / name) for name in ("BROKEN", "BINARY")}
    result = run(*(files.get(argument, argument) for argument in arguments))
    assert isinstance(result.exception, Invalid)
    (fault,) = result.exception.faults
    assert fault.field == field
    assert fault.value
    assert fault.expected


def test_a_missing_option_is_a_usage_error() -> None:
    assert CliRunner().invoke(command, ["--cards", "1"]).exit_code == 2


def test_without_a_start_it_is_now_and_that_is_said() -> None:
    result = CliRunner().invoke(command, ["--card", "rtx4090", "--end", "2999-01-01T00:00:00Z"])
    assert "without --start: from now, 20" in result.stderr
