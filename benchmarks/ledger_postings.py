"""Benchmark 13: how fast the ledger posts durably, and whether it survives ``kill -9``.

Philly's jobs become charges on one hot wallet. Beside each figure, in the same round: the flush bound (a
4 KiB append and fsync, again and again), SQLite with ``synchronous=FULL`` inserting the same rows raw into
the same table, and PostgreSQL where ``STARVERSE_TEST_POSTGRES`` names one. Medians over the rounds.

    python -m benchmarks.ledger_postings --philly FOLDER/jobs.csv.gz [--json]
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import uuid_utils
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from benchmarks.ledger_kills import survive_kills
from benchmarks.report import Figure, Report, emit, flush_p50_seconds
from starverse.db import ledger
from starverse.db.ledger_tables import ledger_accounts, open_holds, transfers
from starverse.db.metadata import metadata
from starverse.db.session import Database
from starverse.domain.ids import TeamId, TransferId
from starverse.domain.ledger.accounts import REVENUE, cash, cash_id, gateway, gateway_id
from starverse.domain.ledger.transfers import Purpose, Transfer, move
from starverse.domain.money import Money, floor_to_micro

TEAM = TeamId("hot")
NOW = datetime(2026, 3, 10, tzinfo=UTC)
RATE_MICRO_PER_CARD_HOUR = 1_660_000
TABLES = [ledger_accounts, transfers, open_holds]
T = TypeVar("T")

RAW_INSERT = """
INSERT INTO transfers (id, kind, debit_id, credit_id, amount, purpose, recorded_at) VALUES (?,?,?,?,?,?,?)"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 0 whatever the ratios are, 1 when the books broke."""
    options = _parse(arguments)
    amounts = read_amounts(options.philly)
    samples: dict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="ledger-bench-") as name:
        folder = Path(name)
        flush = flush_p50_seconds(folder)
        for round_number in range(options.rounds):
            for key, rate in measure_round(folder / str(round_number), amounts, options):
                samples[key].append(rate)
        kills = survive_kills(folder, options.kills, options.seed)
    rates = {key: statistics.median(found) for key, found in samples.items()}
    figures = [*_rate_figures(rates, options), *kills]
    missing = [] if "postgresql single" in rates else ["PostgreSQL: STARVERSE_TEST_POSTGRES names none"]
    conditions = {
        "data": f"{len(amounts)} jobs of Philly, one hot wallet",
        "rounds": options.rounds,
        "seed": options.seed,
        "flush_p50_us": round(flush * 1e6, 1),
        "singles_per_round": options.singles,
        "grouped_per_round": options.grouped,
        "postings_per_transaction": options.batch,
        "spread": {key: f"{min(found):,.0f}..{max(found):,.0f}/s" for key, found in sorted(samples.items())},
    }
    emit(Report(13, "ledger", figures, conditions, missing), as_json=options.json)
    return 1 if any(figure.measured for figure in kills if figure.at_most == 0) else 0


def read_amounts(path: Path) -> list[Money]:
    """What each job of the trace would cost on demand; jobs that cost nothing are left out."""
    with gzip.open(path, "rt", newline="") as file:
        seconds = [Fraction(row["gpu_time"]) for row in csv.DictReader(file)]
    amounts = [floor_to_micro(RATE_MICRO_PER_CARD_HOUR * found / 3600) for found in seconds]
    return [amount for amount in amounts if amount.micro > 0]


def measure_round(
    folder: Path, amounts: list[Money], options: argparse.Namespace
) -> Iterator[tuple[str, float]]:
    """Every rate of one round in postings per second, each on fresh books; bound and ours side by side."""
    folder.mkdir()
    singles = _charges(amounts, options.singles)
    many = _charges(amounts, options.grouped)
    yield "flush bound", _flush_rate(folder, options.singles)
    with _fresh(f"sqlite:///{folder / 'raw-single.db'}") as database:
        yield "raw single", _raw_single_rate(database, singles)
    with _fresh(f"sqlite:///{folder / 'single.db'}") as database:
        yield "single", _single_rate(database, singles)
    with _fresh(f"sqlite:///{folder / 'raw-batch.db'}") as database:
        yield "raw batch", _raw_batch_rate(database, many, options.batch)
    with _fresh(f"sqlite:///{folder / 'grouped.db'}") as database:
        yield "grouped", _grouped_rate(database, many, options.batch)
    url = os.environ.get("STARVERSE_TEST_POSTGRES")
    if url:
        with _postgres_schema(url) as inside, _fresh(inside) as database:
            yield "postgresql single", _single_rate(database, singles)


def _rate_figures(rates: dict[str, float], options: argparse.Namespace) -> list[Figure]:
    def figure(name: str, key: str, peer: str, peer_key: str, at_least: float | None = None) -> Figure:
        return Figure(name, rates[key], "postings/s", peer, rates.get(peer_key), at_least=at_least)

    alone = "durable single, one caller"
    raw = "SQLite FULL, raw row"
    grouped = f"grouped, {options.batch} a transaction"
    return [
        figure(alone, "single", "flush bound", "flush bound", 0.85),
        figure(alone, "single", raw, "raw single"),
        figure(alone, "single", "the same on PostgreSQL", "postgresql single"),
        figure(raw, "raw single", "flush bound", "flush bound"),
        figure(grouped, "grouped", "raw batch insert", "raw batch", 0.4),
    ]


