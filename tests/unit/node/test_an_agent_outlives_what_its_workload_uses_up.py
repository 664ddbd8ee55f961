"""A workload uses up its processes, or the disk of its log: the agent goes on, and so the instance."""

from __future__ import annotations

import subprocess
import sys
import time

from starverse.node.instance_agent import Watch
from starverse.testing.in_time import wait_for


def test_without_a_process_to_spare_it_looks_again_later() -> None:
    seen: list[bytes] = []
    asked: list[object] = []

    def start_thread(work: object, _: tuple[()]) -> int:
        asked.append(work)
        if len(asked) == 1:
            raise RuntimeError("can't start new thread")
        return 1

    watch = Watch(seen.append, 0.001, own_network=False, start_thread=start_thread)

    def looked_twice() -> bool:
        watch.look_when_due()
        return len(asked) == 2

    begun = watch.due
    wait_for(looked_twice, "a second look", 10)
    assert watch.due > begun
    assert time.monotonic() < watch.due + 60


def test_a_log_on_a_full_disk_ends_nothing() -> None:
    program = "from starverse.node.instance_agent import _log; _log(b'sshd: it goes'); print('on')"
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=full, check=False
        )
    assert (done.returncode, done.stdout) == (0, b"on\n")
