"""What is left of an allocation, and its removal: launcher, processes, control groups, sockets, folders."""

from __future__ import annotations

import signal
from collections.abc import Callable

from starverse.engines.base import EngineUnavailable
from starverse.engines.folders.leftovers import (
    LastCopies,
    end_on_this_host,
    finish_for_launcher,
    remove_folders,
    wait_until,
)
from starverse.node import processes
from starverse.node.folder import AllocationFolder, write_atomically

PATIENCE_SECONDS = 3.0
"""For a launcher to end by itself once it was revoked; then it is killed."""


def clean_up(
    folder: AllocationFolder,
    tell: Callable[[], None],
    copies: LastCopies,
    settle: Callable[[], None] = lambda: None,
) -> None:
    """Remove what is left; logs, outputs, state and report stay. ``tell`` lets a living launcher know.

    An allocation that nobody claimed is revoked for good. Raises :class:`EngineUnavailable` when
    something does not go away; to be asked again. ``settle`` waits, by raising, for what a launcher that was
    killed did not wait for.
    """
    reported = folder.has("report.json")
    if not reported:
        write_atomically(folder / "revoked", "")
    if not folder.has("state.json"):
        _settle_unclaimed(folder)
    tell()
    if not wait_until(lambda: not folder.is_claimed(), PATIENCE_SECONDS):
        _kill_launcher(folder)
    end_on_this_host(folder)
    if not folder.has("report.json") and folder.has("state.json"):
        finish_for_launcher(folder, copies)
        settle()
    remove_folders(folder)
    write_atomically(folder / "cleaned", "")


def _settle_unclaimed(folder: AllocationFolder) -> None:
    """A launcher may be about to claim: from ``revoked`` on it will not, unless it holds the lock already."""
    if not wait_until(lambda: folder.has("state.json") or folder.is_free(), 2.0):
        raise EngineUnavailable("a launcher is between claim and first report; ask again")


def _kill_launcher(folder: AllocationFolder) -> None:
    """The holder of the lock by the kernel's own word; its workload dies with it."""
    facts = (folder / "claim.lock").stat()
    holder = processes.find_lock_holder(facts.st_dev, facts.st_ino)
    if holder is not None:
        processes.send([holder], signal.SIGKILL)
    if not wait_until(lambda: not folder.is_claimed(), 2.0):
        raise EngineUnavailable(f"the launcher of {folder.path.name} does not end")
