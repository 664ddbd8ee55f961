"""What the commands print, character by character; see testing/golden.py for accepting a change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from starverse.testing import api_examples as examples
from starverse.testing.command_lines import CommandLine
from starverse.testing.fake_api import FakeApi
from starverse.testing.golden import check_golden

GOLDEN = Path(__file__).parents[3] / "golden" / "cli"


def fill(api: FakeApi) -> None:
    api.on("GET", "/offers", {"items": examples.offers(), "next_cursor": None})
    api.on("GET", "/jobs", {"items": examples.jobs(), "next_cursor": None})
    api.on("GET", "/jobs/12", examples.job_with_runs())
    api.on("GET", "/jobs/15/why", examples.why())
    api.on("GET", "/jobs/0190-14/why", examples.why())
    api.on("GET", "/jobs/0190-15_2/why", examples.why())
    api.on("GET", "/jobs/0190-15_3/why", examples.why())
    api.on("POST", "/jobs", examples.lint())
    api.on("GET", "/wallet", examples.wallet())
    api.on("GET", "/bill", examples.bill())
    api.on("GET", "/charges/ch-1", examples.explanation())
    api.on("GET", "/nodes", {"items": examples.nodes(), "next_cursor": None})
    api.on("GET", "/admin/nodes/node-1", examples.nodes()[0])
    api.on("GET", "/admin/nodes", {"items": examples.nodes(), "next_cursor": None})
    fill_hosts(api)


def fill_hosts(api: FakeApi) -> None:
    """Instances, disks, images, keys."""
    api.on("GET", "/instances", {"items": examples.instances(), "next_cursor": None})
    api.on("GET", "/instances/lab", examples.instance())
    api.on("GET", "/instances/0191-lab/activity", {"items": examples.activity(), "next_cursor": None})
    api.on("GET", "/instances/baseline", examples.stopped("baseline"))
    api.on("GET", "/ssh-keys", {"items": [examples.ssh_key()], "next_cursor": None})
    api.on("GET", "/ssh", examples.gateway())
    api.on("GET", "/disk-prices", examples.disk_prices())
    api.on("GET", "/disks", {"items": examples.disks(), "next_cursor": None})
    api.on("GET", "/disks/home", examples.disk())
    api.on("GET", "/disks/home/usage", examples.disk_usage())
    api.on("GET", "/disks/home/snapshots", {"items": [examples.snapshot()], "next_cursor": None})
    api.on("GET", "/disks/home/syncs", {"items": [examples.sync()], "next_cursor": None})
    api.on("GET", "/disks/home/syncs/y-1", examples.sync("succeeded", verified_at="2026-03-10T11:59:00Z"))
    other = examples.image("实验", team="vision", state="building", digest=None, bytes=None, built_at=None)
    api.on("GET", "/images", {"items": [examples.image(), other], "next_cursor": None})
    api.on("GET", "/images/pytorch", examples.image())


STARVERSE = {
    "offers": "offers",
    "offers_json": "offers --json",
    "job_ls": "job ls",
    "job_show": "job show 12",
    "job_why": "job why 15",
    "submit_lint": "submit train.sh --lint --tariff spot",
    "wallet": "wallet",
    "bill": "bill --job 12",
    "explain": "explain ch-1",
    "admin_node_ls": "admin node ls",
    "admin_node_show": "admin node show node-1",
    "ps": "ps",
    "show": "show lab",
    "show_stopped": "show baseline",
    "rm_without_yes": "rm lab baseline",
    "launch_without_yes": "launch --card rtx4090 --cards 2",
    "launch_what_nobody_sells": "launch --card h900 --zone bj9",
    "ssh_key_ls": "ssh-key ls",
    "disk_ls": "disk ls",
    "disk_show": "disk show home",
    "disk_usage": "disk usage home",
    "disk_create_without_yes": "disk create data --size 100GiB --kind block",
    "disk_snapshot_ls": "disk snapshot ls home",
    "disk_sync_ls": "disk sync ls home",
    "disk_sync_show": "disk sync show home y-1",
    "image_ls": "image ls",
    "image_show": "image show pytorch",
}
SLURM = {
    "squeue": "squeue",
    "squeue_long": "squeue -l",
    "squeue_format": "squeue -r -h -o '%i|%j|%t|%R'",
    "squeue_start": "squeue --start",
    "squeue_ended": "squeue -t all",
    "sinfo": "sinfo",
    "sinfo_nodes": "sinfo -N -l",
    "sacct": "sacct -S 2026-03-10",
    "sacct_parsable": "sacct -nPX -o JobID,JobName,State,ExitCode,Elapsed,Start",
}


def check(name: str, words: str, folder: Path, runs: Callable[[CommandLine, list[str]], object]) -> None:
    import shlex

    (folder / "train.sh").write_text("#!/bin/sh\n")
    with FakeApi() as api:
        fill(api)
        ran = runs(CommandLine(api.url, folder), shlex.split(words))
    code, out, err = ran.code, ran.out, ran.err  # type: ignore[attr-defined]
    parts = [f"$ {words}\n", out]
    if err:
        parts.append(f"--- stderr\n{err}")
    if code:
        parts.append(f"--- exit code {code}\n")
    check_golden(GOLDEN / f"{name}.txt", "".join(parts))


@pytest.mark.parametrize(("name", "words"), STARVERSE.items(), ids=STARVERSE.keys())
def test_starverse_prints(name: str, words: str, tmp_path: Path) -> None:
    check(name, words, tmp_path, lambda line, given: line.run(*given))


@pytest.mark.parametrize(("name", "words"), SLURM.items(), ids=SLURM.keys())
def test_slurms_commands_print(name: str, words: str, tmp_path: Path) -> None:
    check(name, words, tmp_path, lambda line, given: line.shim(given[0], *given[1:]))
