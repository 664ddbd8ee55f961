"""The half of benchmark 15 that goes through a whole platform: a server of its own, asked over HTTP.

Times come from the server's own record (an allocation's ``ready_at`` and ``ended_at`` are its launcher's)
and from this process's clock at the call, on the same machine.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from starverse.client.api import Client
from starverse.client.errors import ClientError
from starverse.client.jobs import ENDED_STATES, Submission
from starverse.client.settings import Settings

NO_OP = "#!/bin/bash\ntrue\n"
OBEDIENT = '#!/bin/bash\ntrap "exit 99" USR1\nsleep 300 &\nwait\n'
UP_SECONDS_MAX = 90.0
PATIENCE_SECONDS = 120.0
PAUSE_SECONDS = 0.05
"""Between two looks at a job: long enough not to load the server that is measured."""
IDLE_SECONDS = 0.25
"""For what follows a start or an end: cleaning up, charging, looking at checkpoints."""
ENTRY = "import sys; from starverse.cli.remote.entry import main; sys.exit(main())"


class PlatformFailed(Exception):
    """The platform did not do what is to be measured; the text says what."""


@dataclass(frozen=True, slots=True)
class Run:
    """One allocation as the server records it; seconds since the epoch."""

    node: str
    ready_at: float | None
    ended_at: float | None
    exit_code: int | None


def measure_platform(
    folder: Path, rounds: int, reclaims: int, jobs: int
) -> tuple[dict[str, list[float]], float | None, list[str]]:
    """Samples in seconds, jobs a second in a row, and what could not be measured with its reason."""
    samples: dict[str, list[float]] = {}
    rate = None
    try:
        with served(folder / "row", "rtx4090:8") as client:
            samples |= time_calls(client, rounds)
            rate = time_row(client, jobs)
        with served(folder / "two-nodes", "rtx4090:2,rtx4090:1") as client:
            samples |= time_reclaims(client, reclaims)
    except (PlatformFailed, ClientError) as failure:
        return samples, rate, [f"through the platform: {failure}"]
    return samples, rate, []


@dataclass(frozen=True, slots=True)
class Served:
    """A server that runs, and a client of a team with money on it."""

    client: Client
    process: subprocess.Popen[bytes]
    data: Path


@contextmanager
def served(root: Path, cards: str) -> Iterator[Client]:
    """A server on free ports with declared cards, and a client of a team with money."""
    with serving(root, ("--declare-cards", cards)) as server:
        yield server.client


@contextmanager
def serving(root: Path, words: Sequence[str], settings: Mapping[str, str] | None = None) -> Iterator[Served]:
    """``starverse up`` with these words, and settings by ``section.key``."""
    root.mkdir(parents=True, exist_ok=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("STARVERSE_")}
    for key, value in (settings or {}).items():
        environment[f"STARVERSE_{key.replace('.', '__').upper()}"] = value
    line = [sys.executable, "-c", ENTRY, "up", "--port", "0", "--data", str(root / "data"), *words]
    with (root / "server.log").open("a") as log:
        server = subprocess.Popen(line, stdout=log, stderr=log, env=environment)
    try:
        address = root / "data" / "api-url"
        until(lambda: address.exists() or server.poll() is not None, UP_SECONDS_MAX, "the server's start")
        if server.poll() is not None:
            last = (root / "server.log").read_text().strip().splitlines()[-3:]
            raise PlatformFailed(f"`starverse up` ended: {' / '.join(last)}")
        api = address.read_text().strip()
        with Client(Settings(api)) as stranger:
            token = stranger.people.register("bench@example.org", "a-password-for-a-benchmark")["token"]
        with Client(Settings(api, token)) as client:
            client.money.top_up("1000.00")
            yield Served(client, server, root / "data")
    finally:
        server.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(20)
        if server.poll() is None:
            server.kill()
            server.wait()


def time_calls(client: Client, rounds: int) -> dict[str, list[float]]:
    """One no-op job after another, each submitted once the platform is idle again; nobody asks how it
    fares before it must have started."""
    answers, starts = [], []
    for turn in range(rounds + 1):
        begun = time.time()
        job = submit(client, NO_OP, "spot", 1)
        answered = time.time()
        time.sleep(IDLE_SECONDS)
        run = ended_run(client, job)
        if run.ready_at is None:
            raise PlatformFailed(f"job {job} never started")
        time.sleep(IDLE_SECONDS)
        if turn:  # the first one fills caches
            answers.append(answered - begun)
            starts.append(run.ready_at - begun)
    return {"platform answer": answers, "platform start": starts}


def time_row(client: Client, jobs: int) -> float:
    """Jobs a second, from the first call to the end of the last job; one card each, eight cards."""
    begun = time.time()
    numbers = [submit(client, NO_OP, "spot", 1) for _ in range(jobs)]
    ends = [ended_run(client, number).ended_at for number in numbers]
    return jobs / (max(end or begun for end in ends) - begun)


def time_reclaims(client: Client, count: int) -> dict[str, list[float]]:
    """A claimant of both cards of a node takes them from a spot job, which goes on on the other node."""
    claims, moves = [], []
    for _ in range(count):
        filler = submit(client, OBEDIENT, "on_demand", 1)
        filled = running_run(client, filler, 1)
        victim = submit(client, OBEDIENT, "spot", 1)
        before = running_run(client, victim, 1)
        if before.node == filled.node:
            raise PlatformFailed("both jobs were placed on one node, so that there is nothing to reclaim")
        cancel(client, filler)
        begun = time.time()
        claimant = submit(client, OBEDIENT, "on_demand", 2)
        claims.append((running_run(client, claimant, 1).ready_at or begun) - begun)
        elsewhere = running_run(client, victim, 2)
        if elsewhere.node == before.node:
            raise PlatformFailed("the reclaimed job went on where it was")
        moves.append((elsewhere.ready_at or begun) - begun)
        cancel(client, claimant)
        cancel(client, victim)
    return {"platform claim": claims, "platform elsewhere": moves}


def submit(client: Client, script: str, tariff: str, cards: int, *more: str) -> str:
    words = (f"--gres=gpu:rtx4090:{cards}", "--tariff", tariff, "--time", "10", "--mem", "256M", *more)
    answer = client.jobs.submit(Submission(script, "bench.sh", words))
    return str(answer["job"]["number"])


def cancel(client: Client, number: str) -> None:
    client.jobs.cancel(number)
    ended_run(client, number)


def ended_run(client: Client, number: str) -> Run:
    """The newest run of a job that has ended."""
    found: dict[str, Any] = {}

    def ended() -> bool:
        found.update(client.jobs.get(number))
        return found["state"] in ENDED_STATES

    until(ended, PATIENCE_SECONDS, f"the end of job {number}")
    if not found["allocations"]:
        raise PlatformFailed(f"job {number} ended without a run: {found['message']}")
    return _run(found["allocations"][-1])


def running_run(client: Client, number: str, attempt: int) -> Run:
    """A job's run with this number, once it runs."""
    found: list[Run] = []

    def running() -> bool:
        job = client.jobs.get(number)
        if job["state"] in ENDED_STATES:
            raise PlatformFailed(f"job {number} ended early: {job['message']}")
        runs = [_run(raw) for raw in job["allocations"] if raw["attempt"] == attempt]
        found.extend(run for run in runs if run.ready_at is not None)
        return bool(found)

    until(running, PATIENCE_SECONDS, f"run {attempt} of job {number}")
    return found[-1]


def _run(raw: Any) -> Run:
    def instant(text: str | None) -> float | None:
        return None if text is None else datetime.fromisoformat(text).timestamp()

    return Run(raw["nodes"][0], instant(raw["ready_at"]), instant(raw["ended_at"]), raw["exit_code"])


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Ask until it holds; raises :class:`PlatformFailed` when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise PlatformFailed(f"{what} did not come within {seconds:.0f} s")
        time.sleep(PAUSE_SECONDS)
