"""Columns with Chinese in them, amounts, lengths of time."""

from __future__ import annotations

import pytest

from starverse.cli.remote.tables import columns, pad, render_fields, render_table, visible, width
from starverse.cli.remote.wording import length, rate, when, yuan
from starverse.domain.money import Money

WIDTHS = {
    "ascii": ("train.sh", 8),
    "chinese": ("训练", 4),
    "full-width letters": ("ＡＢ", 4),
    "half-width katakana": ("ｱｲ", 2),
    "combining accent": ("e\u0301", 1),
    "zero-width joiner": ("a\u200db", 2),
    "korean": ("학습", 4),
    "nothing": ("", 0),
}


@pytest.mark.parametrize(("text", "cells"), WIDTHS.values(), ids=WIDTHS.keys())
def test_widths_are_those_of_a_terminal(text: str, cells: int) -> None:
    assert width(text) == cells
    assert width(pad(text, 10)) == 10


def test_columns_line_up_whatever_is_in_them() -> None:
    table = render_table(columns("NAME", ">N", "X"), [("训练", 1, "a"), ("train", 22, None)])
    assert table == "NAME    N  X\n训练    1  a\ntrain  22  -"


def test_no_line_ends_in_spaces() -> None:
    assert render_table(columns("A", "B"), [("x", " ")]).splitlines()[1] == "x"


def test_control_characters_are_shown_not_obeyed() -> None:
    assert visible("a\x1b[2Jb\nc") == "a\\x1b[2Jb\\nc"
    assert render_table(columns("A"), [("x\ny",)]).count("\n") == 1


def test_fields_without_a_value_are_left_out() -> None:
    assert render_fields([("名字", "x"), ("none", None), ("zero", 0)]) == "名字  x\nzero  0"


@pytest.mark.parametrize("micro", [0, 1, 8_761, 9_960_000, 10**15 + 1, -1_500_000])
def test_yuan_reads_as_the_product_writes_it(micro: int) -> None:
    assert yuan(micro) == Money(micro).decimal()


@pytest.mark.parametrize(
    ("text", "shown"),
    [("1660000", "1.66"), ("498000", "0.498"), ("249000.5", "0.2490005"), ("0", "0.00"), (None, None)],
)
def test_rates_lose_no_digit(text: str | None, shown: str | None) -> None:
    assert rate(text) == shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (4, "4 s"), (3600, "1 h"), (3661, "1 h 1 min"), (90_061, "1 d 1 h"), (None, None)],
)
def test_lengths_name_their_two_largest_units(seconds: int | None, text: str | None) -> None:
    assert length(seconds) == text


def test_instants_are_shown_to_the_second_in_utc() -> None:
    assert when("2026-03-10T02:00:00.123456Z") == "2026-03-10 02:00:00Z"
    assert when(None) is None
