"""What an image is by its bytes: a digest that two builds of one recipe share.

Of each entry counts its path, what it is, and its content: for a link where it leads. Times, owners,
compiled files and the installer's own notes are left out: they differ from build to build and change nothing
that runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

FORMAT = 1
_NOTES = frozenset({"RECORD", "INSTALLER", "REQUESTED", "direct_url.json", "uv_cache.json"})
"""In ``NAME.dist-info``: who installed the package, when and from where. ``conda-meta`` tells no more."""


class EntryKind(StrEnum):
    """``program``: a file that may be executed."""

    FILE = "file"
    PROGRAM = "program"
    LINK = "link"


@dataclass(frozen=True, slots=True)
class Entry:
    """``path`` is relative, with ``/``; ``hash`` is SHA-256 in hex, of a link's target for a link."""

    path: str
    kind: EntryKind
    bytes: int
    hash: str


def is_noise(path: str) -> bool:
    """Whether the entry says nothing about what runs."""
    folder, _, name = path.rpartition("/")
    if name.endswith(".pyc"):
        return True
    return folder == "conda-meta" or (name in _NOTES and folder.endswith(".dist-info"))


def tree_digest(entries: Iterable[Entry]) -> str:
    """``sha256:HEX`` over all that counts, in the order of the paths' bytes."""
    digest = hashlib.sha256(json.dumps({"format": FORMAT}).encode() + b"\n")
    counted = (entry for entry in entries if not is_noise(entry.path))
    for entry in sorted(counted, key=lambda entry: entry.path.encode("utf-8", "surrogateescape")):
        line = json.dumps([entry.path, entry.kind.value, entry.bytes, entry.hash])
        digest.update(line.encode() + b"\n")
    return "sha256:" + digest.hexdigest()


@dataclass(frozen=True, slots=True)
class TreeFault:
    """An entry that is not as it was sealed: ``missing``, ``extra`` or ``changed``."""

    path: str
    kind: str


def compare_trees(sealed: Iterable[Entry], found: Iterable[Entry]) -> tuple[TreeFault, ...]:
    """How what is there differs from what was sealed, compiled files included; empty: not at all."""
    wanted, there = {e.path: e for e in sealed}, {e.path: e for e in found}
    faults = [TreeFault(path, "missing") for path in wanted.keys() - there.keys()]
    faults += [TreeFault(path, "extra") for path in there.keys() - wanted.keys()]
    faults += [
        TreeFault(path, "changed") for path in wanted.keys() & there.keys() if wanted[path] != there[path]
    ]
    return tuple(sorted(faults, key=lambda fault: fault.path))
