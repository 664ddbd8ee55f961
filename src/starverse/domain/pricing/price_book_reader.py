"""From a plain document (mappings, lists, strings, integers) to a :class:`PriceBook`, or every fault in it.

Decimals are strings with at most six places, so that no binary fraction ever touches money. Factors lie in
(0, 1]: a rate is never above list. A malformed book is refused whole (pricing.md, Price book).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from zoneinfo import ZoneInfo

from starverse.domain.errors import FieldFault, Invalid
from starverse.domain.money import Money
from starverse.domain.pricing.price_book import (
    FABRICS,
    METERED,
    PACKAGES,
    MeteredTariff,
    PackageTariff,
    PriceBook,
    ReservedTier,
    StoragePrices,
)
from starverse.domain.pricing.windows import Window
from starverse.domain.tariff import Tariff
from starverse.domain.timespan import parse_instant

_DECIMAL = re.compile(r"\d{1,9}(?:\.\d{1,6})?")
_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_.-]{0,62}[a-z0-9])?")
_CARD = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?(?:/(?:" + "|".join(FABRICS) + "))?")
_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")
_DECIMAL_EXPECTED = 'a decimal string in quotes with at most 6 places, such as "0.50"'
_REQUIRED = (
    "effective_from",
    "currency",
    "timezone",
    "list_price",
    "windows",
    "tariffs",
    "members",
    "coupons",
    "storage",
    "floor_share",
    "signup_credit",
    "referral_coupon",
)
_YEAR_FIRST, _YEAR_END = 1970, 3000
"""What is counted from an instant of a book (windows, a package's end) stays within the calendar."""
_PLACEHOLDER = Fraction(1)
"""Stands where a fault was found, so that reading goes on; a book with faults is never made."""


def read_price_book(document: object) -> PriceBook:
    """Check a plain document and make the book of it.

    Raises ``Invalid`` with every fault (field, value, what would be right); of a malformed book nothing is
    used.
    """
    reader = _Reader()
    top = reader.mapping("", document, required=_REQUIRED)
    windows = _read_windows(reader, top.get("windows"))
    metered, reserved, packages = _read_tariffs(reader, top.get("tariffs"), windows)
    storage = reader.mapping(
        "storage", top.get("storage"), required=("block_gib_month", "shared_gib_month", "free_gib")
    )
    coupons = reader.mapping("coupons", top.get("coupons"), required=("share_max",))
    book = PriceBook(
        effective_from=reader.instant("effective_from", top.get("effective_from")),
        currency=reader.choice("currency", top.get("currency"), ("CNY",)),
        timezone=reader.zone("timezone", top.get("timezone")),
        list_price=_read_list_price(reader, top.get("list_price")),
        windows=windows,
        metered=metered,
        reserved=reserved,
        packages=packages,
        members=_read_members(reader, top.get("members")),
        coupon_share_max=reader.share("coupons.share_max", coupons.get("share_max")),
        storage=StoragePrices(
            reader.amount("storage.block_gib_month", storage.get("block_gib_month")),
            reader.amount("storage.shared_gib_month", storage.get("shared_gib_month")),
            reader.integer("storage.free_gib", storage.get("free_gib"), at_least=0),
        ),
        floor_share=reader.share("floor_share", top.get("floor_share")),
        signup_credit=reader.amount("signup_credit", top.get("signup_credit")),
        referral_coupon=reader.amount("referral_coupon", top.get("referral_coupon")),
    )
    if reader.faults:
        raise Invalid(faults=reader.faults)
    return book


class _Reader:
    """Reads values of the kinds a book has; keeps a fault for each that is wrong and goes on."""

    def __init__(self) -> None:
        self.faults: list[FieldFault] = []

    def fault(self, field: str, value: object, expected: str) -> None:
        shown = value if isinstance(value, str) else f"{value!r} ({type(value).__name__})"
        if isinstance(value, datetime):
            shown = value.isoformat()
        self.faults.append(FieldFault(field or "price book", shown[:80], expected))

    def mapping(
        self,
        field: str,
        value: object,
        required: tuple[str, ...] = (),
        optional: tuple[str, ...] | None = (),
    ) -> Mapping[str, object]:
        """A mapping with string keys; ``optional=None`` allows any key. Absent required keys are ``None``."""
        if not isinstance(value, Mapping):
            wanted = f" with {', '.join(required)}" if required else ""
            self.missing_or(field, value, f"a mapping{wanted}")
            return dict.fromkeys(required, _REPORTED)
        prefix = f"{field}." if field else ""
        found: dict[str, object] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                self.fault(f"{prefix}{key}", key, "a name as key, in quotes where YAML reads it otherwise")
            elif optional is not None and key not in required and key not in optional:
                self.fault(f"{prefix}{key}", item, f"one of {', '.join((*required, *optional))}")
            else:
                found[key] = item
        return {**dict.fromkeys(required), **found}

    def sequence(self, field: str, value: object) -> list[object]:
        if isinstance(value, list):
            return value
        self.missing_or(field, value, "a list")
        return []

    def missing_or(self, field: str, value: object, expected: str) -> None:
        """Report a wrong value; a missing one reads ``missing``; what was reported with its parent is not."""
        if value is not _REPORTED:
            self.fault(field, "missing" if value is None else value, expected)

    def decimal(self, field: str, value: object, fits: Callable[[Fraction], bool], expected: str) -> Fraction:
        if not isinstance(value, str) or _DECIMAL.fullmatch(value) is None:
            self.missing_or(field, value, _DECIMAL_EXPECTED)
            return _PLACEHOLDER
        number = Fraction(value)
        if not fits(number):
            self.fault(field, value, expected)
            return _PLACEHOLDER
        return number

    def factor(self, field: str, value: object) -> Fraction:
        return self.decimal(field, value, lambda number: 0 < number <= 1, "more than 0, at most 1")

    def share(self, field: str, value: object) -> Fraction:
        return self.decimal(field, value, lambda number: 0 <= number <= 1, "from 0 to 1")

    def amount(self, field: str, value: object, positive: bool = False) -> Money:
        expected = "an amount above 0" if positive else "an amount of yuan"
        number = self.decimal(field, value, lambda number: number > 0 or not positive, expected)
        return Money(int(number * 1_000_000))

    def integer(self, field: str, value: object, at_least: int) -> int:
        if type(value) is int and at_least <= value <= 1_000_000_000:
            return value
        self.missing_or(field, value, f"a whole number, at least {at_least}, not in quotes")
        return at_least

    def choice(self, field: str, value: object, choices: tuple[str, ...]) -> str:
        if isinstance(value, str) and value in choices:
            return value
        self.missing_or(field, value, f"one of {', '.join(choices)}")
        return choices[0]

    def name(self, field: str, value: str, pattern: re.Pattern[str], example: str) -> bool:
        if pattern.fullmatch(value):
            return True
        self.fault(f"{field}.{value}", value, f"a name such as {example}")
        return False

    def zone(self, field: str, value: object) -> str:
        try:
            if isinstance(value, str) and not value.startswith(("/", ".")):
                ZoneInfo(value)
                return value
        except (OSError, ValueError, KeyError):
            pass
        self.missing_or(field, value, "an IANA zone such as Asia/Shanghai")
        return "UTC"

    def instant(self, field: str, value: object) -> datetime:
        try:
            instant = parse_instant(value.isoformat() if isinstance(value, datetime) else str(value))
            if not instant.microsecond and value is not None and _YEAR_FIRST <= instant.year < _YEAR_END:
                return instant
        except (ValueError, OverflowError):
            pass
        expected = f"a whole second with its offset, such as 2026-03-01T00:00:00+08:00, before {_YEAR_END}"
        self.missing_or(field, value, expected)
        return datetime(1970, 1, 1, tzinfo=UTC)

    def clock(self, field: str, value: object) -> int:
        found = _CLOCK.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            self.missing_or(field, value, 'a wall-clock time in quotes, such as "23:00"')
            return 0
        return int(found[1]) * 3600 + int(found[2]) * 60


_REPORTED = object()


def _read_list_price(reader: _Reader, value: object) -> dict[str, Money]:
    entries = reader.mapping("list_price", value, optional=None)
    if isinstance(value, Mapping) and not entries:
        reader.fault("list_price", value, "a price for at least one card model")
    return {
        key: reader.amount(f"list_price.{key}", price, positive=True)
        for key, price in entries.items()
        if reader.name("list_price", key, _CARD, "rtx4090 or rtx4090/ib (fabrics: ib, roce, eth)")
    }


def _read_windows(reader: _Reader, value: object) -> dict[str, Window]:
    windows: dict[str, Window] = {}
    for name, entry in reader.mapping("windows", value, optional=None).items():
        field = f"windows.{name}"
        found = reader.mapping(field, entry, required=("from", "to", "factor"))
        faults_before = len(reader.faults)
        window = Window(
            name,
            reader.clock(f"{field}.from", found["from"]),
            reader.clock(f"{field}.to", found["to"]),
            reader.factor(f"{field}.factor", found["factor"]),
        )
        if len(reader.faults) == faults_before and window.from_second == window.to_second:
            reader.fault(f"{field}.to", found["to"], "another time than `from`")
        if reader.name("windows", name, _NAME, "night"):
            windows[name] = window
    return windows


def _read_members(reader: _Reader, value: object) -> dict[str, Fraction]:
    members: dict[str, Fraction] = {}
    for name, entry in reader.mapping("members", value, optional=None).items():
        found = reader.mapping(f"members.{name}", entry, required=("factor",))
        factor = reader.factor(f"members.{name}.factor", found["factor"])
        if reader.name("members", name, _NAME, "edu"):
            members[name] = factor
    return members


def _read_tariffs(
    reader: _Reader, value: object, windows: Mapping[str, Window]
) -> tuple[dict[Tariff, MeteredTariff], tuple[ReservedTier, ...], dict[Tariff, PackageTariff]]:
    others = tuple(str(tariff) for tariff in Tariff if tariff is not Tariff.ON_DEMAND)
    entries = reader.mapping("tariffs", value, required=("on_demand",), optional=others)
    metered: dict[Tariff, MeteredTariff] = {}
    reserved: tuple[ReservedTier, ...] = ()
    packages: dict[Tariff, PackageTariff] = {}
    for name, entry in entries.items():
        tariff = Tariff(name)
        if tariff in METERED:
            metered[tariff] = _read_metered(reader, tariff, entry, windows)
        elif tariff in PACKAGES:
            found = reader.mapping(f"tariffs.{name}", entry, required=("hours", "factor"))
            packages[tariff] = PackageTariff(
                reader.integer(f"tariffs.{name}.hours", found["hours"], at_least=1),
                reader.factor(f"tariffs.{name}.factor", found["factor"]),
            )
        else:
            reserved = _read_tiers(reader, entry)
    _check_of(reader, metered)
    return metered, reserved, packages


def _read_metered(
    reader: _Reader, tariff: Tariff, entry: object, windows: Mapping[str, Window]
) -> MeteredTariff:
    field = f"tariffs.{tariff}"
    required = ("factor", "cards") if tariff is Tariff.NO_GPU else ("factor",)
    optional = ("windows", "of") if tariff is Tariff.IDLE else ("windows",)
    found = reader.mapping(field, entry, required=required, optional=optional)
    listed: list[Window] = []
    for index, name in enumerate(reader.sequence(f"{field}.windows", found.get("windows", []))):
        window = windows.get(name) if isinstance(name, str) else None
        if window is None:
            reader.fault(f"{field}.windows[{index}]", name, f"one of {', '.join(windows) or '(no windows)'}")
        elif any(window.overlaps(other) for other in listed):
            reader.fault(f"{field}.windows[{index}]", name, "a window that overlaps no other of the tariff")
        else:
            listed.append(window)
    of = None
    if "of" in found:
        of = Tariff(reader.choice(f"{field}.of", found["of"], ("on_demand", "spot")))
    cards = reader.integer(f"{field}.cards", found["cards"], at_least=1) if "cards" in required else None
    return MeteredTariff(reader.factor(f"{field}.factor", found["factor"]), tuple(listed), of, cards)


def _read_tiers(reader: _Reader, entry: object) -> tuple[ReservedTier, ...]:
    field = "tariffs.reserved.tiers"
    found = reader.mapping("tariffs.reserved", entry, required=("tiers",))
    tiers: list[ReservedTier] = []
    listed = reader.sequence(field, found["tiers"])
    for index, item in enumerate(listed):
        tier = reader.mapping(f"{field}[{index}]", item, required=("lead_hours", "factor"))
        lead_hours = reader.integer(f"{field}[{index}].lead_hours", tier["lead_hours"], at_least=0)
        if any(lead_hours == other.lead_hours for other in tiers):
            reader.fault(f"{field}[{index}].lead_hours", lead_hours, "a lead no other tier has")
        tiers.append(ReservedTier(lead_hours, reader.factor(f"{field}[{index}].factor", tier["factor"])))
    if (
        found["tiers"] is not _REPORTED
        and isinstance(found["tiers"], list)
        and all(t.lead_hours for t in tiers)
    ):
        reader.fault(field, found["tiers"], "a tier with lead_hours 0, for bookings made at the last moment")
    return tuple(tiers)


def _check_of(reader: _Reader, metered: Mapping[Tariff, MeteredTariff]) -> None:
    """A tariff that is ``of`` another needs that one, and windows that do not overlap its windows."""
    for tariff, terms in metered.items():
        if terms.of is None:
            continue
        base = metered.get(terms.of)
        if base is None:
            reader.fault(f"tariffs.{tariff}.of", str(terms.of), "a tariff of this book")
        elif any(one.overlaps(other) for one in terms.windows for other in base.windows):
            names = ", ".join(window.name for window in terms.windows)
            reader.fault(f"tariffs.{tariff}.windows", names, f"no window that overlaps those of {terms.of}")
