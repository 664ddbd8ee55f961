"""Passwords are checked against hashes with their cost inside; who has none is let in by none."""

from __future__ import annotations

import pytest
from argon2 import extract_parameters
from argon2.profiles import CHEAPEST, RFC_9106_LOW_MEMORY

from starverse.app.passwords import NO_PASSWORD, Passwords

CHEAP = Passwords(CHEAPEST)


def test_what_ships_costs_what_rfc_9106_recommends() -> None:
    assert extract_parameters(Passwords().hash_of("correct horse")) == RFC_9106_LOW_MEMORY


def test_a_hash_lets_its_password_in_and_no_other() -> None:
    stored = CHEAP.hash_of("correct horse")
    assert CHEAP.is_right(stored, "correct horse")
    assert not CHEAP.is_right(stored, "correct horsf")
    assert stored != CHEAP.hash_of("correct horse"), "each has a salt of its own"


@pytest.mark.parametrize("stored", [None, NO_PASSWORD, "", "$argon2id$broken"])
@pytest.mark.parametrize("password", ["", NO_PASSWORD, "no account has this password", "$argon2id$broken"])
def test_who_has_no_password_is_let_in_by_none(stored: str | None, password: str) -> None:
    assert not CHEAP.is_right(stored, password)


def test_a_hash_of_another_cost_is_made_anew() -> None:
    stored = CHEAP.hash_of("correct horse")
    assert not CHEAP.needs_new_hash(stored)
    assert Passwords().needs_new_hash(stored)
