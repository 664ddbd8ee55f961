"""Kill -9 a process that posts, at a random moment, again and again, and audit the books after each.

The worker (``python -m benchmarks.ledger_kills DATABASE ACKS SEED``) posts charges alone and in groups,
takes, posts and voids holds, pays back; after each commit it appends to the file ACKS how many transfers it
had recorded. What was acknowledged must be there, and every invariant must hold.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import uuid_utils

from benchmarks.report import Figure
from starverse.db import ledger
from starverse.db.ledger_tables import ledger_accounts, open_holds, transfers
from starverse.db.metadata import metadata
from starverse.db.session import Database
from starverse.domain.ids import LedgerAccountId, TeamId, TransferId
from starverse.domain.ledger.accounts import REVENUE, cash, cash_id, gateway, gateway_id
from starverse.domain.ledger.transfers import Purpose, Transfer, hold, move, post_hold, refund, void_hold
from starverse.domain.money import Money

TEAM = TeamId("hot")
NOW = datetime(2026, 3, 10, tzinfo=UTC)
ALIVE_SECONDS_MAX = 0.4
ROOT = Path(__file__).parents[1]


def survive_kills(folder: Path, kills: int, seed: int) -> list[Figure]:
    """Kill ``kills`` workers on the same books; how often an invariant broke or an answer was forgotten."""
    database_file, acks = folder / "killed.db", folder / "acks"
    acks.touch()
    chance = random.Random(seed)
    _open_books(database_file)
    broken = forgotten = recorded = 0
    for number in range(kills):
        _kill_one(database_file, acks, seed=seed + number, alive_seconds=chance.uniform(0, ALIVE_SECONDS_MAX))
        acknowledged = acks.read_bytes().split(b"\n")[:-1]
        recorded, faults = _audit(database_file)
        broken += bool(faults)
        forgotten += bool(acknowledged) and recorded < int(acknowledged[-1])
    note = f"{recorded} transfers recorded by {kills} processes killed at random moments"
    return [
        Figure(f"books unsound after kill -9, of {kills}", broken, "times", at_most=0, note=note),
        Figure(f"acknowledged postings lost after kill -9, of {kills}", forgotten, "times", at_most=0),
    ]


def _kill_one(database_file: Path, acks: Path, *, seed: int, alive_seconds: float) -> None:
    before = acks.stat().st_size
    command = [sys.executable, "-m", "benchmarks.ledger_kills", str(database_file), str(acks), str(seed)]
    worker = subprocess.Popen(command, cwd=ROOT)
    try:
        while acks.stat().st_size == before and worker.poll() is None:
            time.sleep(0.001)
        time.sleep(alive_seconds)
        if worker.poll() is not None:
            raise SystemExit(f"the posting process ended by itself with {worker.returncode}")
    finally:
        worker.kill()
        worker.wait()


def _open_books(database_file: Path) -> None:
    database = Database(f"sqlite:///{database_file}")
    metadata.create_all(database.engine, tables=[ledger_accounts, transfers, open_holds])
    with database.write() as connection:
        ledger.open_platform_accounts(connection, NOW)
        ledger.open_accounts(connection, [cash(TEAM), gateway("mock")], NOW)
        ledger.post(connection, [_move(gateway_id("mock"), cash_id(TEAM), 10**15, Purpose.TOP_UP)], NOW)
    database.close()


def _audit(database_file: Path) -> tuple[int, bool]:
    database = Database(f"sqlite:///{database_file}")
    with database.read() as connection:
        recorded = sum(1 for _ in ledger.all_transfers(connection))
        faults = bool(ledger.check(connection))
    database.close()
    return recorded, faults


def work(database_file: Path, acks: Path, seed: int) -> None:
    """Post until killed."""
    database = Database(f"sqlite:///{database_file}")
    with database.read() as connection:
        recorded = sum(1 for _ in ledger.all_transfers(connection))
    log = os.open(acks, os.O_WRONLY | os.O_APPEND)
    for group in _postings(random.Random(seed)):
        with database.write() as connection:
            outcome = ledger.post(connection, group, NOW)
        if not outcome.ok:
            raise SystemExit(f"refused: {outcome.refusal}")
        recorded += len(group)
        os.write(log, f"{recorded}\n".encode())


def _postings(chance: random.Random) -> Iterator[list[Transfer]]:
    open_now: list[Transfer] = []
    while True:
        kind = chance.choice(["alone", "group", "hold", "resolve", "refund"])
        if kind == "alone":
            yield [_move(cash_id(TEAM), REVENUE, 7, Purpose.CHARGE)]
        elif kind == "group":
            yield [_move(cash_id(TEAM), REVENUE, 3, Purpose.CHARGE) for _ in range(50)]
        elif kind == "hold":
            open_now.append(hold(_id(), cash_id(TEAM), REVENUE, Money(100)))
            yield open_now[-1:]
        elif kind == "resolve" and open_now:
            pending = open_now.pop(chance.randrange(len(open_now)))
            part = Money(chance.randint(1, 100))
            yield [chance.choice([void_hold(_id(), pending), post_hold(_id(), pending, part)])]
        elif kind == "refund":
            paid = _move(cash_id(TEAM), REVENUE, 9, Purpose.CHARGE)
            yield [paid, refund(_id(), paid, Money(4))]


def _move(debit: LedgerAccountId, credit: LedgerAccountId, micro: int, purpose: Purpose) -> Transfer:
    return move(_id(), debit, credit, Money(micro), purpose)


def _id() -> TransferId:
    return TransferId(str(uuid_utils.uuid7()))


if __name__ == "__main__":
    work(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
