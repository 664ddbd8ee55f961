"""A dated version of list prices, windows, tariffs and discounts, and the series of its versions.

Normative: pricing.md, Price book. ``price_book_yaml.load_price_book`` reads one from text;
``price_book_reader`` refuses a malformed one whole and names every fault.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

from starverse.domain.errors import FieldFault, Invalid
from starverse.domain.money import Money
from starverse.domain.pricing.windows import Window
from starverse.domain.tariff import Tariff
from starverse.domain.timespan import format_instant, utc

FABRICS = ("ib", "roce", "eth")
METERED = (Tariff.ON_DEMAND, Tariff.SPOT, Tariff.IDLE, Tariff.NO_GPU)
"""Tariffs charged by the second that follow the version in effect at each instant."""
PACKAGES = (Tariff.DAY, Tariff.MONTH, Tariff.YEAR)
"""Tariffs paid once at purchase."""


@dataclass(frozen=True, slots=True)
class MeteredTariff:
    """``own_factor`` of list, times that of the tariff it is ``of``; ``cards`` replaces the count."""

    own_factor: Fraction
    windows: tuple[Window, ...] = ()
    of: Tariff | None = None
    cards: int | None = None


@dataclass(frozen=True, slots=True)
class ReservedTier:
    """The factor of bookings made at least ``lead_hours`` before their start."""

    lead_hours: int
    factor: Fraction


@dataclass(frozen=True, slots=True)
class PackageTariff:
    """A booking of cards paid at once, at ``hours`` card-hours times ``factor``."""

    hours: int
    factor: Fraction


@dataclass(frozen=True, slots=True)
class StoragePrices:
    """Prices of a GiB for a calendar month, and the GiB of a team that cost nothing."""

    block_gib_month: Money
    shared_gib_month: Money
    free_gib: int


@dataclass(frozen=True)
class PriceBook:
    """One version; immutable. Factors are exact and in (0, 1]; list prices are micro-yuan per card-hour."""

    effective_from: datetime
    currency: str
    timezone: str
    list_price: Mapping[str, Money] = field(hash=False)
    windows: Mapping[str, Window] = field(hash=False)
    metered: Mapping[Tariff, MeteredTariff] = field(hash=False)
    reserved: tuple[ReservedTier, ...]
    packages: Mapping[Tariff, PackageTariff] = field(hash=False)
    members: Mapping[str, Fraction] = field(hash=False)
    coupon_share_max: Fraction
    storage: StoragePrices
    floor_share: Fraction
    signup_credit: Money
    referral_coupon: Money

    @property
    def tariffs(self) -> tuple[Tariff, ...]:
        """The tariffs this book prices, in the glossary's order."""
        return tuple(
            tariff
            for tariff in Tariff
            if tariff in self.metered
            or tariff in self.packages
            or (tariff is Tariff.RESERVED and self.reserved)
        )

    @property
    def models(self) -> tuple[str, ...]:
        """Card models with a price, each once, in the book's order."""
        return tuple(dict.fromkeys(key.partition("/")[0] for key in self.list_price))

    def sells(self, model: str, fabric: str = "eth") -> bool:
        """Whether cards of a pool have a list price."""
        return f"{model}/{fabric}" in self.list_price or model in self.list_price

    def list_price_of(self, model: str, fabric: str = "eth") -> Money:
        """Micro-yuan per card-hour; ``model/fabric`` wins over ``model``.

        Raises ``Invalid`` naming the models that exist when this one has no price.
        """
        price = self.list_price.get(f"{model}/{fabric}") or self.list_price.get(model)
        if price is None:
            have = ", ".join(self.list_price)
            raise Invalid(faults=[FieldFault("card", f"{model}/{fabric}", f"a model with a price: {have}")])
        return price

    def member_factor(self, member: str | None) -> Fraction:
        """The factor of a membership; 1 for none and for one this version does not know."""
        return self.members.get(member, Fraction(1)) if member else Fraction(1)

    def factor_of(self, tariff: Tariff) -> Fraction:
        """The factor of a metered tariff, that of the tariff it is ``of`` included."""
        terms = self.metered[tariff]
        return terms.own_factor * (self.metered[terms.of].own_factor if terms.of else 1)

    def windows_of(self, tariff: Tariff) -> tuple[Window, ...]:
        """The windows a metered tariff lists, those of the tariff it is ``of`` included."""
        terms = self.metered[tariff]
        return (*self.metered[terms.of].windows, *terms.windows) if terms.of else terms.windows

    def tier_for(self, lead_seconds: int) -> ReservedTier:
        """The tier with the largest ``lead_hours`` not above the lead (start - booked_at), to the second."""
        fitting = [tier for tier in self.reserved if tier.lead_hours * 3600 <= lead_seconds]
        if not fitting:
            raise Invalid(
                faults=[FieldFault("booked_at", f"{lead_seconds} s ahead", "a time before the start")]
            )
        return max(fitting, key=lambda tier: tier.lead_hours)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What is legal but odd: packages that can cost more than ``on_demand`` over the same instants."""
        from starverse.domain.pricing.packages import dearer_packages

        return dearer_packages(self)


class PriceBooks:
    """The versions of the price book, by the instant from which each is in effect."""

    def __init__(self, versions: Sequence[PriceBook]) -> None:
        """Raises ``Invalid`` for no version at all, or two that start at the same instant."""
        ordered = sorted(versions, key=lambda book: book.effective_from)
        starts = [book.effective_from for book in ordered]
        if not ordered:
            raise Invalid("there is no price book; add one with `starverse admin price add FILE`")
        for earlier, later in pairwise(starts):
            if earlier == later:
                fault = FieldFault("effective_from", format_instant(later), "an instant no version has yet")
                raise Invalid(faults=[fault])
        self.versions: tuple[PriceBook, ...] = tuple(ordered)
        self._starts = starts

    def at(self, instant: datetime) -> PriceBook:
        """The version in effect; raises ``Invalid`` before the first one."""
        index = bisect_right(self._starts, utc(instant)) - 1
        if index < 0:
            first = format_instant(self._starts[0])
            fault = FieldFault("start", format_instant(instant), f"not before the first price book, {first}")
            raise Invalid(faults=[fault])
        return self.versions[index]

    def edges(self, start: datetime, end: datetime) -> list[datetime]:
        """The instants strictly inside ``(start, end)`` at which a version takes over."""
        return [edge for edge in self._starts if start < edge < end]
