"""Benchmark 15, restart: how long a new server takes to adopt all that runs after ``kill -9`` of the old one.

The allocations are real rows and real folders, made by submit, scheduler, launch and observe on the local
engine over declared cards. Their launchers are stand-ins, one process for all of them
(``stand_in_launchers``): they hold claims, write states each second and answer on the channel as launchers
do, but run nothing. Before each restart what launchers were told is deleted, so that only the new server can
say it again, from its record.

    python -m benchmarks.adoption [--allocations 1000] [--restarts 3] [--json]
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from benchmarks.endings import ended_by_sigterm
from benchmarks.platform_starts import ENTRY, UP_SECONDS_MAX, PlatformFailed, until
from benchmarks.report import Figure, Report, emit
from starverse.app.maintenance.migrating import migrate_at_start
from starverse.app.platform import Platform
from starverse.app.ports import SystemClock
from starverse.db import ledger
from starverse.db.session import Database
from starverse.db.tables import allocations
from starverse.domain.workloads.launch import LaunchSpec
from starverse.domain.workloads.states import AllocationState
from starverse.engines.local import LocalEngine
from starverse.node.cards.declared import CARDS_PER_NODE_MAX, DeclaredCards
from starverse.testing.live_person import clean_environment
from starverse.testing.live_servers import ask
from starverse.testing.platforms import make_platform
from starverse.testing.worlds import World

NUMBER = 15
NAME = "adoption after a restart (local engine, stand-ins for launchers)"
TEAMS = 10
MEMORY = "8M"
PATIENCE_SECONDS = 300.0
SETTINGS = {"STARVERSE_POLICY__DISK_RESERVE_MIB": "64", "STARVERSE_SERVER__LOG_LEVEL": "warning"}
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Settings:
    allocations: int = 1_000
    restarts: int = 3
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class Adoption:
    """Seconds from the start of the new server's process; ``cpu`` is its CPU until all of it was there."""

    ready: float
    alive: float
    heard: float
    cpu: float


@dataclass(slots=True)
class Outcome:
    """What all restarts together showed. ``idle``: seconds and CPU seconds of a start without allocations."""

    filled: float
    adoptions: list[Adoption] = field(default_factory=list)
    idle: list[tuple[float, float]] = field(default_factory=list)
    reads: list[float] = field(default_factory=list)
    running: int = 0
    ended: int = 0
    broken: int = 0


class UnstartedEngine(LocalEngine):
    """The local engine, which leaves it to others to start launchers for the folders it wrote."""

    def submit(self, launch: LaunchSpec) -> None:
        self._write_launch(launch, self._setup().to_json())


class FillingWorld(World):
    """A control plane in this process that submits, places and starts, on the machine's own clock."""

    def __init__(self, database: Database, data: Path, cards: str) -> None:
        self.local = UnstartedEngine(data, DeclaredCards(cards), use_zygote=False)
        super().__init__(database, data, start_timeout_seconds=3600, queued_jobs_max=10**6)

    def make_platform(self) -> Platform:
        settings: dict[str, Any] = self.settings
        self.clock.at = datetime.now(UTC)  # for who registers and pays
        return make_platform(self.database, self.data, self.local, clock=SystemClock(), **settings)


def measure(settings: Settings) -> Report:
    with tempfile.TemporaryDirectory(prefix="adoption-", dir=settings.folder) as name:
        outcome = adopt(Path(name), settings)
        cards = declared(settings.allocations)
        outcome.idle += [time_idle(Path(name, f"idle-{n}"), cards) for n in range(settings.restarts)]
    conditions = {
        "allocations": settings.allocations,
        "restarts": settings.restarts,
        "launchers": "stand-ins: one process holds all claims, writes all states, answers all channels",
        "filled_seconds": round(outcome.filled, 1),
        "spread_s": {
            name: f"{min(found):.2f}..{max(found):.2f}" for name, found in _samples(outcome).items()
        },
    }
    return Report(NUMBER, NAME, figures_of(outcome, settings.allocations), conditions)


