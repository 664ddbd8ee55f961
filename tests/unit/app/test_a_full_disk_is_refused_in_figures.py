"""A refusal for lack of space says what was asked for and what would remain, without contradiction."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from starverse.app.disk_space import MIB, why_no_space

SIZES = st.integers(0, 400 * MIB)


def test_a_folder_that_would_reach_into_the_reserve() -> None:
    assert why_no_space(158 * MIB, 100 * MIB, 64 * MIB) == (
        "It may take 100 MiB of the 158 MiB that are free; 58 MiB would remain, "
        "and the operator keeps 64 MiB in reserve."
    )


def test_a_folder_that_is_larger_than_the_disk() -> None:
    assert why_no_space(90 * MIB, 100 * MIB, 64 * MIB) == (
        "It may take 100 MiB and 90 MiB are free; the operator keeps 64 MiB in reserve."
    )


def test_a_disk_that_is_down_to_its_reserve_before_anything_comes() -> None:
    assert why_no_space(63 * MIB, 0, 64 * MIB) == "63 MiB are free; the operator keeps 64 MiB in reserve."


def test_what_leaves_the_reserve_alone_is_stored() -> None:
    assert why_no_space(164 * MIB, 100 * MIB, 64 * MIB) is None


@given(free=SIZES, more=SIZES, reserve=SIZES)
def test_the_figures_always_show_too_little(free: int, more: int, reserve: int) -> None:
    told = why_no_space(free, more, reserve)
    assert (told is None) == (free - more >= reserve)
    if told is None:
        return
    *shown, kept = map(int, re.findall(r"(\d+) MiB", told))
    if len(shown) == 2:
        asked, there = shown
        assert there < asked
    else:
        assert shown[-1] < kept
