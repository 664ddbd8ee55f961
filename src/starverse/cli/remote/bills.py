"""``bill`` and ``explain``: what was paid for, segment by segment, beside the same time on demand."""

from __future__ import annotations

from typing import Any

import click

from starverse.cli.remote.commands import command
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import columns, render_fields, render_table
from starverse.cli.remote.wording import length, rate, when, yuan
from starverse.client.shapes import Bill


@command("Print the bill of a job, a month or a cost label, segment by segment.")
@click.option("--job", metavar="N", help="One job, or all tasks of an array.")
@click.option("--month", metavar="YYYY-MM", help="Default: this month; with --job or --label, all.")
@click.option("--label", metavar="LABEL", help="Jobs submitted with --account=LABEL.")
def bill(session: Session, job: str | None, month: str | None, label: str | None) -> None:
    found = session.client().money.bill(job=job, month=month, label=label)
    session.emit(dict(found), lambda: bill_text(found))


def bill_text(found: Bill) -> str:
    """The bill as the CLI prints it."""
    rows = []
    for charge in found.get("charges") or ():
        for segment in charge.get("segments") or ():
            rows.append((charge["job"], charge.get("attempt"), *_segment(segment), charge.get("id")))
    titles = columns("JOB", ">RUN", *_SEGMENT_TITLES, "CHARGE")
    stored = found.get("disks") or []
    parts = [render_table(titles, rows)] if rows else []
    if stored:
        parts.append(render_table(columns(*_DISK_TITLES), _disks(stored)))
    parts = [*(parts or ["nothing charged yet"]), render_fields(_totals(found))]
    running = found.get("open") or []
    if running:
        parts.append(
            render_table(
                columns("STILL RUNNING", "SINCE", ">CNY SO FAR"),
                [(r.get("job"), when(r.get("start") or r.get("since")), _open_amount(r)) for r in running],
            )
        )
    return "\n\n".join(parts)


_DISK_TITLES = ("DISK", "KIND", "FROM", "TO", ">GIB", ">FREE", ">CNY")
_SEGMENT_TITLES = ("START", "END", ">CARDS", "TARIFF", ">CNY/CARD-HOUR", ">CNY", ">ON DEMAND")


def _segment(segment: Any) -> tuple[object, ...]:
    return (
        when(segment["start"]),
        when(segment["end"]),
        segment["cards"],
        segment["tariff"],
        rate(segment.get("rate_micro_per_card_hour")),
        yuan(segment["amount_micro"]),
        yuan(segment.get("on_demand_micro")),
    )


def _disks(stored: list[dict[str, Any]]) -> list[tuple[object, ...]]:
    """A line for each disk and size, over all of its charges."""
    rows: dict[tuple[Any, ...], list[Any]] = {}
    for charge in stored:
        for segment in charge.get("segments") or ():
            key = (charge["disk"], charge["disk_id"], charge["kind"], segment["gib"], segment["free_gib"])
            line = rows.setdefault(key, [segment["start"], segment["end"], 0])
            line[1], line[2] = segment["end"], line[2] + segment["amount_micro"]
    return [
        (name, kind, when(line[0]), when(line[1]), gib, free, yuan(line[2]))
        for (name, _, kind, gib, free), line in rows.items()
    ]


def _open_amount(running: dict[str, Any]) -> str | None:
    return yuan(running.get("amount_micro", running.get("total_micro")))


def _totals(found: Any) -> list[tuple[str, object]]:
    def paid(name: str) -> str | None:
        micro = found.get(f"{name}_micro")
        return f"CNY {yuan(micro)}" if micro else None

    lost = found.get("lost_work_seconds")
    on_demand, saved = found.get("on_demand_total_micro"), found.get("saved_micro")
    rounding = found.get("rounding_micro")
    return [
        ("total", f"CNY {yuan(found['total_micro'])}"),
        ("rounding", f"CNY {yuan(rounding)} to CNY {found['rounded']}" if "rounded" in found else None),
        ("paid by coupon", paid("coupon")),
        ("paid by credit", paid("credit")),
        ("paid by cash", paid("cash")),
        ("credited back", paid("credit_back")),
        ("written off", paid("written_off")),
        ("same time on demand", f"CNY {yuan(on_demand)}" if on_demand is not None else None),
        ("saved", f"CNY {yuan(saved)}" if saved else None),
        ("lost work", length(lost) if lost is not None else None),
    ]


@command("Explain a charge: every step from usage to payment.")
@click.argument("charge")
def explain(session: Session, charge: str) -> None:
    found = session.client().money.explain(charge)
    session.emit(found, lambda: _explanation(found))


def _explanation(answer: dict[str, Any]) -> str:
    found = {**(answer.get("charge") or {}), **answer}
    head = render_fields(
        [
            ("charge", found.get("id")),
            ("job", found.get("job")),
            ("disk", found.get("disk")),
            ("run", found.get("attempt")),
            ("from", when(found.get("start"))),
            ("to", when(found.get("end"))),
            ("total", f"CNY {yuan(found.get('total_micro') or 0)}"),
            ("price book", [_price_book(book) for book in found.get("price_books") or ()]),
        ]
    )
    runs = found.get("subject") != "disk"
    segments = [_segment(segment) for segment in found.get("segments") or ()] if runs else []
    parts = [head, render_table(columns(*_SEGMENT_TITLES), segments)] if segments else [head]
    steps = found.get("steps") or []
    if steps:
        parts.append("\n".join(f"{number}. {step}" for number, step in enumerate(steps, start=1)))
    transfers = found.get("transfers") or []
    if transfers:
        rows = [(t.get("id"), t.get("kind"), yuan(t.get("amount_micro"))) for t in transfers]
        parts.append(render_table(columns("TRANSFER", "KIND", ">CNY"), rows))
    return "\n\n".join(parts)


def _price_book(book: dict[str, Any]) -> str:
    since = when(book.get("effective_from"))
    return f"{book.get('id')}" + (f" (in force from {since})" if since else "")
