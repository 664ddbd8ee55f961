"""Allocations as launchers on this machine. Folders and locks are the truth; memory only saves looking.

Nothing is adopted by process id, all of it by the lock that a launcher holds in its allocation's folder.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import IO

from starverse.domain.workloads.launch import LaunchSpec
from starverse.engines.base import Capabilities, EngineUnavailable, NodeReport
from starverse.engines.folders.engine import FolderEngine, OpenChannel
from starverse.engines.folders.shims import write_shims
from starverse.engines.local.cleaning import clean_up
from starverse.engines.local.starting import LauncherStarter
from starverse.node.activity import SAMPLE_SECONDS
from starverse.node.cards.file import FileCards
from starverse.node.cards.hygiene import CLEAN_SECONDS_MAX, granted_cards
from starverse.node.cards.source import CardSource
from starverse.node.folder import AllocationFolder
from starverse.node.host_setup import HostSetup, find_host_setup
from starverse.node.plugs import block_disks
from starverse.node.sandbox.drivers import DRIVERS


class LocalEngine(FolderEngine):
    """Runs everything on this machine.

    ``driver`` is the sandbox that workloads are asked to run in: what it does not isolate is among what the
    engine says that it cannot do. ``look_seconds``: how often instances are looked at for evidence of use;
    ``clean_seconds_max``: how long a card's memory may take to come back once nobody uses it.
    """

    def __init__(
        self,
        data: Path,
        cards: CardSource,
        *,
        use_zygote: bool = True,
        driver: str = "bwrap",
        open_channel: OpenChannel | None = None,
        look_seconds: float = SAMPLE_SECONDS,
        clean_seconds_max: float = CLEAN_SECONDS_MAX,
    ) -> None:
        super().__init__(data, open_channel)
        self._driver = driver
        self._cards = cards
        self._look_seconds = look_seconds
        self._clean_seconds_max = clean_seconds_max
        self._dirty_since: dict[str, float] = {}
        self._starter = LauncherStarter(self._sandbox / "zygote.log", use_zygote=use_zygote)
        self._host: HostSetup | None = None
        self._in_use: IO[str] | None = None
        self._looking = threading.Lock()

    @property
    def capabilities(self) -> Capabilities:
        missing = self._setup().cgroups.missing
        cannot = (*isolation_gaps(self._driver), *(f"limit {name} by cgroup" for name in missing))
        return Capabilities("local", True, False, cannot, no_block_disks=block_disks.refusal())

    def start(self) -> None:
        """Look at the host, open the channel; launchers of an earlier server connect by themselves."""
        self._make_folders()
        self._remove_old_etc()
        self._setup()
        super().start()
        self._starter.warm_up()

    def close(self) -> None:
        """Let go of launchers without touching them."""
        super().close()
        self._starter.close()
        if self._in_use is not None:
            self._in_use.close()

    def nodes(self) -> tuple[NodeReport, ...]:
        return self._cards.probe()

    def submit(self, launch: LaunchSpec) -> None:
        """Write the folder, start a launcher. Nothing happens where one has claimed, or has been revoked."""
        folder = self._write_launch(launch, self._setup().to_json())
        if folder is not None:
            self._starter.start(folder.path)

    def _is_alive(self, folder: AllocationFolder) -> bool:
        return folder.is_claimed()

    def _clean_up(self, folder: AllocationFolder, tell: Callable[[], None]) -> None:
        clean_up(folder, tell, self._copies, lambda: self._settle_cards(folder))

    def _settle_cards(self, folder: AllocationFolder) -> None:
        """What its launcher would have waited for: cards that nobody is on. Raises
        :class:`EngineUnavailable` until they are, or had their time; what is wrong is then written down."""
        try:
            spec = folder.read_spec()
        except (OSError, ValueError):
            return
        cards = granted_cards(spec, self._setup().card_file, self._cards)
        unclean = cards.unclean()
        first = self._dirty_since.setdefault(folder.path.name, time.monotonic())
        if unclean and time.monotonic() - first < self._setup().clean_seconds_max:
            raise EngineUnavailable(f"card {unclean[0].index}: {unclean[0].why}; ask again")
        self._dirty_since.pop(folder.path.name, None)
        folder.write_unclean(unclean)

    def _setup(self) -> HostSetup:
        with self._looking:
            if self._host is None:
                shims = write_shims(self._sandbox / "shims", sys.executable)
                names = tuple(node.node_id for node in self._cards.probe())
                self._host = replace(
                    find_host_setup(self._sandbox, names),
                    shims=str(shims),
                    look_seconds=self._look_seconds,
                    card_file=str(self._cards.path.resolve()) if isinstance(self._cards, FileCards) else "",
                    clean_seconds_max=self._clean_seconds_max,
                )
            return self._host

    def _remove_old_etc(self) -> None:
        """Those of earlier servers, unless a workload or another server may still be looking at one."""
        self._in_use = (self._sandbox / "lock").open("a+")
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(self._in_use, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self.running():
                for old in self._sandbox.glob("etc-*"):
                    shutil.rmtree(old, ignore_errors=True)
        fcntl.flock(self._in_use, fcntl.LOCK_SH)


def isolation_gaps(driver: str) -> tuple[str, ...]:
    """What the named sandbox driver does not isolate, in words."""
    return tuple(f"{text} (driver {driver})" for text in DRIVERS[driver]().cannot)
