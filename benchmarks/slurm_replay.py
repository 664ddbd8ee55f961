"""Philly's arrivals, compressed in time, as no-op jobs through the platform on a real Slurm: what must hold.

Each arrival becomes a job of as many cards (at most one node's eight) that writes one line and ends. Once
all have ended, the platform's own database and data folder are checked from outside by named invariants, and
what the control plane used of memory and CPU is told.

    python -m benchmarks.slurm_replay --philly FOLDER [--nodes 8] [--jobs 60] [--rate 20] [--json]
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, func, select

from benchmarks.endings import ended_by_sigterm
from benchmarks.philly import Arrival, read_arrivals
from benchmarks.platform_starts import serving, until
from benchmarks.report import Figure, Report, emit
from starverse.client.api import Client
from starverse.client.jobs import Submission
from starverse.db import jobs as job_rows
from starverse.db import ledger
from starverse.db.session import Database
from starverse.db.tables import allocation_cards, allocations, charges, holds, jobs
from starverse.domain.workloads.states import JobState
from starverse.testing.slurm_lab import SlurmLab
from starverse.testing.slurm_sites import lab_variables

NUMBER = 15
NAME = "replay of Philly arrivals on a real Slurm"
NODE_CARDS = 8
SCRIPT = "#!/bin/bash\necho ran\n"
SETTINGS = {
    "policy.disk_reserve_mib": "64",
    "policy.start_timeout_seconds": "600",
    "server.log_level": "warning",
    "engine.driver": "process",
}
"""Starts of a crowd on a few cores take their time; without a sandbox it is the control plane that counts."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Settings:
    """``rate``: gaps of the trace longer than 1 / rate seconds are cut to that. ``open_most``: so many jobs
    are unfinished at once, since all nodes share the memory of this machine."""

    jobs_file: Path
    nodes: int = 8
    jobs: int = 60
    rate: float = 20.0
    open_most: int = 64
    patience_seconds: float = 3600.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Seconds, bytes; ``broken`` are the invariants that do not hold, with where."""

    wall_seconds: float
    cpu_seconds: float
    memory_bytes: int
    database_bytes: int
    cards: int
    broken: tuple[str, ...]


def measure(settings: Settings) -> Report:
    arrivals = read_arrivals(settings.jobs_file, settings.jobs)
    with SlurmLab(nodes=settings.nodes) as lab:
        outcome = replay(lab, arrivals, settings)
    count = len(arrivals)
    figures = [
        Figure("invariants broken", len(outcome.broken), "", at_most=0),
        Figure("jobs through the platform", count / outcome.wall_seconds, "jobs/s"),
        Figure("CPU of the control plane, per job", outcome.cpu_seconds / count * 1000, "ms"),
        Figure("memory of the control plane, at most", outcome.memory_bytes / 1024**2, "MiB"),
        Figure("database, per job", outcome.database_bytes / count, "bytes"),
    ]
    conditions = {
        "nodes": settings.nodes,
        "cards": settings.nodes * NODE_CARDS,
        "jobs": count,
        "cards_asked": outcome.cards,
        "arrivals": f"in the trace's order, gaps of at most {1 / settings.rate:g} s",
        "unfinished_at_once_at_most": settings.open_most,
        "wall_seconds": round(outcome.wall_seconds, 1),
        "sandbox": SETTINGS["engine.driver"],
        "launcher": "the real one, a Python process per job",
        "invariants": ", ".join(INVARIANTS),
    }
    return Report(NUMBER, NAME, figures, conditions, outcome.broken)


def replay(lab: SlurmLab, arrivals: Sequence[Arrival], settings: Settings) -> Outcome:
    """Submit each arrival at its compressed time, wait for all of them, look at everything."""
    with tempfile.TemporaryDirectory(prefix="replay-") as name:
        root = Path(name)
        root.chmod(0o755)
        with serving(root, (), {**SETTINGS, **lab_variables(lab)}) as server:
            server.client.money.top_up("9000.00")
            begun, before = time.monotonic(), _cpu_seconds(server.process.pid)
            with opened(server.data) as database:
                asked = submit_all(server.client, arrivals, settings, lambda: unfinished(database))
                until(lambda: not unfinished(database), settings.patience_seconds, "the end of all jobs")
            wall = time.monotonic() - begun
            until(lambda: not lab.command("squeue", "-h").strip(), 120, "an empty queue of Slurm")
            cpu = _cpu_seconds(server.process.pid) - before
            memory = _memory_bytes_max(server.process.pid)
        broken = tuple(look(server.data))
        size = sum(path.stat().st_size for path in server.data.glob("starverse.db*"))
    return Outcome(wall, cpu, memory, size, asked, broken)


def submit_all(
    client: Client, arrivals: Sequence[Arrival], settings: Settings, unfinished: Callable[[], int]
) -> int:
    """How many cards were asked for in all."""
    asked, before = 0, 0.0
    for position, arrival in enumerate(arrivals):
        time.sleep(min(1 / settings.rate, arrival.at_seconds - before))
        before = arrival.at_seconds
        if position % 8 == 0:
            room = settings.open_most - 8
            until(lambda room=room: unfinished() <= room, settings.patience_seconds, "room for more jobs")  # type: ignore[misc]
        cards = min(arrival.cards, NODE_CARDS)
        asked += cards
        words = (f"--gres=gpu:rtx4090:{cards}", "--tariff=spot", "--time=5", "--mem=64M")
        client.jobs.submit(Submission(SCRIPT, "replay.sh", words))
    return asked


@contextmanager
def opened(data: Path) -> Iterator[Database]:
    """The server's database, read beside it: asking the API would load what is measured."""
    database = Database(f"sqlite:///{data / 'starverse.db'}")
    try:
        yield database
    finally:
        database.close()


