"""Benchmark 15, Slurm half: what the platform adds to a job on a real Slurm, beside slurmrestd and sbatch.

Raw jobs of the same run are submitted by slurmrestd (the platform's own transport) and by ``sbatch``: a
script that ends at once, and one that starts Python with what a launcher imports, which is what a platform's
job does. Through the platform the same no-op job goes over HTTP. Medians, from 100 rounds on the 99th
percentile too; all nodes share one machine.

    python -m benchmarks.slurm_starts [--nodes 8] [--rounds 10] [--jobs 20] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.endings import ended_by_sigterm
from benchmarks.platform_starts import (
    NO_OP,
    OBEDIENT,
    Served,
    cancel,
    ended_run,
    running_run,
    serving,
    submit,
    time_calls,
    time_row,
    until,
)
from benchmarks.report import Figure, Report, emit
from starverse.engines.slurm.facts import JobRequest
from starverse.engines.slurm.settings import connect
from starverse.engines.slurm.transport import Transport
from starverse.testing.slurm_lab import SlurmLab
from starverse.testing.slurm_sites import lab_settings, lab_variables

NUMBER = 15
P99_ROUNDS_MIN = 100
NAME = "start, reclaim, control plane (a real Slurm)"
SETTINGS = {"policy.disk_reserve_mib": "64", "server.log_level": "warning", "policy.grace_seconds": "30"}
STAMP = "#!/bin/sh\ndate +%s.%N > {folder}/{name}.began\n{work}\ndate +%s.%N > {folder}/{name}.ended\n"
LAUNCHER_IMPORTS = f"{sys.executable} -c 'import starverse.node.launcher'"


@dataclass(frozen=True, slots=True)
class Settings:
    nodes: int = 8
    rounds: int = 10
    jobs: int = 20
    deaths: bool = True


def measure(settings: Settings) -> Report:
    missing: list[str] = []
    with SlurmLab(nodes=settings.nodes) as lab, tempfile.TemporaryDirectory(prefix="slurm-") as name:
        root = Path(name)
        root.chmod(0o777)
        raw = Raw(lab, root)
        samples = {"raw": raw.starts("true", settings.rounds)}
        samples["raw python"] = raw.starts(LAUNCHER_IMPORTS, settings.rounds)
        rates = {
            "slurmrestd": raw.rate(raw.by_rest, "true", settings.jobs),
            "sbatch": raw.rate(raw.by_sbatch, "true", settings.jobs),
            "slurmrestd, python": raw.rate(raw.by_rest, LAUNCHER_IMPORTS, settings.jobs),
        }
        with serving(root / "platform", (), {**SETTINGS, **lab_variables(lab)}) as server:
            samples |= time_calls(server.client, settings.rounds)
            rates["platform"] = time_row(server.client, settings.jobs)
            samples["elsewhere"] = [time_reclaim(server, lab)]
            if settings.deaths:
                samples["death"] = [time_death(server, lab)]
    conditions = {
        "nodes": settings.nodes,
        "rounds": settings.rounds,
        "jobs_in_a_row": settings.jobs,
        "sandbox": "bwrap",
        "launcher": "the real one, a Python process per job",
    }
    return Report(NUMBER, NAME, figures_of(samples, rates), conditions, missing)


def figures_of(samples: dict[str, list[float]], rates: dict[str, float]) -> list[Figure]:
    ms = {key: statistics.median(found) * 1000 for key, found in samples.items()}
    starts, raw = ms["platform start"], ms["raw python"]
    return [
        Figure("API call to running, p50", starts, "ms", "raw slurmrestd, true", ms["raw"]),
        Figure("API call to running, p50", starts, "ms", "raw slurmrestd, Python", raw),
        Figure("added beyond a raw job that starts Python, p50", starts - raw, "ms", at_most=10),
        *_slow_ones(samples),
        Figure("API call answered, p50", ms["platform answer"], "ms"),
        Figure("jobs in a row", rates["platform"], "jobs/s", "slurmrestd", rates["slurmrestd"], at_least=0.9),
        Figure("jobs in a row", rates["platform"], "jobs/s", "sbatch", rates["sbatch"]),
        Figure(
            "jobs in a row", rates["platform"], "jobs/s", "slurmrestd, Python", rates["slurmrestd, python"]
        ),
        Figure("reclaim: call to running elsewhere", ms["elsewhere"], "ms"),
        *([Figure("dead node noticed", ms["death"] / 1000, "s")] if "death" in ms else []),
    ]


def _slow_ones(samples: dict[str, list[float]]) -> list[Figure]:
    """The 99th percentile of starts, where there are enough of them to have one."""
    if len(samples["platform start"]) < P99_ROUNDS_MIN:
        return []
    ms = {
        key: statistics.quantiles(found, n=100)[98] * 1000 for key, found in samples.items() if len(found) > 1
    }
    starts, raw = ms["platform start"], ms["raw python"]
    return [
        Figure("API call to running, p99", starts, "ms", "raw slurmrestd, Python", raw),
        Figure("added beyond a raw job that starts Python, p99", starts - raw, "ms"),
    ]


class Raw:
    """Jobs given to Slurm without the platform."""

    def __init__(self, lab: SlurmLab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.transport: Transport = connect(lab_settings(lab))
        self._count = 0

    def by_rest(self, work: str) -> str:
        name = self._name()
        request = JobRequest(
            name=name,
            script=STAMP.format(folder=self.folder, name=name, work=work),
            nodes=(self.lab.node_names[self._count % len(self.lab.node_names)],),
            partition="all",
            gres="gpu:rtx4090:1",
            cpus=1,
            memory_mib=256,
            time_minutes=5,
            folder=str(self.folder),
            output="/dev/null",
            comment="raw",
            pins_by_feature=False,
        )
        self.transport.submit(request)
        return name

    def by_sbatch(self, work: str) -> str:
        name = self._name()
        script = self.folder / f"{name}.sh"
        script.write_text(STAMP.format(folder=self.folder, name=name, work=work))
        words = ("--parsable", "--gres=gpu:rtx4090:1", "--mem=256M", "--time=5", "--output=/dev/null")
        self.lab.command("sbatch", *words, str(script))
        return name

    def starts(self, work: str, rounds: int) -> list[float]:
        """From the call of slurmrestd to the end of ``work``: a launcher's imports come before its script."""
        found = []
        for _ in range(rounds):
            begun = time.time()
            found.append(self._ended(self.by_rest(work)) - begun)
        return found

    def rate(self, submit_one: Callable[[str], str], work: str, jobs: int) -> float:
        """Jobs a second, from the first call to the end of the last."""
        begun = time.time()
        names = [submit_one(work) for _ in range(jobs)]
        return jobs / (max(map(self._ended, names)) - begun)

    def _ended(self, name: str) -> float:
        stamp = self.folder / f"{name}.ended"
        until(lambda: stamp.exists() and bool(stamp.read_text().strip()), 120, f"the raw job {name}")
        return float(stamp.read_text())

    def _name(self) -> str:
        self._count += 1
        return f"raw{self._count}"


