"""Benchmark 15, local half: start of a no-op job, reclaim to running elsewhere, what the control plane adds.

A start is the time from handing a launch to the local engine to the first exec of its script, that of an
instance to the instant at which it takes SSH connections, by the launcher's own report. Beside each one, in
turn, bubblewrap alone: a sandbox with the same namespaces that shows ``/usr`` and runs ``true``; and the same
with a bare Python in it. Through the whole platform (a server of its own, SQLite, HTTP) the same job is timed
from the call of the API. Medians.

    python -m benchmarks.starts [--rounds 40] [--jobs 40] [--json]
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.endings import ended_by_sigterm
from benchmarks.platform_starts import measure_platform
from benchmarks.report import Figure, Report, emit, flush_p50_seconds
from starverse.domain.workloads.launch import Desired, LauncherState
from starverse.engines.base import Presence
from starverse.engines.local import LocalEngine
from starverse.node.cards.declared import DeclaredCards
from starverse.node.instance_agent import SSHD
from starverse.testing.in_time import wait_for
from starverse.testing.launches import build_launch

NUMBER = 15
NAME = "start, reclaim, control plane (local engine)"
TEAM_UID = 200_001
OBEDIENT = 'trap "exit 99" USR1\n: > obeys\nsleep 300 &\nwait\n'
"""Exits for requeue as soon as a notice comes."""
PATIENCE_SECONDS = 60.0
NAMESPACES = ["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]

Samples = dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Settings:
    """``rounds`` of starts, ``reclaims`` of each kind, ``jobs`` in a row through the platform."""

    rounds: int = 40
    reclaims: int = 5
    jobs: int = 40
    folder: Path | None = None


def measure(settings: Settings) -> Report:
    """Everything in one run: engine first, then a platform."""
    with tempfile.TemporaryDirectory(prefix="starts-", dir=settings.folder) as name:
        folder = Path(name)
        samples: Samples = defaultdict(list)
        with engine_of(folder / "engine") as trial:
            time_starts(trial, samples, settings.rounds)
            time_reclaims(trial, samples, settings.reclaims)
        platform, rate, missing = measure_platform(folder, settings.rounds, settings.reclaims, settings.jobs)
        flush = flush_p50_seconds(folder)
    samples.update(platform)
    conditions = {
        "rounds": settings.rounds,
        "reclaims": settings.reclaims,
        "jobs_in_a_row": settings.jobs,
        "user": "root, workloads as a team's user" if os.geteuid() == 0 else "an ordinary user",
        "sandbox": "bwrap",
        "flush_p50_us": round(flush * 1e6, 1),
        "spread_ms": {
            key: f"{min(found) * 1000:.1f}..{max(found) * 1000:.1f}" for key, found in sorted(samples.items())
        },
    }
    return Report(NUMBER, NAME, figures_of(samples, rate), conditions, missing)


def figures_of(samples: Samples, rate: float | None) -> list[Figure]:
    """Medians as figures, each beside its peer."""
    ms = {key: statistics.median(found) * 1000 for key, found in samples.items() if found}
    start = ms["start"]
    figures = [
        Figure("start of a no-op job, p50", start, "ms", "raw bubblewrap", ms["raw"], at_most=10),
        Figure("start of a no-op job, p50", start, "ms", "bubblewrap with a bare Python", ms["raw python"]),
        *_instance_figures(ms),
        Figure("submit to report and clean, p50", ms["whole"], "ms", "raw bubblewrap", ms["raw"]),
        Figure("notice to exit 99, p50", ms["notice"], "ms"),
        Figure("notice to the next job running on its cards, p50", ms["reclaim"], "ms", "start", start),
    ]
    if "platform start" in ms and rate is not None:
        figures += [
            Figure("API call answered, p50", ms["platform answer"], "ms"),
            Figure("API call to running, p50", ms["platform start"], "ms", "start", start),
            Figure("added by the control plane, p50", ms["platform start"] - start, "ms", at_most=10),
            Figure("jobs in a row through the platform", rate, "jobs/s", "one start a time", 1000 / start),
            Figure("reclaim: call to claimant running, p50", ms["platform claim"], "ms", "start", start),
            Figure("reclaim: call to running elsewhere, p50", ms["platform elsewhere"], "ms", "start", start),
        ]
    return figures


def _instance_figures(ms: Mapping[str, float]) -> list[Figure]:
    """Where this machine has an sshd."""
    if "instance" not in ms:
        return []
    name, connection = (
        "start of an instance, SSH accepted, p50",
        "connection to an instance, sshd's banner, p50",
    )
    return [
        Figure(name, ms["instance"], "ms", "raw bubblewrap", ms["raw"]),
        Figure(name, ms["instance"], "ms", "start of a no-op job", ms["start"]),
        Figure(connection, ms["connection"], "ms", "sshd reading no file", ms["sshd"]),
    ]


class EngineTrial:
    """A local engine on eight declared cards, and the wait for what its launchers report."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.engine = LocalEngine(data, DeclaredCards("rtx4090:8"))
        self._news = threading.Event()
        self._count = 0
        self._workspaces: dict[str, Path] = {}

    def submit(self, script: str, *, interactive: bool = False) -> tuple[str, float]:
        """Hand over a new launch; its id, and when it was handed over."""
        self._count += 1
        spec = build_launch(
            self.data,
            f"start-{self._count}",
            script=script,
            unix_uid=TEAM_UID if os.geteuid() == 0 else None,
            grace_seconds=30,
            interactive=interactive,
        )
        begun = time.time()
        self.engine.submit(spec)
        self._workspaces[spec.allocation_id] = Path(spec.workspace)
        return spec.allocation_id, begun

    def until_ready(self, allocation_id: str) -> float:
        """When its script was first executed."""
        while True:
            state = self._look(allocation_id)
            if state is not None and state.ready_at is not None:
                return state.ready_at

    def until_obeying(self, allocation_id: str) -> None:
        """Until ``OBEDIENT`` handles the signal: who does not yet is not sent it."""
        wait_for((self._workspaces[allocation_id] / "obeys").exists, "the script to handle the notice")

    def until_ended(self, allocation_id: str) -> LauncherState:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            state = self._look(allocation_id)
            if state is not None and state.phase == "ended":
                if state.ready_at is None:
                    raise RuntimeError(f"the start failed: {state.failure}")
                return state
        raise RuntimeError(f"{allocation_id} did not end")

    def _look(self, allocation_id: str) -> LauncherState | None:
        self._news.wait(0.2)
        self._news.clear()
        seen = self.engine.observe([allocation_id])[allocation_id]
        if seen.presence is Presence.GONE:
            raise RuntimeError(f"the launcher of {allocation_id} died")
        return seen.state

    def open(self) -> None:
        self.engine.on_news(self._news.set)
        self.engine.start()
        allocation_id, _ = self.submit("true\n")  # the first start waits for the zygote's imports
        self.until_ended(allocation_id)


