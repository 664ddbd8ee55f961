"""Deleting a folder that somebody else filled, however deep they made it."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
from pathlib import Path


def remove_tree(folder: Path) -> None:
    """Delete a folder and all in it, read-only folders too; a link is deleted, not followed.

    A folder that is not there is no error. Raises ``OSError`` where something stays. The standard library
    goes down by recursion with one open file a level; below some hundred levels ``rm`` goes on. What root in
    a container image gave to others there, an ordinary user deletes as the root that it was.
    """
    if folder.is_symlink() or not folder.is_dir():
        folder.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(folder)
    except (OSError, RecursionError):
        if os.geteuid() != 0:  # root needs no permission, and must give none where a workload may interfere
            _run("chmod", "-R", "u+rwX", folder)
        said = _run("rm", "-rf", folder)
        if os.geteuid() != 0 and os.path.lexists(folder):
            with contextlib.suppress(OSError):
                _run("unshare", "--map-root-user", "--map-auto", "rm", "-rf", folder)
        if os.path.lexists(folder):
            raise OSError(errno.ENOTEMPTY, f"it could not be deleted whole: {said}", str(folder)) from None


def _run(program: str, *rest: str | Path) -> str:
    *options, folder = rest
    done = subprocess.run(
        [program, *options, "--", folder], stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return (done.stderr.decode("utf-8", "replace").strip().splitlines() or [""])[-1][:300]
