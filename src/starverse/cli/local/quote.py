"""``starverse quote``: a price, segment by segment, without a server (interfaces.md).

The domain is imported when the command runs, so that ``--help`` stays quick. What is wrong is raised as
``Invalid``; the entry point prints it and chooses the exit code, as for every command.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from starverse.domain.errors import FieldFault
    from starverse.domain.money import Money
    from starverse.domain.pricing.paying import Sources
    from starverse.domain.pricing.price_book import PriceBook
    from starverse.domain.pricing.quote import Quote, QuoteRequest
    from starverse.domain.pricing.rating import Factors, Segment
    from starverse.domain.tariff import Tariff


@click.command("quote")
@click.option("--card", required=True, metavar="MODEL", help="Card model, such as rtx4090.")
@click.option("--cards", default=1, show_default=True, type=int, metavar="N", help="How many cards.")
@click.option("--tariff", default="on_demand", show_default=True, metavar="TARIFF", help="How it is priced.")
@click.option("--start", metavar="ISO", help="2026-03-10T10:00:00+08:00, or with Z for UTC. [default: now]")
@click.option("--end", metavar="ISO", help="End; of a package its own end by default.")
@click.option("--fabric", default="eth", show_default=True, metavar="FABRIC", help="ib, roce or eth.")
@click.option("--booked-at", metavar="ISO", help="When a reservation or package is bought. [reserved: now]")
@click.option("--renew", is_flag=True, help="Renew a package up to --end, instead of going on as on_demand.")
@click.option("--edu", is_flag=True, help="With the education membership.")
@click.option("--coupon", default="0", metavar="YUAN", help="Coupons redeemed before the start.")
@click.option("--credit", default="0", metavar="YUAN", help="Credit in the wallet.")
@click.option(
    "--price-book",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A price book in YAML, instead of the shipped one.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool, **options: Any) -> None:
    """Price a request, segment by segment, without a server."""
    from starverse.domain.pricing.price_book import PriceBooks
    from starverse.domain.pricing.quote import quote

    book = _read_book(options["price_book"])
    if options["start"] is None:
        options["start"] = datetime.now(UTC).replace(microsecond=0).isoformat()
        click.echo(f"without --start: from now, {options['start']}", err=True)
    request, sources = _read_request(options)
    priced = quote(request, PriceBooks([book]), sources)
    if options["price_book"] is not None:
        for warning in book.warnings:
            click.echo(f"warning: {warning}", err=True)
    if as_json:
        click.echo(json.dumps(priced.to_json(), indent=2))
    else:
        click.echo(render(priced, request, book))


def render(priced: Quote, request: QuoteRequest, book: PriceBook) -> str:
    """The quote as text: one line of summary, a table of segments, who pays, what costs less."""
    rows = [_row(segment, book) for segment in priced.segments]
    lines = [
        f"{priced.currency} {priced.total.decimal()}: {request.cards} x {request.card} ({request.fabric}), "
        f"{request.tariff}",
        "",
        *_table(("START", "END", "CARDS", "PER CARD-HOUR", "FACTORS", "AMOUNT"), rows, right=(2, 3, 5)),
        "",
        f"coupon {priced.coupon.decimal()}, credit {priced.credit.decimal()}, cash {priced.cash.decimal()}",
    ]
    if priced.cheaper:
        cheaper = [
            (other.total.decimal(), _taken(other.tariff), _local(other.start, book), _local(other.end, book))
            for other in priced.cheaper
        ]
        lines += ["", "What costs less:", *_table(("TOTAL", "TARIFF", "START", "END"), cheaper, right=(0,))]
    return "\n".join(lines)


def _taken(tariff: Tariff) -> str:
    """A tariff, and where jobs cannot be submitted on it, that they cannot."""
    from starverse.domain.sbatch.values import SUBMITTABLE

    return str(tariff) if tariff in SUBMITTABLE else f"{tariff} (not for jobs)"


def _row(segment: Segment, book: PriceBook) -> tuple[str, ...]:
    from starverse.domain.money import decimal_string

    return (
        _local(segment.span.start, book),
        _local(segment.span.end, book),
        str(segment.cards),
        decimal_string(segment.rate / 1_000_000, places=30),
        _reasons(segment.factors, str(segment.tariff)),
        segment.amount.decimal(),
    )


def _reasons(factors: Factors, tariff: str) -> str:
    """Why the rate is what it is, such as ``1.66 x night 0.5 x edu 0.9``."""
    from starverse.domain.money import decimal_string

    named = [(tariff, factors.tariff), (factors.window_name, factors.window)]
    named.append((factors.member_name, factors.member))
    shown = [factors.list_price.decimal()]
    shown += [f"{name} {decimal_string(factor, places=24)}" for name, factor in named if name]
    reasons = " x ".join(shown)
    if factors.floor_share is not None:
        reasons += f", raised to the floor {decimal_string(factors.floor_share, places=24)}"
    if factors.hours is not None:
        reasons += f", for {factors.hours} hours"
    return reasons


def _local(instant: datetime, book: PriceBook) -> str:
    from zoneinfo import ZoneInfo

    return instant.astimezone(ZoneInfo(book.timezone)).isoformat()


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], right: tuple[int, ...]) -> list[str]:
    """Columns two spaces apart; those of ``right`` flush right."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = []
    for row in (head, *rows):
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def _read_book(path: Path | None) -> PriceBook:
    from starverse.domain.errors import FieldFault, Invalid
    from starverse.domain.pricing.price_book_yaml import load_price_book, shipped_price_book

    if path is None:
        return shipped_price_book()
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fault = FieldFault("price book", str(path), "a readable YAML file in UTF-8")
        raise Invalid(faults=[fault]) from error
    return load_price_book(text)


