"""Allocations as launchers on this machine. Folders and locks are the truth; memory only saves looking.

A new engine object on the same data folder knows everything that the old one knew: nothing is adopted by
process id, all of it by the lock that a launcher holds in its allocation's folder.

::

    DATA/allocations/ID/   see starverse.node.folder
    DATA/channel.sock      launchers dial here
    DATA/sandbox/          etc-*/ and shims/ that sandboxes show; zygote.log
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from starverse.domain.errors import InvariantBroken
from starverse.domain.workloads.launch import Desired, LauncherState, LaunchSpec
from starverse.engines.base import (
    Capabilities,
    EngineUnavailable,
    NodeReport,
    Observation,
    Presence,
)
from starverse.engines.local.cleaning import LastCopies, clean_up
from starverse.engines.local.shims import write_shims
from starverse.engines.local.starting import LauncherStarter
from starverse.node.cards.source import CardSource
from starverse.node.channel_server import Answers, ChannelServer
from starverse.node.folder import AllocationFolder, write_atomically
from starverse.node.host_setup import HostSetup, find_host_setup
from starverse.node.sandbox.drivers import DRIVERS

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class LocalEngine:
    """Runs everything on this machine. :meth:`start` before use, :meth:`close` after; launchers go on.

    ``driver`` is the sandbox that workloads are asked to run in: what it does not isolate is among what the
    engine says that it cannot do.
    """

    def __init__(
        self, data: Path, cards: CardSource, *, use_zygote: bool = True, driver: str = "bwrap"
    ) -> None:
        self._driver = driver
        self._data = data
        self._cards = cards
        self._allocations = data / "allocations"
        self._sandbox = data / "sandbox"
        self._starter = LauncherStarter(self._sandbox / "zygote.log", use_zygote=use_zygote)
        self._channel = ChannelServer(
            data / "channel.sock", Answers(self._token_of, self._desired_of, self._news)
        )
        self._wakes: list[Callable[[], None]] = []
        self._host: HostSetup | None = None
        self._steered: dict[str, Desired] = {}
        self._copies = LastCopies()
        self._lock = threading.Lock()

    @property
    def capabilities(self) -> Capabilities:
        missing = self._setup().cgroups.missing
        cannot = (*isolation_gaps(self._driver), *(f"limit {name} by cgroup" for name in missing))
        return Capabilities(name="local", binds_cards=True, multi_node=False, cannot=cannot)

    def start(self) -> None:
        """Look at the host, open the channel; launchers of an earlier server connect by themselves."""
        self._allocations.mkdir(parents=True, exist_ok=True)
        self._sandbox.mkdir(parents=True, exist_ok=True)
        os.chmod(self._allocations, 0o700)  # noqa: PTH101
        self._remove_old_etc()
        self._setup()
        self._channel.start()
        self._starter.warm_up()

    def close(self) -> None:
        """Let go of launchers without touching them."""
        self._channel.close()
        self._starter.close()

    def nodes(self) -> tuple[NodeReport, ...]:
        return self._cards.probe()

    def submit(self, launch: LaunchSpec) -> None:
        """Write the folder, start a launcher. Nothing happens where one has claimed, or has been revoked."""
        folder = self._folder(launch.allocation_id)
        if any(folder.has(name) for name in ("state.json", "report.json", "revoked")):
            return
        try:
            folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(folder / "host.json", self._setup().to_json())
            folder.write_spec(launch)
        except OSError as error:
            raise EngineUnavailable(f"the allocation's folder cannot be written: {error.strerror}") from error
        self._starter.start(folder.path)

    def steer(self, allocation_id: str, desired: Desired) -> None:
        folder = self._folder(allocation_id)
        if not folder.has("spec.json") or folder.has("report.json"):
            return
        with self._lock:
            if self._steered.get(allocation_id) == desired:
                return
            try:
                folder.write_desired(desired)
            except OSError as error:
                raise EngineUnavailable(f"what is wanted cannot be written down: {error.strerror}") from error
            self._steered[allocation_id] = desired
        self._channel.send(allocation_id, desired)

    def observe(self, allocation_ids: Collection[str]) -> Mapping[str, Observation]:
        return {allocation_id: self._observe(allocation_id) for allocation_id in allocation_ids}

    def running(self) -> tuple[str, ...]:
        """Every folder whose claim is held. Costs a look at each folder that was not cleaned yet."""
        if not self._allocations.is_dir():
            return ()
        found = []
        for entry in sorted(self._allocations.iterdir()):
            folder = AllocationFolder(entry)
            if not folder.has("cleaned") and folder.is_claimed():
                found.append(entry.name)
        return tuple(found)

    def clean(self, allocation_id: str) -> None:
        """End whatever is left and remove it; raises :class:`EngineUnavailable` while something resists."""
        folder = self._folder(allocation_id)
        if folder.has("cleaned"):
            return
        try:  # where there is none, too: a submit that comes late finds its id revoked
            folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise EngineUnavailable(f"the allocation's folder cannot be made: {error.strerror}") from error
        clean_up(folder, lambda: self._channel.send(allocation_id, Desired(stop=True)), self._copies)
        self._channel.forget(allocation_id)
        with self._lock:
            self._steered.pop(allocation_id, None)

    def on_news(self, wake: Callable[[], None]) -> None:
        self._wakes.append(wake)

    def _observe(self, allocation_id: str) -> Observation:
        """What one folder says; trouble with it is that allocation's alone, and so no error.

        Where nothing can be read (a failing disk, no descriptors left) nothing is known to have changed: it
        counts as alive, with what its launcher said over the channel.
        """
        folder, heard = self._folder(allocation_id), self._channel.newest(allocation_id)
        try:
            return _look_into(folder, heard)
        except OSError:
            return Observation(Presence.ALIVE, heard)

    def _folder(self, allocation_id: str) -> AllocationFolder:
        if _NAME.fullmatch(allocation_id) is None:
            raise InvariantBroken(context={"allocation_id": allocation_id})
        return AllocationFolder(self._allocations / allocation_id)

    def _setup(self) -> HostSetup:
        with self._lock:
            if self._host is None:
                shims = write_shims(self._sandbox / "shims", sys.executable)
                names = tuple(node.node_id for node in self._cards.probe())
                self._host = replace(find_host_setup(self._sandbox, names), shims=str(shims))
            return self._host

    def _remove_old_etc(self) -> None:
        """Those of earlier servers, unless a workload may still be looking at one."""
        if not self.running():
            for old in self._sandbox.glob("etc-*"):
                shutil.rmtree(old, ignore_errors=True)

    def _token_of(self, allocation_id: str) -> str | None:
        try:
            return self._folder(allocation_id).read_spec().channel_token
        except (OSError, ValueError, InvariantBroken):
            return None

    def _desired_of(self, allocation_id: str) -> Desired | None:
        try:
            return self._folder(allocation_id).read_desired()
        except (OSError, ValueError, TypeError):
            return None

    def _news(self) -> None:
        for wake in self._wakes:
            wake()


def isolation_gaps(driver: str) -> tuple[str, ...]:
    """What the named sandbox driver does not isolate, in words."""
    return tuple(f"{text} (driver {driver})" for text in DRIVERS[driver]().cannot)


def _look_into(folder: AllocationFolder, heard: LauncherState | None) -> Observation:
    """Raises ``OSError``. A damaged state or report counts as not there; the claim is still the truth."""
    for _ in range(2):
        report = folder.read_report()
        if report is None and folder.has("report.json") and heard is not None and heard.phase == "ended":
            report = heard
        if report is not None:
            return Observation(Presence.ENDED, report)
        if not folder.has("state.json") and not folder.has("report.json"):
            waiting = folder.has("spec.json") and not folder.has("revoked")
            return Observation(Presence.ACCEPTED if waiting else Presence.UNKNOWN)
        if folder.is_claimed():
            return Observation(Presence.ALIVE, _newer(folder.read_state(), heard))
        # not claimed any more: look once more for the report that comes just before
    return Observation(Presence.GONE, _newer(folder.read_state(), heard))


def _newer(written: LauncherState | None, heard: LauncherState | None) -> LauncherState | None:
    """Of what folder and channel say, the newer (a full disk stops the one, a stall the other)."""
    if heard is None or (written is not None and written.alive_at > heard.alive_at):
        return written
    return heard
