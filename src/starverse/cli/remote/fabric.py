"""``admin fabric check`` and ``admin fabric ls``: the network between nodes as it was measured."""

from __future__ import annotations

from typing import Any

import click

from starverse.cli.remote import exit_codes
from starverse.cli.remote.commands import Group, command, yes_option
from starverse.cli.remote.session import Session
from starverse.cli.remote.tables import columns, render_table
from starverse.cli.remote.wording import nanoseconds, rate_of_bytes, when

NOT_MEASURED = "not measured"
POLL_SECONDS = 2.0
WAIT_SECONDS = 900
WHAT = {"round_trip": "round trip", "bandwidth": "bandwidth", "all_reduce": "all-reduce"}


@click.group("fabric", cls=Group, help="The network between nodes, as it was measured.")
def group() -> None:
    """The network between nodes, as it was measured."""


@command("Measure pairs of nodes, by a job of two nodes each on spot for your team.", name="check")
@click.option("--pool", metavar="POOL", help="Such as bj1/rtx4090/ib. [every pool with two nodes]")
@click.option(
    "--pairs", type=click.IntRange(1, 100), default=1, show_default=True, help="Pairs of each pool."
)
@click.option(
    "--wait",
    "wait_seconds",
    type=click.IntRange(0),
    default=WAIT_SECONDS,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the figures; the checks go on without us.",
)
@yes_option()
def check(session: Session, pool: str | None, pairs: int, wait_seconds: int, yes: bool) -> None:
    admin = session.client().admin
    planned = admin.ask_fabric_check(pool, pairs, lint=True)
    listed = ", ".join(" - ".join(one["nodes"]) for one in planned["checks"])
    session.note(f"pairs: {listed}")
    session.note(f"each: {planned['price']}; it takes a minute or two")
    session.confirm("Measure?", yes=yes)
    batch = admin.ask_fabric_check(pool, pairs)
    waited = 0.0
    while not batch["settled"] and waited < wait_seconds:
        session.pause(POLL_SECONDS)
        waited += POLL_SECONDS
        batch = {**admin.fabric_check(batch["id"]), "price": planned["price"]}
    session.emit(batch, lambda: _checks(batch["checks"]))
    if not batch["settled"]:
        session.note("not all are done; `starverse admin fabric ls` shows the figures when they are")
        session.exit_code = exit_codes.TIMED_OUT
    elif any(one["state"] == "failed" for one in batch["checks"]):
        session.exit_code = exit_codes.FAILURE
    else:
        session.note("`starverse admin fabric ls` and `starverse offers` show the figures")


def _checks(checks: list[dict[str, Any]]) -> str:
    rows = [
        (
            one["pool"],
            " - ".join(one["nodes"]),
            one["state"],
            one["job"],
            when(one["measured_at"]),
            one["message"],
        )
        for one in checks
    ]
    return render_table(columns("POOL", "NODES", "STATE", "JOB", "MEASURED", "MESSAGE"), rows)


@command("Show the newest figures of each pair of nodes, with their date.", name="ls")
def ls(session: Session) -> None:
    pools = session.client().admin.fabric()
    session.emit({"items": pools}, lambda: _pools(pools))
    if any(figure["same_machine"] for pool in pools for figure in pool["pairs"]) and not session.json:
        session.note("*: both nodes are one machine, so this is its loopback and no network")


def _pools(pools: list[dict[str, Any]]) -> str:
    rows: list[tuple[object, ...]] = []
    for pool in pools:
        if not pool["pairs"]:
            few = " (one node)" if pool["nodes"] < 2 else ""
            rows.append((pool["pool"], None, NOT_MEASURED + few, None, None, None, None, None))
        rows += [
            (
                pool["pool"],
                " - ".join(figure["nodes"]),
                WHAT.get(figure["what"], figure["what"]),
                figure["method"] + ("*" if figure["same_machine"] else ""),
                nanoseconds(figure["p50_nanoseconds"]),
                nanoseconds(figure["p99_nanoseconds"]),
                rate_of_bytes(figure["bytes_per_second"]),
                when(figure["measured_at"]),
            )
            for figure in pool["pairs"]
        ]
    titles = columns("POOL", "NODES", "WHAT", "BY", ">P50", ">P99", ">RATE", "MEASURED")
    return render_table(titles, rows)


def words_of(figures: list[dict[str, Any]]) -> str:
    """What an offer tells of its network in one line: never anything that was not measured."""
    if not figures:
        return NOT_MEASURED
    parts = []
    for figure in figures:
        rate, time = rate_of_bytes(figure["bytes_per_second"]), nanoseconds(figure["p50_nanoseconds"])
        p99 = nanoseconds(figure["p99_nanoseconds"])
        shown = rate or (f"{time}, p99 {p99}" if p99 else time)
        parts.append(f"{WHAT.get(figure['what'], figure['what'])} {shown} by {figure['method']}")
    day = min(figure["measured_at"] for figure in figures)[:10]
    pairs = max(figure["pairs"] for figure in figures)
    of = "1 pair of nodes" if pairs == 1 else f"the slowest of {pairs} pairs of nodes"
    one_machine = ", on one machine: no network" if any(f["same_machine"] for f in figures) else ""
    return f"{', '.join(parts)}; {of}, measured {day}{one_machine}"


for member in (check, ls):
    group.add_command(member)
