"""What is left of an allocation, and its removal: launcher, processes, control groups, sockets, folders."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from starverse.engines.base import EngineUnavailable
from starverse.node import processes
from starverse.node.folder import AllocationFolder, write_atomically
from starverse.node.host_setup import HostSetup
from starverse.node.limits import Cgroups, find_cgroups, remove_cgroups
from starverse.node.logs import finish_outputs
from starverse.node.template_runner import start_act

PATIENCE_SECONDS = 3.0
"""For a launcher to end by itself once it was revoked; then it is killed."""

COPY_SECONDS_MAX = 900.0
"""For the last copy of a checkpoint template whose launcher was killed; the caller asks again meanwhile."""


class LastCopies:
    """Last copies of checkpoint templates that are under way, each in a process of its own."""

    def __init__(
        self,
        start: Callable[[Path], subprocess.Popen[str]] = lambda folder: start_act(folder, "final"),
        elapsed: Callable[[], float] = time.monotonic,
        patience_seconds: float = 0.5,
    ) -> None:
        self._start, self._elapsed, self._patience_seconds = start, elapsed, patience_seconds
        self._acts: dict[str, tuple[subprocess.Popen[str], float]] = {}
        self._lock = threading.Lock()

    def finish(self, folder: AllocationFolder) -> None:
        """See one through, begun where it was not; raises :class:`EngineUnavailable` while it goes on."""
        with self._lock:
            act, begun = self._acts.get(folder.path.name) or (self._start(folder.path), self._elapsed())
            self._acts[folder.path.name] = (act, begun)
            if not _wait(lambda: act.poll() is not None, self._patience_seconds):
                if self._elapsed() - begun < COPY_SECONDS_MAX:
                    raise EngineUnavailable("its last checkpoint is being copied; ask again")
                act.kill()
            act.communicate()
            del self._acts[folder.path.name]


def clean_up(folder: AllocationFolder, tell: Callable[[], None], copies: LastCopies) -> None:
    """Remove what is left; logs, outputs, state and report stay. ``tell`` lets a living launcher know.

    An allocation that nobody claimed is revoked for good. Raises :class:`EngineUnavailable` when
    something does not go away; to be asked again.
    """
    reported = folder.has("report.json")
    if not reported:
        write_atomically(folder / "revoked", "")
    if not folder.has("state.json"):
        _settle_unclaimed(folder)
    tell()
    if not _wait(lambda: not folder.is_claimed(), PATIENCE_SECONDS):
        _kill_launcher(folder)
    _kill_tagged(folder.path.name)
    _remove_cgroups(folder)
    if not folder.has("report.json") and folder.has("state.json"):
        _finish_for_launcher(folder, copies)
    _remove_folders(folder)
    write_atomically(folder / "cleaned", "")


def _settle_unclaimed(folder: AllocationFolder) -> None:
    """A launcher may be about to claim: from ``revoked`` on it will not, unless it holds the lock already."""
    if not _wait(lambda: folder.has("state.json") or folder.is_free(), 2.0):
        raise EngineUnavailable("a launcher is between claim and first report; ask again")


def _kill_launcher(folder: AllocationFolder) -> None:
    """The holder of the lock by the kernel's own word; its workload dies with it."""
    facts = (folder / "claim.lock").stat()
    holder = processes.find_lock_holder(facts.st_dev, facts.st_ino)
    if holder is not None:
        processes.send([holder], signal.SIGKILL)
    if not _wait(lambda: not folder.is_claimed(), 2.0):
        raise EngineUnavailable(f"the launcher of {folder.path.name} does not end")


def _kill_tagged(allocation_id: str) -> None:
    """Processes that outlived the launcher (driver ``process``, launcher and supervisor killed)."""

    def all_gone() -> bool:
        left = processes.find_tagged(allocation_id)
        processes.send(left, signal.SIGKILL)
        return not left

    if not _wait(all_gone, 3.0):
        raise EngineUnavailable(f"processes of {allocation_id} do not end")


def _remove_cgroups(folder: AllocationFolder) -> None:
    try:
        support = HostSetup.from_json((folder / "host.json").read_text()).cgroups
    except (OSError, ValueError, TypeError, KeyError):
        support = find_cgroups()
    left = remove_cgroups(Cgroups(support, f"starverse-{folder.path.name}").all_folders())
    if left:
        raise EngineUnavailable(f"control group {left[0]} does not empty")


def _finish_for_launcher(folder: AllocationFolder, copies: LastCopies) -> None:
    """What a killed launcher could not do: the template's last copy, the rest of the outputs."""
    with contextlib.suppress(OSError, ValueError):
        if folder.read_spec().template is not None:
            copies.finish(folder)
        finish_outputs(folder.path)


def _remove_folders(folder: AllocationFolder) -> None:
    for name in ("run", "home", "tmp"):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / "start.err").unlink(missing_ok=True)
    with contextlib.suppress(OSError, ValueError):
        spec = folder.read_spec()
        folder.write_spec(replace(spec, channel_token="", api_token=None, environment=()))


def _wait(condition: Callable[[], bool], patience_seconds: float) -> bool:
    give_up = time.monotonic() + patience_seconds
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.01)
    return True