@contextmanager
def engine_of(data: Path) -> Iterator[EngineTrial]:
    """An engine that is ready to start launchers."""
    data.mkdir(parents=True)
    trial = EngineTrial(data)
    try:
        trial.open()
        yield trial
    finally:
        for allocation_id in trial.engine.running():
            trial.engine.clean(allocation_id)
        trial.engine.close()


def time_starts(trial: EngineTrial, samples: Samples, rounds: int) -> None:
    """No-op jobs and raw spawns, taking turns."""
    for _ in range(rounds):
        samples["raw"].append(time_raw(["/usr/bin/true"], ()))
        samples["raw python"].append(
            time_raw([sys.executable, "-I", "-S", "-c", "pass"], (sys.prefix, sys.base_prefix))
        )
        allocation_id, begun = trial.submit("true\n")
        state = trial.until_ended(allocation_id)
        trial.engine.clean(allocation_id)
        samples["whole"].append(time.time() - begun)
        assert state.ready_at is not None
        samples["start"].append(state.ready_at - begun)
        time_instance(trial, samples)


def time_instance(trial: EngineTrial, samples: Samples) -> None:
    """An instance from its launch to SSH, and one connection into it; sshd alone, given nothing to read."""
    if not os.access(SSHD, os.X_OK):
        return
    begun = time.perf_counter()
    subprocess.run([SSHD, "-T", "-f", "/dev/null"], capture_output=True, check=False)
    samples["sshd"].append(time.perf_counter() - begun)
    allocation_id, handed = trial.submit("", interactive=True)
    samples["instance"].append(trial.until_ready(allocation_id) - handed)
    begun = time.perf_counter()
    with trial.engine.open_stream(allocation_id) as line:
        line.settimeout(PATIENCE_SECONDS)
        if line.recv(4) != b"SSH-":
            raise RuntimeError("no sshd at the other end")
    samples["connection"].append(time.perf_counter() - begun)
    trial.engine.clean(allocation_id)


def time_raw(
    command: Sequence[str],
    shown: Sequence[str],
    bound: Mapping[str, str] | None = None,
    writable: Mapping[str, str] | None = None,
) -> float:
    """Seconds of one bubblewrap with the platform's namespaces and nothing else, to its end.

    ``shown`` are folders at their own place, ``bound`` and ``writable`` ones at another.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise SystemExit("bubblewrap is not installed: apt-get install bubblewrap")
    arguments = [bwrap, "--die-with-parent", *NAMESPACES, "--uid", "1000", "--gid", "1000"]
    arguments += ["--cap-drop", "ALL", "--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev"]
    for name in ("bin", "sbin", "lib", "lib64"):
        link = Path("/", name)
        if link.is_symlink():
            arguments += ["--symlink", str(link.readlink()), str(link)]
    for folder in dict.fromkeys(shown):
        if not folder.startswith("/usr"):
            arguments += ["--ro-bind", folder, folder]
    for source, target in (bound or {}).items():
        arguments += ["--ro-bind", source, target]
    for source, target in (writable or {}).items():
        arguments += ["--bind", source, target]
    begun = time.perf_counter()
    subprocess.run([*arguments, *command], check=True)
    return time.perf_counter() - begun


def time_reclaims(trial: EngineTrial, samples: Samples, count: int) -> None:
    """Notice, exit for requeue, cards free, and a next job on them."""
    for _ in range(count):
        first, _ = trial.submit(OBEDIENT)
        trial.until_obeying(first)
        noticed = time.time()
        trial.engine.steer(first, Desired(notice_reason="reclaim", notice_deadline=noticed + 30))
        state = trial.until_ended(first)
        if state.exit_code != 99 or state.ended_at is None:
            raise RuntimeError(f"the notice was answered with exit code {state.exit_code}")
        trial.engine.clean(first)
        second, _ = trial.submit("true\n")
        ready = trial.until_ended(second).ready_at
        assert ready is not None
        samples["notice"].append(state.ended_at - noticed)
        samples["reclaim"].append(ready - noticed)
        trial.engine.clean(second)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; exit code 0 whatever the ratios are."""
    parser = argparse.ArgumentParser(prog="starts", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=40, help="starts of each kind")
    parser.add_argument("--reclaims", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=40, help="jobs in a row through the platform")
    parser.add_argument("--folder", type=Path, help="where to write (default: the temporary folder)")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    with ended_by_sigterm():
        emit(measure(Settings(given.rounds, given.reclaims, given.jobs, given.folder)), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
