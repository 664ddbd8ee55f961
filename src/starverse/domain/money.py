"""Money as an integer number of micro-yuan (pricing.md: 1 CNY = 1 000 000).

``float`` never touches money: construction and arithmetic refuse it. Rates are exact rationals
(:class:`fractions.Fraction`, micro-yuan per card-hour); they become :class:`Money` in one place,
:func:`floor_to_micro`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

MICRO_PER_YUAN = 1_000_000
MICRO_PER_FEN = 10_000

_DECIMAL = re.compile(r"(?P<sign>[+-]?)(?P<whole>\d{1,15})(?:\.(?P<places>\d{1,6}))?")


@dataclass(frozen=True, slots=True, order=True)
class Money:
    """An amount in micro-yuan; may be negative (a refund, a difference)."""

    micro: int

    def __post_init__(self) -> None:
        if type(self.micro) is not int:
            raise TypeError(f"money is an int of micro-yuan, not {type(self.micro).__name__}")

    @classmethod
    def parse(cls, text: str) -> Money:
        """Read a decimal string of yuan with at most six places, such as ``"1.66"``.

        Raises ``ValueError`` for anything else: exponents, spaces, seven places, a float.
        """
        found = _DECIMAL.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            raise ValueError(f"{_shortened(text)} is not an amount of yuan such as '1.66' (at most 6 places)")
        places = (found["places"] or "").ljust(6, "0")
        micro = int(found["whole"]) * MICRO_PER_YUAN + int(places)
        return cls(-micro if found["sign"] == "-" else micro)

    def __add__(self, other: Money) -> Money:
        return Money(self.micro + other.micro)

    def __sub__(self, other: Money) -> Money:
        return Money(self.micro - other.micro)

    def __neg__(self) -> Money:
        return Money(-self.micro)

    def __bool__(self) -> bool:
        return self.micro != 0

    def decimal(self) -> str:
        """The exact amount in yuan as a decimal string, at least two places: ``"9.96"``, ``"0.008761"``."""
        sign = "-" if self.micro < 0 else ""
        whole, places = divmod(abs(self.micro), MICRO_PER_YUAN)
        digits = f"{places:06d}".rstrip("0").ljust(2, "0")
        return f"{sign}{whole}.{digits}"

    def __str__(self) -> str:
        return f"CNY {self.decimal()}"


ZERO = Money(0)


def _shortened(given: object) -> str:
    shown = ascii(given)
    return shown if len(shown) <= 40 else f"{shown[:37]}..."


def total(amounts: list[Money] | tuple[Money, ...]) -> Money:
    """The sum of amounts; zero for none."""
    return Money(sum(amount.micro for amount in amounts))


def floor_to_micro(exact: Fraction) -> Money:
    """Round an exact number of micro-yuan down: the one place where a rate becomes money."""
    return Money(exact.numerator // exact.denominator)


def round_to_fen(amount: Money) -> Money:
    """Round half up (away from zero) to 0.01 yuan; used once per statement (pricing.md, Paying a charge)."""
    magnitude = (abs(amount.micro) + MICRO_PER_FEN // 2) // MICRO_PER_FEN * MICRO_PER_FEN
    return Money(magnitude if amount.micro >= 0 else -magnitude)


def decimal_string(exact: Fraction, places: int = 6) -> str:
    """An exact rational as a decimal string, rounded half up at ``places``, no trailing zeros.

    For showing rates (micro-yuan per card-hour); never parsed back into money.
    """
    scaled = (abs(exact) * 10**places * 2 + 1) // 2
    whole, rest = divmod(scaled, 10**places)
    digits = f"{rest:0{places}d}".rstrip("0")
    sign = "-" if exact < 0 and scaled else ""
    return f"{sign}{whole}.{digits}" if digits else f"{sign}{whole}"