def figures_of(outcome: Outcome, count: int) -> list[Figure]:
    middle = {name: statistics.median(found) for name, found in _samples(outcome).items()}
    alone, alone_cpu = (statistics.median(found) for found in zip(*outcome.idle, strict=True))
    read = statistics.median(outcome.reads)
    nothing = "nothing to adopt"
    of_all = f"of {count:,}"
    return [
        Figure("restart: /readyz answers, p50", middle["ready"], "s", nothing, alone),
        Figure(f"restart: each {of_all} seen alive, p50", middle["alive"], "s", "read of their states", read),
        Figure(f"restart: each {of_all} told what is wanted, p50", middle["heard"], "s"),
        Figure("restart: CPU of the server until then, p50", middle["cpu"], "s", nothing, alone_cpu),
        Figure(f"allocations ended or lost by restarts, {of_all}", outcome.ended, "", at_most=0),
        Figure(f"allocations that run after the last restart, {of_all}", outcome.running, "", at_least=count),
        Figure("invariants of the ledger broken", outcome.broken, "", at_most=0),
    ]


def _samples(outcome: Outcome) -> dict[str, list[float]]:
    return {
        name: [getattr(adoption, name) for adoption in outcome.adoptions]
        for name in ("ready", "alive", "heard", "cpu")
    }


def adopt(root: Path, settings: Settings) -> Outcome:
    """Fill a platform, then kill and start its server again and again."""
    data, heard = root / "data", root / "heard"
    cards = declared(settings.allocations)
    data.mkdir(mode=0o700)
    heard.touch()
    database = Database(f"sqlite:///{data / 'starverse.db'}")
    try:
        migrate_at_start(database)
        with stand_ins(data, settings.allocations, heard):
            begun = time.monotonic()
            fill(database, data, cards, settings.allocations)
            outcome = Outcome(time.monotonic() - begun)
            servers = Servers(root, data, cards)
            try:
                servers.start()
                watch_adoption(servers, database, heard, settings.allocations, time.time())
                for _ in range(settings.restarts):
                    servers.kill()
                    outcome.reads.append(time_reads(data))
                    untell(data, heard)
                    begun_at = time.time()
                    servers.start()
                    outcome.adoptions.append(
                        watch_adoption(servers, database, heard, settings.allocations, begun_at)
                    )
                settle(database, settings.allocations)
                take_stock(database, outcome)
            finally:
                servers.kill()
    finally:
        database.close()
    return outcome


def declared(count: int) -> str:
    """Nodes of declared cards with one for each allocation."""
    full, rest = divmod(count, CARDS_PER_NODE_MAX)
    sizes = [CARDS_PER_NODE_MAX] * full + ([rest] if rest else [])
    return ",".join(f"rtx4090:{size}" for size in sizes)


@contextmanager
def stand_ins(data: Path, count: int, heard: Path) -> Iterator[None]:
    (data / "allocations").mkdir(mode=0o700)
    words = [sys.executable, "-m", "benchmarks.stand_in_launchers", str(data), str(count), str(heard)]
    place = Path(__file__).parent.parent
    process = subprocess.Popen(words, stdin=subprocess.PIPE, cwd=place, env=clean_environment())
    try:
        yield
        if process.poll() is not None:
            raise PlatformFailed(f"the stand-ins for launchers ended with {process.returncode}")
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()


def fill(database: Database, data: Path, cards: str, count: int) -> None:
    """Running allocations by the product's own way: submit, schedule, launch, observe."""
    world = FillingWorld(database, data, cards)
    world.local.start()
    try:
        for number in range(min(TEAMS, count)):
            tasks = count // TEAMS + (number < count % TEAMS)
            words = (f"--array=0-{tasks - 1}", f"--mem={MEMORY}", "--cpus-per-task=1", "--time=600")
            world.submit(world.team(f"team{number}", "1000000"), *words, name=f"job{number}")
        deadline = time.monotonic() + PATIENCE_SECONDS
        while in_state(database, AllocationState.RUNNING) < count:
            if time.monotonic() > deadline:
                raise PlatformFailed(f"{count} allocations did not run within {PATIENCE_SECONDS:.0f} s")
            did = [world.run_reconciler(name) for name in ("schedule", "launch")]
            if not any(did):
                world.run_reconciler("observe")
    finally:
        world.local.close()


