"""Folders of the data folder as tar archives: with owners, times and holes, and safe against what is in them.

By GNU tar: it descends by folder handles and never follows a link, so that a workload that swaps a folder for
a link meanwhile reaches nothing else, also where root makes the backup; and it keeps the holes of logs.

An ordinary user's platform has files that it may not read: those that root in a container image gave to
others there. It packs and unpacks as that root, in a user namespace with its ids of ``/etc/subuid``; in the
archive the platform's own files are then root's.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from starverse.app.maintenance.manifest import FileDigest
from starverse.checkpoint.removing import remove_tree
from starverse.domain.errors import Unavailable

TREES: Mapping[str, str] = {
    "folders": "packed submit folders: jobs that wait start from them",
    "workspaces": "the /workspace of jobs, as people left it",
    "checkpoints": "published checkpoints: interrupted jobs resume from them",
    "logs": "what jobs printed",
    "datasets": "the shelf",
    "instances": "the /root of instances, or what they wrote over their container image",
    "disks": "what teams keep on their disks",
    "snapshots": "copies of disks",
    "images": "what workloads start on; shipped ones can be built again",
}
"""What of the data folder may go into a backup, by its folder's name."""

OVERLAY_MARKS = ("--xattrs", "--xattrs-include=user.overlay.*")
"""How an instance's layer over its container image says that a folder hides the image's."""
READ_BYTES = 1 << 20
WARNINGS_MAX = 20
_CHANGED = re.compile(r"changed as we read it|removed before we read it|socket ignored")
"""A folder that is in use: what was there when it was read is what is wanted."""


def pack(data: Path, tree: str, out: IO[bytes]) -> tuple[FileDigest, list[str]]:
    """Write the archive; its digest, and what could not be read (the first :data:`WARNINGS_MAX`)."""
    words = [*_as_own_root(), "tar", "--create", "--sparse", "--numeric-owner"]
    words += ["--format=posix", "--ignore-failed-read"]
    words += OVERLAY_MARKS
    digest, size = hashlib.sha256(), 0
    with tempfile.TemporaryFile() as said:
        with subprocess.Popen(
            [*words, "--directory", str(data), tree],
            stdout=subprocess.PIPE,
            stderr=said,
            stdin=subprocess.DEVNULL,
            env=_environment(),
        ) as tar:
            assert tar.stdout is not None
            try:
                while piece := tar.stdout.read(READ_BYTES):
                    out.write(piece)
                    digest.update(piece)
                    size += len(piece)
            except BaseException:
                tar.kill()
                raise
        said.seek(0)
        lines = [line for line in said.read().decode("utf-8", "replace").splitlines() if line]
    unread = [line.removeprefix("tar: ") for line in lines if not _CHANGED.search(line)]
    if tar.returncode not in (0, 1):
        raise Unavailable(f"tar could not pack {data / tree}: {'; '.join(unread[-3:])}")
    return FileDigest(size, digest.hexdigest()), [f"{tree}: {line}" for line in unread[:WARNINGS_MAX]]


def unpack(archive: Path, into: Path) -> None:
    """Unpack into an empty folder that nobody else may enter."""
    words = ["tar", "--extract", "--numeric-owner", "--preserve-permissions", "--delay-directory-restore"]
    words += [*OVERLAY_MARKS, "--file", str(archive), "--directory", str(into)]
    root = _as_own_root() if _is_roots(archive) else ()
    done = _run([*root, *words])
    if done.returncode and root:  # a root platform's: owners that are not to be had here
        remove_tree(into / archive.stem)
        done = _run(words)
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise Unavailable(f"tar could not unpack {archive}: {'; '.join(said[-3:])}")
    os.sync()


def _as_own_root() -> tuple[str, ...]:
    """What makes a command of an ordinary user root over its ids of ``/etc/subuid``; nothing without any."""
    words = ("unshare", "--map-root-user", "--map-auto", "--")
    try:
        return words if os.geteuid() != 0 and _run([*words, "true"]).returncode == 0 else ()
    except OSError:
        return ()


def _is_roots(archive: Path) -> bool:
    """Whether the platform's own files are root's in it."""
    with tarfile.open(archive) as packed:
        first = packed.next()
    return first is not None and first.uid == 0


def _run(words: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, env=_environment(), check=False
    )


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "TAR_OPTIONS"} | {"LC_ALL": "C"}
