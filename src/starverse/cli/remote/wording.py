"""Times, money and lengths as people read them, the same in every command."""

from __future__ import annotations

MICRO_PER_YUAN = 1_000_000


def when(instant: str | None) -> str | None:
    """An RFC 3339 instant to the second: ``2026-03-10 02:00:00Z``."""
    if not instant:
        return None
    day, _, clock = instant.partition("T")
    return f"{day} {clock[:8]}Z" if clock else day


def yuan(micro: int | str | None) -> str | None:
    """Exact yuan of an amount in micro-yuan, at least two places: ``9.96``, ``0.008761``."""
    if micro is None:
        return None
    sign = "-" if int(micro) < 0 else ""
    whole, places = divmod(abs(int(micro)), MICRO_PER_YUAN)
    return f"{sign}{whole}.{f'{places:06d}'.rstrip('0').ljust(2, '0')}"


def rate(micro_per_card_hour: str | int | None) -> str | None:
    """Yuan per card-hour of a decimal string of micro-yuan, as exact as the string: ``1.66``."""
    if micro_per_card_hour is None:
        return None
    whole, _, places = str(micro_per_card_hour).partition(".")
    text = f"{yuan(int(whole))}"
    if not places.strip("0"):
        return text
    micro_digits = text.partition(".")[2].ljust(6, "0")
    return f"{text.partition('.')[0]}.{micro_digits}{places.rstrip('0')}"


def length(seconds: int | float | None) -> str | None:
    """A length of time: ``45 s``, ``20 min 5 s``, ``3 h 10 min``, ``2 d 4 h``."""
    if seconds is None:
        return None
    whole = int(seconds)
    units = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
    parts = []
    for name, size in units:
        count, whole = divmod(whole, size)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts[:2]) or "0 s"


def nanoseconds(count: int | None) -> str | None:
    """A short time in three digits: ``850 ns``, ``21.3 us``, ``1.2 ms``."""
    if count is None:
        return None
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} ns"


def rate_of_bytes(per_second: int | None) -> str | None:
    """Bytes a second in three digits, as networks count: ``2.9 GB/s``, ``117 MB/s``."""
    if per_second is None:
        return None
    for unit, size in (("GB/s", 10**9), ("MB/s", 10**6), ("kB/s", 10**3)):
        if per_second >= size:
            return f"{per_second / size:.3g} {unit}"
    return f"{per_second} B/s"
