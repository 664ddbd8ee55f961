"""Instances started and stopped one after another through a running product: how long, and what is left.

Each round is what a person does: launch an instance with a shared disk, on every fourth a block disk as well,
sign in by the machine's own ``ssh``, stop it, remove it. The server is ``starverse up`` with its database,
its gateway and the bubblewrap driver. Before and after, everything that the platform has on this machine is
counted: processes, mounts, control groups, loop devices, homes, open files and sockets, memory.

    python -m benchmarks.instances_in_a_row [--count 200] [--warm-up 20] [--json]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.endings import ended_by_sigterm
from benchmarks.platform_starts import Served, serving
from benchmarks.report import Figure, Report, emit
from benchmarks.researchers import QUIET, Researcher, instant, soon
from benchmarks.traces_left import Traces, count

NUMBER = 15
NAME = "instances started and stopped in a row"
BLOCK_EVERY = 4
SETTLE_SECONDS_MAX = 60.0
LEFT = {
    "processes": "processes",
    "mounts": "mounts",
    "control_groups": "control groups",
    "loop_devices": "loop devices",
    "network_interfaces": "network interfaces",
    "homes": "homes",
    "workspaces": "workspaces",
    "rooms": "folders of sandboxes",
    "files_open": "open files of the server",
    "sockets_open": "open sockets of the server",
}
"""What may not grow, in words."""

Samples = dict[str, list[float]]


def measure(instances: int, warm_up: int) -> Report:
    """``warm_up`` rounds fill what is filled once: pools, caches, threads."""
    samples: Samples = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="row-") as name:
        root = Path(name)
        root.chmod(0o755)
        words = ("--declare-cards", "rtx4090:8", "--driver", "bwrap")
        with serving(root / "platform", words, QUIET) as server:
            researcher = Researcher(server.client, root / "researcher")
            disks = make_disks(server)
            for turn in range(warm_up):
                one_round(researcher, f"warm-{turn}", disks_of(turn, disks), defaultdict(list))
            before = settled(server, None)
            begun, memory = time.time(), [before.memory_mib]
            for turn in range(instances):
                one_round(researcher, f"row-{turn}", disks_of(turn, disks), samples)
                if (turn + 1) % max(1, instances // 4) == 0:
                    memory.append(count(server.data, server.process.pid).memory_mib)
            seconds = time.time() - begun
            after = settled(server, before)
            books = books_of(server)
    conditions = {
        "instances": instances,
        "warm_up": warm_up,
        "disks": f"a shared one each, a block disk too on every {BLOCK_EVERY}th",
        "sandbox": "bwrap",
        "seconds_in_all": round(seconds, 1),
        "memory_mib_on_the_way": ", ".join(f"{mib:.1f}" for mib in memory),
        "threads_more": after.threads - before.threads,
        "spread_ms": {
            key: f"{min(found) * 1000:.1f}..{max(found) * 1000:.1f}" for key, found in sorted(samples.items())
        },
    }
    return Report(NUMBER, NAME, figures_of(samples, before, after, books), conditions)


def make_disks(server: Served) -> list[dict[str, Any]]:
    """A shared disk, and a block disk where this machine can mount one."""
    made = []
    for name, kind, gib in (("home", "shared", 10), ("db", "block", 1)):
        server.client.disks.create({"name": name, "kind": kind, "gib": gib})
        soon(lambda name=name: server.client.disks.get(name)["state"] == "ready", f"disk {name}")  # type: ignore[misc]
        made.append({"name": name})
    return made


def disks_of(turn: int, disks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return disks if turn % BLOCK_EVERY == 0 else disks[:1]


def one_round(researcher: Researcher, name: str, disks: list[dict[str, Any]], samples: Samples) -> None:
    """Launch, sign in, stop, remove; ``samples`` in seconds."""
    begun = time.time()
    researcher.launch(name, disks=disks)
    up = researcher.until_up(name)
    told = time.time()
    researcher.ssh(up, "test -w /data/home")
    answered = time.time()
    researcher.client.instances.stop(name)
    researcher.until(name, "stopped")
    stopped = time.time()
    researcher.client.instances.remove(name)
    ready = instant(up["ready_at"]) or told
    samples["ready"].append(ready - begun)
    samples["known as ready"].append(told - begun)
    samples["ssh answered"].append(answered - begun)
    samples["stop"].append(stopped - answered)
    samples["remove"].append(time.time() - stopped)


def settled(server: Served, wanted: Traces | None) -> Traces:
    """Counts once nothing changes any more, or as they are after a while; ``wanted``: no more than these."""
    give_up, last = time.monotonic() + SETTLE_SECONDS_MAX, count(server.data, server.process.pid)
    while time.monotonic() < give_up:
        time.sleep(1.0)
        now = count(server.data, server.process.pid)
        more = now.since(wanted or last)
        same = all(value <= 0 for key, value in more.items() if key in LEFT)
        last = now
        if same:
            break
    return last


def books_of(server: Served) -> dict[str, float]:
    """What the record says when nothing runs: money held, cards in use, rules of the ledger broken."""
    offers = server.client.cards.offers()
    return {
        "micro-yuan held": float(server.client.money.wallet()["held_micro"]),
        "cards in use": float(sum(offer["cards_total"] - offer["cards_free"] for offer in offers)),
        "disks attached": float(
            sum(len(disk.get("attachments") or ()) for disk in server.client.disks.list())
        ),
    }


def figures_of(samples: Samples, before: Traces, after: Traces, books: dict[str, float]) -> list[Figure]:
    figures = []
    for key, name in (
        ("ready", "launch to ready, by its launcher"),
        ("ssh answered", "launch to a command by ssh answered"),
        ("stop", "stop to stopped"),
        ("remove", "removal answered"),
    ):
        found = samples[key]
        figures.append(Figure(f"{name}, p50", statistics.median(found) * 1000, "ms"))
        if len(found) >= 100:
            figures.append(Figure(f"{name}, p99", statistics.quantiles(found, n=100)[98] * 1000, "ms"))
    more = after.since(before)
    figures += [Figure(f"left behind: {words}", more[key], "", at_most=0) for key, words in LEFT.items()]
    figures += [Figure(f"left behind: {name}", found, "", at_most=0) for name, found in books.items()]
    figures.append(Figure("memory of the server, more than before", more["memory_mib"], "MiB"))
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="instances-in-a-row", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--warm-up", type=int, default=20, help="rounds before anything is counted")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    with ended_by_sigterm():
        emit(measure(given.count, given.warm_up), as_json=given.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
