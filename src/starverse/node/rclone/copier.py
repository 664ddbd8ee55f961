"""Starts copies for the server and follows what they tell; a copy ends with its server, however that ends."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self

from starverse.domain.catalog.disks import GIB, SyncDirection
from starverse.domain.catalog.remotes import shown
from starverse.domain.catalog.syncs import CopyEnd, CopyOrder, Ending, Progress
from starverse.node.network.pasta import refusal as network_refusal
from starverse.node.plugs import fuse_disks
from starverse.node.plugs.block_disks import loop_refusal, wait_until_free_here
from starverse.node.rclone.starting import ASIDE_OF_PULLS, Order, remove_leftovers

ASIDE_OF_PUSHES = ".starverse-"
BESIDE_FILES = [".starverse-*", f"{ASIDE_OF_PULLS}*", "lost+found"]
"""Folders in the root of a block disk that are no files of its owner."""
END_SECONDS_MAX = 15.0
FREE_SECONDS_MAX = 10.0
"""So long a block disk may be written back after its copy; who comes then is refused by its lock."""
NOISE_KEPT = 5
_ENVIRONMENT = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")


class RcloneCopier:
    """Runs rclone as the team's user in a sandbox of its own for each copy."""

    def __init__(
        self, reserve_bytes: int = 0, *, network: str = "internet", reachable: Sequence[str] = ()
    ) -> None:
        """``network``: ``internet`` alone and the private networks ``reachable``, or all that the ``host``
        reaches."""
        self._reserve = reserve_bytes
        self._network, self._reachable = network, tuple(reachable)

    def missing(self) -> str:
        """What this machine lacks for it, ``""``: nothing."""
        for program, package in (("rclone", "rclone"), ("bwrap", "bubblewrap")):
            if shutil.which(program) is None:
                return f"{program} is not installed: apt-get install {package}"
        if self._network == "internet":
            return network_refusal(shutil.which("pasta") or "")
        return ""

    def missing_for_block_disks(self) -> str:
        """What this machine lacks to mount one for a copy, ``""``: nothing."""
        return loop_refusal() if os.geteuid() == 0 else fuse_disks.refusal()

    def start(self, order: CopyOrder, *, last: bool = False) -> RcloneCopy:
        """Begin one try; ``last``: what it leaves at the remote on its failure is removed there."""
        return RcloneCopy(order, self._order(order, last))

    def _order(self, order: CopyOrder, last: bool) -> Order:
        pull = order.direction is SyncDirection.PULL
        told = {
            "direction": order.direction.value,
            "folder": order.folder,
            "path": order.path,
            "aside": f"{ASIDE_OF_PULLS if pull else ASIDE_OF_PUSHES}{order.sync_id}",
            "in_place": order.in_place,
            "verify": order.verify,
            "bytes_per_second_max": order.bytes_per_second_max,
            "quota_bytes": order.gib * GIB if order.block_file is None else None,
            "reserve_bytes": self._reserve if order.block_file is None else 0,
            "root": "/disk/data" if order.block_file is None else "/disk",
            "leave_out": [".starverse-*"] if order.block_file is None else BESIDE_FILES,
            "last": last,
        }
        uid = order.unix_uid if os.geteuid() == 0 else None
        return Order(
            tree=order.tree,
            block_file=order.block_file,
            read_only=not pull,
            unix_uid=uid,
            config=order.config,
            network=self._network,
            reachable=self._reachable,
            inside=told,
        )


class RcloneCopy:
    """One try that runs. Made and used by one thread, which has to live as long as it does."""

    def __init__(self, order: CopyOrder, started: Order) -> None:
        self._hidden = order.hidden
        self._started = started
        self._progress = Progress()
        self._noise: list[str] = []
        self._text = b""
        self._lock = threading.Lock()
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "starverse.node.rclone.starting"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        self._say(started.to_bytes())

    def go_on(self) -> None:
        """The server still holds this copy; without this it ends by itself within seconds."""
        self._say(b"go on\n")

    def cancel(self) -> None:
        """Ask it to end; it tidies up, and tells its end within seconds."""
        self._say(b"cancel\n")

    def kill(self) -> None:
        """End it now, all that runs for it."""
        with contextlib.suppress(OSError):
            self._process.kill()

    def wait(self, seconds: float) -> Progress | CopyEnd:
        """What it told by then, at the latest after ``seconds``: its counts, or its end."""
        assert self._process.stdout is not None
        readable = self._process.stdout.fileno()
        if not select.select([readable], [], [], seconds)[0]:
            return self._progress
        piece = os.read(readable, 1 << 16)
        if not piece:
            return self._ended({})
        *lines, self._text = (self._text + piece).split(b"\n")
        for line in lines:
            told = self._read(line)
            if "end" in told:
                return self._ended(told)
        return self._progress

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing of it runs any more."""
        with contextlib.suppress(OSError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        if kind is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS_MAX)
        self.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        if self._started.block_file is not None:
            wait_until_free_here(self._started.block_file, FREE_SECONDS_MAX)
        remove_leftovers(self._started)

    def _say(self, words: bytes) -> None:
        with self._lock, contextlib.suppress(OSError):  # it ended: its end tells why
            assert self._process.stdin is not None
            self._process.stdin.write(words)
            self._process.stdin.flush()

    def _read(self, line: bytes) -> dict[str, Any]:
        try:
            told = json.loads(line)
        except ValueError:
            told = None
        if not isinstance(told, dict):
            self._noise = [*self._noise, line.decode("utf-8", "replace").strip()][-NOISE_KEPT:]
            return {}
        if "end" not in told:
            known = {name: told[name] for name in Progress.__dataclass_fields__ if name in told}
            self._progress = replace(self._progress, **known)
        return told

    def _ended(self, told: dict[str, Any]) -> CopyEnd:
        if not told:
            self._read(self._text)
            why = "; ".join(line for line in self._noise if line) or "it was killed"
            return CopyEnd(Ending.INTERRUPTED, shown(why, self._hidden)[:1000], self._progress)
        message = shown(str(told.get("message", "")), self._hidden)[:1000]
        return CopyEnd(Ending(told["end"]), message, self._progress, bool(told.get("verified")))
