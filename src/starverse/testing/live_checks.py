"""What has to be true of a job and of a platform whatever was killed: books, logs, cards."""

from __future__ import annotations

import io
import math
import os
import re
import shutil
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from starverse.node.plugs import block_disks, fuse_disks
from starverse.testing.in_time import wait_for
from starverse.testing.live_person import Person
from starverse.testing.live_server import LiveServer

COUNTER = """#SBATCH --time=00:10:00
trap 'echo told' USR1
i=0
while [ ! -e finish ]; do
    i=$((i+1))
    echo "$SLURM_RESTART_COUNT:$i"
    echo "$SLURM_RESTART_COUNT:$i" >> printed
    sleep 0.05
done
echo "end of run $SLURM_RESTART_COUNT"
"""
"""Counts in its log and, after each line, in a file of its folder, until a file ``finish`` lies there."""

_COUNT = re.compile(r"(\d+):(\d+)")


def block_disks_missing() -> str:
    """Why nobody can have a block disk on this machine, ``""``: they can."""
    if shutil.which("mkfs.ext4", path="/usr/sbin:/sbin") is None:
        return "mkfs.ext4 is not installed: apt-get install e2fsprogs"
    return fuse_disks.refusal() if os.geteuid() else block_disks.loop_refusal()


def let_finish(person: Person, number: str) -> None:
    """Put ``finish`` into the job's folder."""
    person.client.jobs.write_file(number, "finish", io.BytesIO(b""))


def check_counted(person: Person, number: str) -> str:
    """Each run's log counts from 1 without gap or repeat, and holds all that the script says it printed.

    Answers the log.
    """
    log = person.log(number)
    seen: dict[int, list[int]] = {}
    for line in log.splitlines():
        if (found := _COUNT.fullmatch(line)) is not None:
            seen.setdefault(int(found[1]), []).append(int(found[2]))
    for run, counts in seen.items():
        assert counts == list(range(1, len(counts) + 1)), f"run {run} of job {number}: {counts}"
    printed = _COUNT.findall(read_file(person, number, "printed"))
    for run, count in printed:
        assert int(count) <= len(seen.get(int(run), ())), f"line {run}:{count} of job {number} is lost"
    assert printed, f"job {number} printed nothing"
    return log


def read_file(person: Person, number: str, path: str) -> str:
    """A file of a job's folder."""
    with person.client.jobs.open_file(number, path) as (_, pieces):
        return b"".join(pieces).decode()


def check_charges(person: Person, number: str) -> list[dict[str, Any]]:
    """Every run that was ready is charged once, from ready to its end; no other is. The runs.

    A start rounds up to the second, an end down, one second at least; spot is charged at most to the deadline
    of its notice.
    """
    runs = person.runs(number)
    bill = person.client.money.bill(job=number)
    for run in runs:
        charges = [c for c in bill["charges"] if c["attempt"] == run["attempt"] and c["job"] == number]
        if run["ready_at"] is None:
            assert not charges, f"run {run['attempt']} never was ready and is charged"
            continue
        spans = sorted((instant(c["start"]), instant(c["end"])) for c in charges)
        assert spans, f"run {run['attempt']} of job {number} is not charged"
        assert spans[0][0] == math.ceil(instant(run["ready_at"])), (spans, run)
        for (_, end), (start, _) in pairwise(spans):
            assert end == start, f"job {number}: charged twice or not at all between {end} and {start}"
        end = instant(run["ended_at"])
        notice = run["notice"]
        if notice is not None and run["tariff"] == "spot":
            end = min(end, instant(notice["deadline"]))
        whole = max(spans[0][0] + 1, math.floor(end))
        assert abs(spans[-1][1] - whole) <= 1, (spans, run)
        assert spans[-1][1] <= max(spans[0][0] + 1, math.ceil(end)), (spans, run)
    total = sum(charge["total_micro"] for charge in bill["charges"])
    assert total == bill["total_micro"]
    return runs


def check_at_rest(server: LiveServer) -> None:
    """With every job over: no launcher lives, all cards are free, no money is held, the books are sound."""
    wait_for(lambda: not server.launchers(), "the end of all launchers", 10)
    operator = server.operator.client

    def all_free() -> bool:
        return all(offer["cards_free"] == offer["cards_total"] for offer in operator.cards.offers())

    wait_for(all_free, "all cards to be free", 10)
    assert operator.admin.ledger_check()["holds"] is True
    wait_for(
        lambda: all(loop["state"] == "ok" for loop in operator.admin.status()["reconcilers"]),
        "every loop to be well, after its next round at the latest",
        60,
    )


def instant(text: str) -> float:
    """Seconds since the epoch of an RFC 3339 text."""
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()


def ssh_missing() -> str:
    """Why nobody gets into an instance on this machine; ``""`` where they do."""
    where = os.environ.get("PATH", "") + ":/usr/sbin"
    tools = {"ssh": "openssh-client", "sshd": "openssh-server"}
    absent = [package for tool, package in tools.items() if shutil.which(tool, path=where) is None]
    return f"apt-get install {' '.join(absent)}" if absent else ""