def _read_request(options: dict[str, Any]) -> tuple[QuoteRequest, Sources]:
    """Read the options; raises ``Invalid`` naming each one that cannot be read."""
    from starverse.domain.errors import Invalid
    from starverse.domain.money import ZERO
    from starverse.domain.pricing.paying import Coupon, Credit, Sources
    from starverse.domain.pricing.quote import QuoteRequest

    faults: list[FieldFault] = []
    start = _instant("start", options["start"], faults)
    end = _instant("end", options["end"], faults)
    booked_at = _instant("booked_at", options["booked_at"], faults)
    coupon = _amount("coupon", options["coupon"], faults)
    credit = _amount("credit", options["credit"], faults)
    if faults or start is None:
        raise Invalid(faults=faults)
    if options["tariff"] == "reserved" and booked_at is None:
        booked_at = min(datetime.now(UTC).replace(microsecond=0), start)
    request = QuoteRequest(
        card=options["card"],
        cards=options["cards"],
        tariff=options["tariff"],
        start=start,
        end=end,
        fabric=options["fabric"],
        booked_at=booked_at,
        member="edu" if options["edu"] else None,
        renew=options["renew"],
    )
    redeemed_at = min(start, booked_at or start)
    coupons = (Coupon("coupon", coupon, redeemed_at),) if coupon > ZERO else ()
    credits_ = (Credit("credit", credit),) if credit > ZERO else ()
    return request, Sources(coupons, credits_)


def _instant(field: str, text: str | None, faults: list[FieldFault]) -> datetime | None:
    from starverse.domain.errors import FieldFault
    from starverse.domain.timespan import parse_instant

    if text is None:
        return None
    try:
        return parse_instant(text)
    except (ValueError, OverflowError):
        faults.append(FieldFault(field, text, "a time with its offset, such as 2026-03-10T10:00:00+08:00"))
        return None


def _amount(field: str, text: str, faults: list[FieldFault]) -> Money:
    from starverse.domain.errors import FieldFault
    from starverse.domain.money import ZERO, Money

    try:
        amount = Money.parse(text)
        if amount >= ZERO:
            return amount
    except ValueError:
        pass
    faults.append(FieldFault(field, text, "an amount of yuan such as 50.00, at most 6 places"))
    return ZERO
