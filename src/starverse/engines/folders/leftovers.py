"""What a launcher that was killed could not do any more, and what of its folder goes when all is over."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from starverse.engines.base import EngineUnavailable
from starverse.node import processes
from starverse.node.folder import AllocationFolder
from starverse.node.host_setup import HostSetup
from starverse.node.limits import Cgroups, find_cgroups, remove_cgroups
from starverse.node.logs import finish_outputs
from starverse.node.network.pasta import unlink
from starverse.node.preparation import remove_made
from starverse.node.template_runner import start_act

DISK_SECONDS_MAX = 10.0
"""For what serves a disk to write it back; after that the next mount mends it."""

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
            if not wait_until(lambda: act.poll() is not None, self._patience_seconds):
                if self._elapsed() - begun < COPY_SECONDS_MAX:
                    raise EngineUnavailable("its last checkpoint is being copied; ask again")
                act.kill()
            act.communicate()
            del self._acts[folder.path.name]


def end_on_this_host(folder: AllocationFolder) -> None:
    """Processes and control groups that outlived their launcher here; raises :class:`EngineUnavailable` when
    one does not go."""
    unlink(folder.path)  # what connects its network goes by that, also where it could not be found
    _kill_tagged(folder.path.name)
    _wait_for_disks(folder.path.name)
    _remove_cgroups(folder)


def _kill_tagged(allocation_id: str) -> None:
    """Processes that outlived the launcher (driver ``process``, launcher and supervisor killed)."""

    def all_gone() -> bool:
        left = processes.find_tagged(allocation_id)
        processes.send(left, signal.SIGKILL)
        return not left

    if not wait_until(all_gone, 3.0):
        raise EngineUnavailable(f"processes of {allocation_id} do not end")


def _wait_for_disks(allocation_id: str) -> None:
    """What serves a disk ends by itself once nobody has it mounted and all is written back."""
    tag = processes.DISK_TAG
    if not wait_until(lambda: not processes.find_tagged(allocation_id, tag), DISK_SECONDS_MAX):
        processes.send(processes.find_tagged(allocation_id, tag), signal.SIGKILL)
        raise EngineUnavailable(f"a disk of {allocation_id} was not written back in time; ask again")


def _remove_cgroups(folder: AllocationFolder) -> None:
    try:
        support = HostSetup.from_json((folder / "host.json").read_text()).cgroups
    except (OSError, ValueError, TypeError, KeyError):
        support = find_cgroups()
    left = remove_cgroups(Cgroups(support, f"starverse-{folder.path.name}").all_folders())
    if left:
        raise EngineUnavailable(f"control group {left[0]} does not empty")


def finish_for_launcher(folder: AllocationFolder, copies: LastCopies) -> None:
    """What a killed launcher could not do: the template's last copy, the rest of the outputs."""
    with contextlib.suppress(OSError, ValueError):
        if folder.read_spec().template is not None:
            copies.finish(folder)
        finish_outputs(folder.path)


def remove_folders(folder: AllocationFolder) -> None:
    """Everything but logs, outputs, state and report; no secret stays in the launch spec."""
    remove_made(folder)
    (folder / "start.err").unlink(missing_ok=True)
    with contextlib.suppress(OSError, ValueError):
        spec = folder.read_spec()
        folder.write_spec(replace(spec, channel_token="", api_token=None, environment=(), secrets=()))


def wait_until(condition: Callable[[], bool], patience_seconds: float) -> bool:
    """Whether the condition came to hold in time."""
    give_up = time.monotonic() + patience_seconds
    while not condition():
        if time.monotonic() > give_up:
            return False
        time.sleep(0.01)
    return True