def _flush_rate(folder: Path, count: int) -> float:
    page = b"\0" * 4096
    with (folder / "append.log").open("ab", buffering=0) as file:

        def append(_item: int) -> None:
            file.write(page)
            os.fsync(file.fileno())

        return _rate(append, range(count))


def _raw_single_rate(database: Database, charges: list[Transfer]) -> float:
    with _driver(database) as driver:

        def insert(row: tuple[object, ...]) -> None:
            driver.execute("BEGIN IMMEDIATE")
            driver.execute(RAW_INSERT, row)
            driver.execute("COMMIT")

        return _rate(insert, [_raw_row(charge) for charge in charges])


def _raw_batch_rate(database: Database, charges: list[Transfer], batch: int) -> float:
    with _driver(database) as driver:

        def insert(rows: list[tuple[object, ...]]) -> None:
            driver.execute("BEGIN IMMEDIATE")
            driver.executemany(RAW_INSERT, rows)
            driver.execute("COMMIT")

        return _rate(insert, _batches([_raw_row(charge) for charge in charges], batch)) * batch


def _single_rate(database: Database, charges: list[Transfer]) -> float:
    def post(charge: Transfer) -> None:
        with database.write() as connection:
            ledger.post(connection, (charge,), NOW)

    rate = _rate(post, charges)
    _assert_recorded(database, len(charges))
    return rate


def _grouped_rate(database: Database, charges: list[Transfer], batch: int) -> float:
    def post(groups: list[tuple[Transfer, ...]]) -> None:
        with database.write() as connection:
            ledger.post_groups(connection, groups, NOW)

    groups: list[tuple[Transfer, ...]] = [(charge,) for charge in charges]
    rate = _rate(post, _batches(groups, batch)) * batch
    _assert_recorded(database, len(charges))
    return rate


def _rate(act: Callable[[T], None], items: Sequence[T]) -> float:
    begun = time.perf_counter()
    for item in items:
        act(item)
    return len(items) / (time.perf_counter() - begun)


def _batches(items: list[T], size: int) -> list[list[T]]:
    return [items[first : first + size] for first in range(0, len(items) - size + 1, size)]


def _charges(amounts: list[Money], count: int) -> list[Transfer]:
    cash_account = cash_id(TEAM)
    return [
        move(
            TransferId(str(uuid_utils.uuid7())),
            cash_account,
            REVENUE,
            amounts[n % len(amounts)],
            Purpose.CHARGE,
        )
        for n in range(count)
    ]


def _raw_row(charge: Transfer) -> tuple[object, ...]:
    return (charge.id, "posted", charge.debit, charge.credit, charge.amount.micro, "charge", 0)


def _assert_recorded(database: Database, count: int) -> None:
    """The figure counts only when the books are sound and hold every posting."""
    with database.read() as connection:
        found = connection.execute(text("SELECT count(*) FROM transfers")).scalar()
        broken = ledger.check(connection)
    if found != count + 1 or broken:
        raise SystemExit(f"{found} transfers instead of {count + 1}; broken: {broken}")


@contextmanager
def _fresh(url: str) -> Iterator[Database]:
    """New books with one team whose wallet pays for everything."""
    database = Database(url)
    metadata.create_all(database.engine, tables=TABLES)
    with database.write() as connection:
        ledger.open_platform_accounts(connection, NOW)
        ledger.open_accounts(connection, [cash(TEAM), gateway("mock")], NOW)
        top_up = move(TransferId("top-up"), gateway_id("mock"), cash_id(TEAM), Money(10**17), Purpose.TOP_UP)
        if not ledger.post(connection, [top_up], NOW).ok:
            raise SystemExit("the top-up was refused")
    try:
        yield database
    finally:
        database.close()


@contextmanager
def _driver(database: Database) -> Iterator[Any]:
    """The SQLite driver's own connection, set up as the product's is."""
    pooled = database.engine.raw_connection()
    try:
        yield pooled.driver_connection
    finally:
        pooled.close()


@contextmanager
def _postgres_schema(url: str) -> Iterator[str]:
    """The URL of a schema of its own, dropped at the end."""
    schema = f"bench_{uuid.uuid4().hex}"
    admin = create_engine(url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    try:
        inside = make_url(url).update_query_dict({"options": f"-csearch_path={schema}"})
        yield inside.render_as_string(hide_password=False)
    finally:
        with admin.connect() as connection:
            connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
        admin.dispose()


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="ledger_postings", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--philly", type=Path, required=True, help="jobs.csv.gz of the Philly trace")
    parser.add_argument("--folder", type=Path, help="where to write (default: the temporary folder)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--singles", type=int, default=1_000, help="single postings a round")
    parser.add_argument("--grouped", type=int, default=20_000, help="grouped postings a round")
    parser.add_argument("--batch", type=int, default=1_000, help="postings a transaction where grouped")
    parser.add_argument("--kills", type=int, default=20, help="how often to kill -9 a posting process")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