def time_reclaim(server: Served, lab: SlurmLab) -> float:
    """A claimant of a whole node takes it from a spot job, which goes on on another node."""
    client = server.client
    victim = submit(client, OBEDIENT, "spot", 4)
    before = running_run(client, victim, 1)
    begun = time.time()
    claimant = submit(client, NO_OP, "on_demand", 8, f"--nodelist={before.node}")
    elsewhere = running_run(client, victim, 2)
    ended_run(client, claimant)
    cancel(client, victim)
    return (elsewhere.ready_at or begun) - begun


def time_death(server: Served, lab: SlurmLab) -> float:
    """From the death of a node with all on it to its job being back in the queue."""
    client = server.client
    job = submit(client, OBEDIENT, "spot", 1)
    node = running_run(client, job, 1).node
    begun = time.time()
    lab.kill_node(node)
    until(lambda: client.jobs.get(job)["allocations"][0]["state"] == "lost", 180, "the end of its run")
    noticed = time.time() - begun
    cancel(client, job)
    return noticed


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="slurm-starts", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--nodes", type=int, default=8, help="slurmd, of eight cards each")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=20, help="jobs in a row")
    parser.add_argument("--no-deaths", action="store_true", help="leave the death of a node out")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    if why := SlurmLab.missing():
        sys.stderr.write(f"not run: {why}\n")
        return 0
    settings = Settings(given.nodes, given.rounds, given.jobs, not given.no_deaths)
    with ended_by_sigterm():
        emit(measure(settings), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
