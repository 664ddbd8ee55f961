"""``starverse simulate``: replay a trace through the scheduler and the prices, without a server."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from starverse.domain.pricing.price_book import PriceBook
    from starverse.sim.replay import Outcome
    from starverse.sim.trace import Trace, TraceJob

SIDE_BY_SIDE_MAX = 4
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("simulate")
@click.option(
    "--jobs", type=_FILE, required=True, metavar="FILE", help="Philly, openb, sacct, or job ls --json."
)
@click.option(
    "--nodes", type=_FILE, required=True, metavar="FILE", help="CSV: count,cards,model,cpus,memory_gib."
)
@click.option(
    "--price-book", "books", type=_FILE, multiple=True, metavar="FILE", help="YAML; may be repeated."
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    metavar="POLICY",
    help="on_demand, spot, spot:0.3 or spot:TEAM,TEAM; may be repeated. [default: on_demand]",
)
@click.option("--model", metavar="MODEL", help="Card model that all nodes get, one of the price book's.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Only the first N jobs.")
@click.option(
    "--tick",
    type=click.IntRange(1),
    default=60,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between decisions.",
)
@click.option(
    "--checkpoint",
    type=click.IntRange(1),
    default=1800,
    show_default=True,
    metavar="SECONDS",
    help="Seconds between checkpoints.",
)
@click.option("--skip-bad", is_flag=True, help="Leave out lines that cannot be replayed.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="A report: .html or .md."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    jobs: Path, nodes: Path, out: Path | None, skip_bad: bool, as_json: bool, **options: object
) -> None:
    """Replay a trace through the scheduler and the prices: use, waits, cost, reclaims, lost work.

    Several price books or policies are replayed side by side.
    """
    from starverse.sim.cluster_file import read_nodes
    from starverse.sim.figures import figures
    from starverse.sim.report import html, markdown
    from starverse.sim.trace import read_trace

    trace = read_trace(_text(jobs))
    _refuse_faults(trace, skip_bad=skip_bad)
    model = options["model"]
    cluster = read_nodes(_text(nodes), model if isinstance(model, str) else None)
    outcomes, shift = _replays(trace, cluster, options)
    found = [figures(outcome) for outcome in outcomes]
    notes = [*trace.notes, *(f"left out: {fault}" for fault in trace.faults)]
    if shift:
        notes.append(f"the trace was moved by {shift // 7} weeks, to when the price book is in effect")
    if out is not None:
        text = html(outcomes, found, notes) if out.suffix in (".html", ".htm") else markdown(found, notes)
        out.write_text(text, "utf-8")
    if as_json:
        rows = [one.to_json() for one in found]
        click.echo(json.dumps({"version": 1, "replays": rows, "notes": notes}, indent=2))
    elif out is None:
        click.echo(markdown(found, notes), nl=False)
    else:
        click.echo(f"wrote {out}")


def _text(path: Path) -> str:
    import gzip

    from starverse.domain.errors import FieldFault, Invalid

    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise Invalid(faults=[FieldFault("file", str(path), "a readable text file in UTF-8")]) from error


def _refuse_faults(trace: Trace, *, skip_bad: bool) -> None:
    from starverse.domain.errors import FieldFault, Invalid
    from starverse.sim.trace import FAULTS_SHOWN

    if not trace.faults or skip_bad:
        return
    more = len(trace.faults) - FAULTS_SHOWN
    faults = [
        FieldFault("jobs", str(fault), "a job; --skip-bad leaves it out")
        for fault in trace.faults[:FAULTS_SHOWN]
    ]
    if more > 0:
        faults.append(FieldFault("jobs", f"{more} lines more", "jobs"))
    raise Invalid(faults=faults)


def _replays(trace: Trace, nodes: tuple, options: dict[str, object]) -> tuple[list[Outcome], int]:  # type: ignore[type-arg]
    """Every policy with every price book, and by how many days the trace was moved."""
    from starverse.domain.errors import FieldFault, Invalid
    from starverse.domain.pricing.price_book import PriceBooks
    from starverse.sim.policy import read_policy
    from starverse.sim.replay import Replay, Rules

    paths, policies = options["books"], options["policies"] or ("on_demand",)
    assert isinstance(paths, tuple)
    assert isinstance(policies, tuple)
    books = [(path.stem, _book(path)) for path in paths] or [("", _book(None))]
    if len(books) * len(policies) > SIDE_BY_SIDE_MAX:
        fault = FieldFault("policy", f"{len(books)} x {len(policies)} replays", f"at most {SIDE_BY_SIDE_MAX}")
        raise Invalid(faults=[fault])
    for _, book in books:
        for node in nodes:
            for card in node.cards[:1]:
                book.list_price_of(card.model, node.fabric)
    limit, tick, checkpoint = options["limit"], options["tick"], options["checkpoint"]
    jobs, days = _moved(trace.jobs[: limit if isinstance(limit, int) else None], [book for _, book in books])
    outcomes = []
    for label, book in books:
        for policy in policies:
            name = f"{policy}, {label}" if len(books) > 1 else policy
            rules = Rules(name, PriceBooks([book]), read_policy(policy), int(str(tick)), int(str(checkpoint)))
            outcomes.append(Replay(jobs, nodes, rules, time.perf_counter).run())
    return outcomes, days


def _moved(jobs: Sequence[TraceJob], books: Sequence[PriceBook]) -> tuple[list[TraceJob], int]:
    """By whole weeks, so that days of the week and hours stay, until every price book is in effect."""
    since = max(book.effective_from for book in books)
    weeks = max(0, -((jobs[0].at - since) // timedelta(weeks=1)))
    return [replace(job, at=job.at + timedelta(weeks=weeks)) for job in jobs], 7 * weeks


def _book(path: Path | None) -> PriceBook:
    from starverse.domain.pricing.price_book_yaml import load_price_book, shipped_price_book

    return shipped_price_book() if path is None else load_price_book(_text(path))