def unfinished(database: Database) -> int:
    """How many jobs wait or run."""
    states = (JobState.QUEUED, JobState.RUNNING)
    with database.read() as connection:
        query = select(func.count()).select_from(jobs).where(jobs.c.state.in_(states))
        return int(connection.execute(query).scalar_one())


def look(data: Path) -> Iterator[str]:
    """Every invariant that does not hold, with where."""
    with opened(data) as database, database.read() as connection:
        for name, check in INVARIANTS.items():
            yield from (f"{name}: {where}" for where in check(connection, data))


def _ledger_sound(connection: Connection, _data: Path) -> Iterator[str]:
    yield from map(str, ledger.check(connection))


def _every_job_succeeded(connection: Connection, _data: Path) -> Iterator[str]:
    for job in job_rows.in_state(connection, *JobState):
        if job.state is not JobState.SUCCEEDED:
            yield f"job {job.display_number} is {job.state.value}: {job.message}"


def _ran_once_per_success(connection: Connection, data: Path) -> Iterator[str]:
    """Each attempt's log has one line: a script that ran twice, or half, shows."""
    for job in job_rows.in_state(connection, JobState.SUCCEEDED):
        text = (data / "logs" / job.id / f"{job.attempts}.out").read_text()
        if text != "ran\n":
            yield f"job {job.display_number}: its log is {text!r}"


def _card_once_at_a_time(connection: Connection, _data: Path) -> Iterator[str]:
    """By the launchers' own times, no card ran two scripts at once."""
    spans: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    rows = connection.execute(
        select(allocation_cards.c.card_id, allocations.c.id, allocations.c.ready_at, allocations.c.ended_at)
        .join(allocations, allocations.c.id == allocation_cards.c.allocation_id)
        .where(allocations.c.ready_at.is_not(None))
    )
    for card, name, ready, ended in rows:
        spans[card].append((ready.timestamp(), ended.timestamp(), name))
    for card, found in spans.items():
        found.sort()
        for one, other in itertools.pairwise(found):
            if other[0] < one[1]:
                yield f"{card} ran {one[2]} and {other[2]} at once"


def _money_at_rest(connection: Connection, _data: Path) -> Iterator[str]:
    """No hold is open, each run that was ready was charged once, and no other was charged."""
    for row in connection.execute(select(holds.c.id).where(holds.c.state == "open")):
        yield f"hold {row.id} is open"
    charged = [row.allocation_id for row in connection.execute(select(charges.c.allocation_id))]
    ran = {
        row.id
        for row in connection.execute(select(allocations.c.id).where(allocations.c.ready_at.is_not(None)))
    }
    if len(charged) != len(set(charged)):
        yield f"{len(charged) - len(set(charged))} runs were charged twice"
    for name in sorted(set(charged) ^ ran):
        yield f"{name} ran or was charged, and not both"


def _nothing_open(connection: Connection, _data: Path) -> Iterator[str]:
    for row in connection.execute(select(allocation_cards.c.card_id).where(allocation_cards.c.open)):
        yield f"card {row.card_id} is still taken"


INVARIANTS: dict[str, Callable[[Connection, Path], Iterator[str]]] = {
    "ledger_sound": _ledger_sound,
    "every_job_succeeded": _every_job_succeeded,
    "ran_once_per_success": _ran_once_per_success,
    "card_once_at_a_time": _card_once_at_a_time,
    "money_at_rest": _money_at_rest,
    "nothing_open": _nothing_open,
}


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory_bytes_max(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1 when an invariant is broken."""
    parser = argparse.ArgumentParser(prog="slurm-replay", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--philly", type=Path, required=True, help="the folder of the trace, or jobs.csv.gz")
    parser.add_argument("--nodes", type=int, default=8, help="slurmd, of eight cards each")
    parser.add_argument("--jobs", type=int, default=60, help="the first so many arrivals")
    parser.add_argument(
        "--rate", type=float, default=20.0, help="arrivals a second where the trace is slower"
    )
    parser.add_argument("--open-most", type=int, default=64, help="unfinished jobs at once")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    if why := SlurmLab.missing():
        sys.stderr.write(f"not run: {why}\n")
        return 0
    jobs_file = given.philly / "jobs.csv.gz" if given.philly.is_dir() else given.philly
    with ended_by_sigterm():
        report = measure(Settings(jobs_file, given.nodes, given.jobs, given.rate, given.open_most))
    emit(report, as_json=given.json)
    return 1 if report.missing else 0


if __name__ == "__main__":
    sys.exit(main())