class Servers:
    """``starverse up`` on one data folder, one process after another."""

    def __init__(self, root: Path, data: Path, cards: str) -> None:
        self.root, self.data, self.cards = root, data, cards
        self.process: subprocess.Popen[bytes] | None = None
        self._started = 0

    def start(self) -> None:
        self._started += 1
        words = ["up", "--port", "0", "--data", str(self.data), "--declare-cards", self.cards]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", ENTRY, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=clean_environment() | SETTINGS,
            )

    @property
    def log(self) -> Path:
        return self.root / f"{self.data.name}-server-{self._started}.log"

    def kill(self) -> None:
        """``kill -9``."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def wait_ready(self) -> float:
        """When ``/readyz`` answers."""

        def answers() -> bool:
            said = self.log.read_text("utf-8", "replace")
            if self.process is None or self.process.poll() is not None:
                raise PlatformFailed(f"`starverse up` ended: {' / '.join(said.strip().splitlines()[-3:])}")
            found = re.search(r"starverse is up at (\S+)", said)
            return found is not None and ask(found[1], "/readyz")[0] == 200

        until(answers, UP_SECONDS_MAX, "the answer of /readyz")
        return time.time()

    def cpu_seconds(self) -> float:
        """CPU of the server's process so far."""
        assert self.process is not None
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICKS


def watch_adoption(
    servers: Servers, database: Database, heard: Path, count: int, begun_at: float
) -> Adoption:
    """Wait for all that belongs to it, each watched for itself."""
    since = datetime.fromtimestamp(begun_at, UTC)
    with ThreadPoolExecutor(1) as aside:
        ready = aside.submit(servers.wait_ready)
        alive = told = 0.0

        def all_of_it() -> bool:
            nonlocal alive, told
            alive = alive or _now_if(lambda: seen_alive(database, since) >= count)
            told = told or _now_if(lambda: len(told_since(heard, begun_at)) >= count)
            return bool(alive and told)

        until(all_of_it, PATIENCE_SECONDS, f"the adoption of {count} allocations")
        answered = ready.result()
    return Adoption(answered - begun_at, alive - begun_at, told - begun_at, servers.cpu_seconds())


def _now_if(condition: Callable[[], bool]) -> float:
    return time.time() if condition() else 0.0


def seen_alive(database: Database, since: datetime) -> int:
    """Running allocations whose newest recorded sign of life is later."""
    wanted = select(func.count()).where(
        allocations.c.state == AllocationState.RUNNING, allocations.c.alive_at > since
    )
    with database.read() as connection:
        return int(connection.execute(wanted).scalar_one())


def in_state(database: Database, state: AllocationState) -> int:
    with database.read() as connection:
        found = connection.execute(select(func.count()).where(allocations.c.state == state))
        return int(found.scalar_one())


def told_since(heard: Path, begun_at: float) -> set[str]:
    """Allocations whose launcher was told what is wanted since then, by channel or file."""
    lines = (line.split() for line in heard.read_text().splitlines())
    return {words[0] for words in lines if len(words) == 2 and float(words[1]) >= begun_at}


def untell(data: Path, heard: Path) -> None:
    """With no server there: nothing is left of what launchers were told."""
    os.truncate(heard, 0)
    for folder in (data / "allocations").iterdir():
        (folder / "desired.json").unlink(missing_ok=True)


def time_reads(data: Path) -> float:
    """A plain read of the state of every allocation."""
    begun = time.perf_counter()
    for folder in (data / "allocations").iterdir():
        (folder / "state.json").read_bytes()
    return time.perf_counter() - begun


def time_idle(root: Path, cards: str) -> tuple[float, float]:
    """A second start on a folder with nothing to adopt, until it answers: seconds and CPU seconds."""
    root.mkdir()
    servers = Servers(root, root / "data", cards)
    try:
        servers.start()
        servers.wait_ready()
        servers.kill()
        begun_at = time.time()
        servers.start()
        return servers.wait_ready() - begun_at, servers.cpu_seconds()
    finally:
        servers.kill()


def settle(database: Database, count: int) -> None:
    """Another round of the new server over all of them: what it makes of them has shown by then."""
    since = datetime.now(UTC)
    until(lambda: seen_alive(database, since) >= count, PATIENCE_SECONDS, "one more round over all of them")


def take_stock(database: Database, outcome: Outcome) -> None:
    with database.read() as connection:
        outcome.broken = len(ledger.check(connection))
        total = int(connection.execute(select(func.count()).select_from(allocations)).scalar_one())
    outcome.running = in_state(database, AllocationState.RUNNING)
    outcome.ended = total - outcome.running


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="adoption", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--allocations", type=int, default=1_000, help="running when the server is killed")
    parser.add_argument("--restarts", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to make the data folder, for a moment")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    with ended_by_sigterm():
        emit(measure(Settings(given.allocations, given.restarts, given.folder)), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
