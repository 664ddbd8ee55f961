"""Allocations as folders. They are the truth; memory and the channel only save looking.

A new engine object on the same data folder knows everything that the old one knew. How a launcher comes to
life, whether it lives and how what is left of it goes is for the engines that derive from this.

::

    DATA/allocations/ID/   see starverse.node.folder
    DATA/channel.sock      launchers on this machine dial here
    DATA/sandbox/          etc-*/ and shims/ that sandboxes show
"""

from __future__ import annotations

import re
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from starverse.domain.errors import InvariantBroken
from starverse.domain.workloads.launch import Desired, LauncherState, LaunchSpec
from starverse.engines.base import (
    Capabilities,
    DiskStore,
    EngineUnavailable,
    NodeReport,
    Observation,
    Presence,
)
from starverse.engines.folders.disks import FolderDisks
from starverse.engines.folders.leftovers import LastCopies
from starverse.node.channel_server import Answers, ChannelServer
from starverse.node.folder import AllocationFolder, write_atomically

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

OpenChannel = Callable[[Answers], ChannelServer]
"""Makes the platform's end of the launchers' channel."""


class FolderEngine(ABC):
    """:meth:`start` before use, :meth:`close` after; launchers go on.

    ``open_channel`` ``None``: a Unix socket in the data folder.
    """

    def __init__(self, data: Path, open_channel: OpenChannel | None = None) -> None:
        self._data = data
        self._allocations = data / "allocations"
        self._sandbox = data / "sandbox"
        answers = Answers(self._token_of, self._desired_of, self._news)
        self._channel = (
            ChannelServer(data / "channel.sock", answers) if open_channel is None else open_channel(answers)
        )
        self._wakes: list[Callable[[], None]] = []
        self._disks = FolderDisks(data)
        self._steered: dict[str, tuple[Desired, tuple[int, int] | None]] = {}
        self._copies = LastCopies()
        self._steering = threading.Lock()

    # -- what each engine does its own way

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities: ...

    @abstractmethod
    def nodes(self) -> tuple[NodeReport, ...]: ...

    @abstractmethod
    def submit(self, launch: LaunchSpec) -> None: ...

    @abstractmethod
    def _is_alive(self, folder: AllocationFolder) -> bool:
        """Whether the launcher that claimed this folder lives."""

    @abstractmethod
    def _clean_up(self, folder: AllocationFolder, tell: Callable[[], None]) -> None:
        """Remove what is left; ``tell`` lets a living launcher know. Raises :class:`EngineUnavailable`."""

    # -- what they share

    @property
    def disks(self) -> DiskStore:
        return self._disks

    def keep_free(self, reserve_bytes: int) -> None:
        """Before :meth:`start`: how much of the data folder's storage no block disk may take."""
        self._disks.reserve_bytes = reserve_bytes

    def start(self) -> None:
        """Make the folders, open the channel; launchers of an earlier server connect by themselves."""
        self._make_folders()
        self._channel.start()

    def close(self) -> None:
        """Let go of launchers without touching them."""
        self._channel.close()

    def steer(self, allocation_id: str, desired: Desired) -> None:
        folder = self._folder(allocation_id)
        if not folder.has("spec.json") or folder.has("report.json"):
            return
        with self._steering:
            if self._steered.get(allocation_id) == (desired, _stamp(folder / "desired.json")):
                return  # unless another server wrote something else there
            try:
                folder.write_desired(desired)
            except OSError as error:  # on a full disk, people stop what fills it
                self._channel.send(allocation_id, desired)
                raise EngineUnavailable(f"what is wanted cannot be written down: {error.strerror}") from error
            self._steered[allocation_id] = desired, _stamp(folder / "desired.json")
        self._channel.send(allocation_id, desired)

    def observe(self, allocation_ids: Collection[str]) -> Mapping[str, Observation]:
        return {allocation_id: self._observe(allocation_id) for allocation_id in allocation_ids}

    def running(self) -> tuple[str, ...]:
        """Every folder whose launcher lives. Costs a look at each folder that was not cleaned yet."""
        return tuple(folder.path.name for folder in self._uncleaned() if self._is_alive(folder))

    def clean(self, allocation_id: str) -> None:
        """End whatever is left and remove it; raises :class:`EngineUnavailable` while something resists."""
        folder = self._folder(allocation_id)
        if folder.has("cleaned"):
            return
        try:  # where there is none, too: a submit that comes late finds its id revoked
            folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise EngineUnavailable(f"the allocation's folder cannot be made: {error.strerror}") from error
        self._clean_up(folder, lambda: self._channel.send(allocation_id, Desired(stop=True)))
        self._channel.forget(allocation_id)
        with self._steering:
            self._steered.pop(allocation_id, None)

    def open_stream(self, allocation_id: str, kind: str = "ssh") -> socket.socket:
        folder = self._folder(allocation_id)
        state = self._observe(allocation_id).state
        if state is None or state.ready_at is None or state.phase == "ended":
            raise EngineUnavailable("it takes no connections: it does not run")
        try:
            interactive = folder.read_spec().interactive
        except (OSError, ValueError) as error:
            raise EngineUnavailable("its launch spec cannot be read") from error
        if not interactive:
            raise EngineUnavailable("it takes no connections: it is not an instance")
        return self._channel.open_stream(allocation_id, kind)

    def join_servers(self, relay: Callable[[str], None]) -> Callable[[str], bool]:
        """Have wishes for streams told to the other servers by ``relay``; what they tell goes to the answer,
        which says whether it was one."""
        self._channel.relay = relay
        return self._channel.hear

    def on_news(self, wake: Callable[[], None]) -> None:
        self._wakes.append(wake)

    def _make_folders(self) -> None:
        self._allocations.mkdir(parents=True, exist_ok=True)
        self._sandbox.mkdir(parents=True, exist_ok=True)
        self._allocations.chmod(0o700)

    def _write_launch(self, launch: LaunchSpec, host: str = "") -> AllocationFolder | None:
        """The folder of a launch, written; ``None`` where a launcher has claimed it, or it is revoked.

        ``host`` is what is known of the node beforehand; ``""``: its launcher looks for itself.
        """
        folder = self._folder(launch.allocation_id)
        if any(folder.has(name) for name in ("state.json", "report.json", "revoked")):
            return None
        try:
            folder.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            if host:
                write_atomically(folder / "host.json", host)
            folder.write_spec(launch)
        except OSError as error:
            raise EngineUnavailable(f"the allocation's folder cannot be written: {error.strerror}") from error
        return folder

    def _uncleaned(self) -> Iterator[AllocationFolder]:
        if self._allocations.is_dir():
            for entry in sorted(self._allocations.iterdir()):
                folder = AllocationFolder(entry)
                if not folder.has("cleaned"):
                    yield folder

    def _observe(self, allocation_id: str) -> Observation:
        """What one folder says; trouble with it is that allocation's alone, and so no error.

        Where nothing can be read (a failing disk, no descriptors left) nothing is known to have changed: it
        counts as alive, with what its launcher said over the channel.
        """
        folder, heard = self._folder(allocation_id), self._channel.newest(allocation_id)
        try:
            return self._look_into(folder, heard)
        except OSError:
            return Observation(Presence.ALIVE, heard)

    def _look_into(self, folder: AllocationFolder, heard: LauncherState | None) -> Observation:
        """Raises ``OSError``. A damaged state or report counts as not there; the claim is still the truth."""
        for _ in range(2):
            report = read_report(folder, heard)
            if report is not None:
                return Observation(Presence.ENDED, report)
            if not folder.has("state.json") and not folder.has("report.json"):
                waiting = folder.has("spec.json") and not folder.has("revoked")
                return Observation(Presence.ACCEPTED if waiting else Presence.UNKNOWN)
            if self._is_alive(folder):
                return Observation(Presence.ALIVE, newer_state(folder.read_state(), heard))
            # not claimed any more: look once more for the report that comes just before
        state = newer_state(folder.read_state(), heard)
        unclean = folder.read_unclean() if state is not None else ()
        return Observation(Presence.GONE, replace(state, unclean=unclean) if state and unclean else state)

    def _folder(self, allocation_id: str) -> AllocationFolder:
        if _NAME.fullmatch(allocation_id) is None:
            raise InvariantBroken(context={"allocation_id": allocation_id})
        return AllocationFolder(self._allocations / allocation_id)

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


def _stamp(path: Path) -> tuple[int, int] | None:
    """What changes whenever a file is written anew; ``None``: it is not there."""
    try:
        facts = path.stat()
    except FileNotFoundError:
        return None
    return facts.st_ino, facts.st_mtime_ns


def read_report(folder: AllocationFolder, heard: LauncherState | None) -> LauncherState | None:
    """The final report; where the file is there and damaged, what its launcher said at the end."""
    report = folder.read_report()
    if report is None and folder.has("report.json") and heard is not None and heard.phase == "ended":
        return heard
    return report


def newer_state(written: LauncherState | None, heard: LauncherState | None) -> LauncherState | None:
    """Of what folder and channel say, the newer (a full disk stops the one, a stall the other)."""
    if heard is None or (written is not None and written.alive_at > heard.alive_at):
        return written
    return heard
