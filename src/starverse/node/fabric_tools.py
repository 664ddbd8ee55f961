"""Figures of other people's tools, where a node has them: ``ib_write_bw`` (perftest) and nccl-tests.

They need InfiniBand or NVIDIA cards, so that only reading what they print could be tried without.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from pathlib import Path

from starverse.node.fabric_tcp import ProbeFailed

KNOWN = ("ib_write_bw", "nccl-tests")
TOOL_SECONDS = 60
IB_COMMAND = ("ib_write_bw", "-F", "--report_gbits", "-D", "5")
NCCL_BYTES = 64 << 20
NCCL_COMMAND = ("mpirun", "-np", "2", "-N", "1", "all_reduce_perf", "-b", "64M", "-e", "64M", "-g", "1")
_INFINIBAND = Path("/sys/class/infiniband")


def present() -> list[str]:
    """Which of them this node can run."""
    found = []
    if shutil.which(IB_COMMAND[0]) and _INFINIBAND.is_dir() and any(_INFINIBAND.iterdir()):
        found.append("ib_write_bw")
    if all(shutil.which(name) for name in ("mpirun", "all_reduce_perf")) and Path("/dev/nvidiactl").exists():
        found.append("nccl-tests")
    return found


def run_ib_write_bw(rank: int, address: str) -> dict[str, int]:
    """Rank 0 serves, rank 1 dials it (again for some seconds, while the server starts); figures on both."""
    until = time.monotonic() + 10
    while True:
        words = [*IB_COMMAND, *([address] if rank else [])]
        done = subprocess.run(words, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
        if done.returncode == 0:
            return read_ib_write_bw(done.stdout)
        if not rank or time.monotonic() > until:
            raise ProbeFailed(f"ib_write_bw: {_last_line(done.stderr or done.stdout)}")
        time.sleep(0.5)


def read_ib_write_bw(text: str) -> dict[str, int]:
    """The row below ``#bytes #iterations BW peak[Gb/sec] BW average[Gb/sec] MsgRate[Mpps]``."""
    match = re.search(r"BW average\[Gb/sec\].*\n\s*(\d+)\s+(\d+)\s+[\d.]+\s+([\d.]+)", text)
    if match is None:
        raise ProbeFailed("ib_write_bw printed no average in Gb/s")
    size, rounds, gigabits = match.groups()
    return {
        "bytes_per_second": round(float(gigabits) * 1e9 / 8),
        "message_bytes": int(size),
        "rounds": int(rounds),
    }


def run_nccl_tests(rank: int) -> dict[str, int] | None:
    """Rank 0 starts both ranks through MPI; the other one waits elsewhere."""
    if rank:
        return None
    done = subprocess.run(NCCL_COMMAND, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False)
    if done.returncode != 0:
        raise ProbeFailed(f"nccl-tests: {_last_line(done.stderr or done.stdout)}")
    return read_nccl_tests(done.stdout)


def read_nccl_tests(text: str) -> dict[str, int]:
    """The row of the largest size: bytes, ..., time (us), algbw, busbw (GB/s), errors, the same in place."""
    rows = re.findall(
        r"^\s*(\d+)\s+\d+\s+\w+\s+\w+\s+-?\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\d+|N/A)",
        text,
        re.MULTILINE,
    )
    if not rows:
        raise ProbeFailed("nccl-tests printed no row")
    size, microseconds, _, busbw, wrong = max(rows, key=lambda row: int(row[0]))
    if wrong not in ("0", "N/A"):
        raise ProbeFailed(f"nccl-tests counted {wrong} wrong values")
    nanoseconds = round(float(microseconds) * 1000)
    return {
        "bytes_per_second": round(float(busbw) * 1e9),
        "message_bytes": int(size),
        "p50_nanoseconds": nanoseconds,
    }


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else "it said nothing"
