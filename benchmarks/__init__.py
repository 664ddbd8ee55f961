"""Measurements of the product beside a peer or bound of the same run; run by ``python -m benchmarks``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Benchmark:
    """One measurement: its module, its row in the design's table, and the trace it reads (``""``: none).

    ``trace`` is a path below the folder of traces; it is passed as ``option``.
    """

    module: str
    number: int
    summary: str
    trace: str = ""
    option: str = "--philly"

    @property
    def name(self) -> str:
        return self.module.replace("_", "-")

    def data_arguments(self, data: Path | None) -> list[str] | None:
        """What to pass for its trace; ``None`` where the trace is not there."""
        if not self.trace:
            return []
        if data is None or not (data / self.trace).exists():
            return None
        return [self.option, str(data / self.trace)]


BENCHMARKS = (
    Benchmark(
        "planner",
        1,
        "work with a deadline on spot traces, beside the optimum in hindsight and two peers",
        "spot-traces/availability/1-node/aws-02-15-2023",
        "--spot",
    ),
    Benchmark(
        "checkpoint_interval",
        4,
        "how often to save on reclaimed machines, beside the best interval in hindsight",
        "spot-traces/preemption",
        "--preemptions",
    ),
    Benchmark("checkpoint_engine", 5, "checkpoints: blocking time, restore, torn restores under kill -9"),
    Benchmark("placement", 6, "cards allocated at 100 % arrivals beside published FGD", "openb", "--openb"),
    Benchmark(
        "placement_speed", 7, "placement: decisions a second on 1,213 and 4,278 nodes", "openb", "--openb"
    ),
    Benchmark("queue_policy", 8, "queue order without oracle run times, when a job will start", "philly"),
    Benchmark(
        "spot_market", 9, "spot placed with a forecast of firm demand; the auction", "philly/jobs.csv.gz"
    ),
    Benchmark("forecast", 10, "free cards 1 to 72 hours ahead beside naive methods", "helios", "--helios"),
    Benchmark(
        "heat_map",
        11,
        "P(N cards free together) 1 to 72 hours ahead: skill, calibration, speed",
        "spot-traces/availability",
        "--traces",
    ),
    Benchmark("calendar", 12, "a million bookings: admission, PostgreSQL, the linear bound", "philly"),
    Benchmark("ledger_postings", 13, "ledger: durable postings a second, kill -9", "philly/jobs.csv.gz"),
    Benchmark("metering_and_bill", 14, "metering of card-minutes, a bill over all jobs", "philly"),
    Benchmark("starts", 15, "start, reclaim, and what the control plane adds, on the local engine"),
    Benchmark("instances_in_a_row", 15, "instances launched, signed in to, stopped; what they leave behind"),
    Benchmark("instance_moves", 15, "a reclaimed instance with disks on another node, local and Slurm"),
    Benchmark("warm_images", 15, "an image built cold, instances on it beside raw bubblewrap"),
    Benchmark("neighbours", 15, "what a neighbour that writes flat out leaves of a workload's rate"),
    Benchmark("hot_plug", 15, "disks into running sandboxes and out, a network's cost to a start"),
    Benchmark(
        "scale", 15, "cost of a round and of a job as the cluster grows, fake engine", "philly/jobs.csv.gz"
    ),
    Benchmark("adoption", 15, "adopting all that runs after kill -9 of the server, stand-ins for launchers"),
    Benchmark("slurm_starts", 15, "start, reclaim, dead node on a real Slurm beside slurmrestd and sbatch"),
    Benchmark(
        "slurm_replay", 15, "arrivals of a trace on a real Slurm, every invariant", "philly/jobs.csv.gz"
    ),
    Benchmark("gateway", 15, "SSH through the gateway beside plain sshd: sign-in, throughput, round trip"),
    Benchmark("cli_cold_start", 15, "cold start of the command line beside sky and dstack"),
)


def find(name: str) -> Benchmark | None:
    """By name, with hyphens or underscores."""
    return next((found for found in BENCHMARKS if found.module == name.replace("-", "_")), None)
