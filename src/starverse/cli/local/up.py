"""``starverse up``: the whole product in one process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from starverse.config import Config
    from starverse.main import Address


@click.command("up")
@click.option("--host", metavar="ADDRESS", help="Address to listen on. [127.0.0.1]")
@click.option("--port", type=int, metavar="PORT", help="Port to listen on; 0 takes a free one. [8750]")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Data folder.")
@click.option("--db", metavar="URL", help="Database URL. [SQLite in the data folder]")
@click.option("--engine", type=click.Choice(["local", "slurm"]), help="Where allocations run. [local]")
@click.option(
    "--declare-cards",
    metavar="MODEL:N,...",
    help="Lend cards that are not there, one node per entry: rtx4090:8,a100-40g:4.",
)
@click.option("--driver", type=click.Choice(["bwrap", "process"]), help="Sandbox of workloads. [bwrap]")
@click.option("--grace", type=int, metavar="SECONDS", help="From a notice to TERM. [120]")
@click.option(
    "--config", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE", help="Settings file."
)
def command(
    host: str | None,
    port: int | None,
    data: Path | None,
    db: str | None,
    engine: str | None,
    declare_cards: str | None,
    driver: str | None,
    grace: int | None,
    config: Path | None,
) -> None:
    """Serve the API, the reconcilers and the engine until Ctrl-C.

    Workloads go on when this process ends; the next one on the same data folder adopts them.
    """
    with _no_garbage():
        from starverse.config import load
        from starverse.main import serve

    flags = {
        "server.host": host,
        "server.port": port,
        "server.data": data,
        "server.db": db,
        "engine.kind": engine,
        "engine.declare_cards": declare_cards,
        "engine.driver": driver,
        "policy.grace_seconds": grace,
    }
    loaded = load(config, flags=flags)
    serve(loaded.config, lambda address: _announce(address, loaded.config))


@contextmanager
def _no_garbage() -> Iterator[None]:
    """All that is made inside stays for good: looking for garbage in it is a tenth of the start's work, and
    part of every full collection later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def _announce(address: Address, config: Config) -> None:
    from starverse.engines.local.engine import isolation_gaps

    engine = config.engine
    lines = [
        f"starverse is up at {address.url}",
        f"data folder: {address.data}",
        f"operator's token: {address.data / 'operator-token'}",
    ]
    if address.ssh:
        lines.append(f"SSH into instances at {address.ssh}")
    if engine.kind == "slurm" and config.slurm.cards_declared:
        lines.append("the cluster's cards are declared (they are not really there)")
    if engine.kind == "local" and engine.declare_cards:
        lines.append(f"declared cards (they are not really there): {engine.declare_cards}")
    if engine.driver != "bwrap":
        lines.append(f"jobs run without a sandbox (driver {engine.driver}), which does not isolate")
        lines += [f"  {text}" for text in isolation_gaps(engine.driver)]
    if address.unpriced:
        lines.append(f"no price in the price book, so nobody can rent them: {', '.join(address.unpriced)}")
        lines.append(
            "  add one: starverse admin price show > book.yaml, then starverse admin price set book.yaml"
        )
    lines.append(f"try: STARVERSE_API={address.url} starverse register you@example.org")
    click.echo("\n".join(lines), err=True)
