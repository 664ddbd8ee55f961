"""What runs reported about loading checkpoints, kept beside them in small files.

- ``<root>/loaded.json``: the newest report of a load that worked (the checkpoint is *loadable*)::

      {"version": 1, "checkpoint": "step-0000001200-a2", "attempt": 3, "loaded_at": "..."}

- ``<root>/failed_loads.json``: ``{"version": 1, "failed": {"step-0000001200-a2": 2}}``
- ``<root>/.loading-<checkpoint>-<pid>``: a load under way, locked by its process; found unlocked, its
  process died while loading, and that counts as a failed load.

A checkpoint that failed to load twice is given up: resuming falls back to the one before it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from starverse.checkpoint.beneath import read_beneath
from starverse.checkpoint.manifest import Published, parse_folder_name, published, verify
from starverse.checkpoint.publish import Origin, folder_lock, is_unlocked, lock_descriptor, replace_durably

LOADED_NAME = "loaded.json"
FAILED_NAME = "failed_loads.json"
LOADING_PREFIX = ".loading-"
FAILED_LOADS_MAX = 2
"""So many failed loads give a checkpoint up."""

RECORD_BYTES_MAX = 64 * 1024
"""A larger ``loaded.json`` or ``failed_loads.json`` counts as spoilt."""

_VERSION = 1
_COUNT_MAX = 10**9
_LOADING = re.compile(r"\.loading-(step-\d+-a\d+)-\d+")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A report that a checkpoint could be loaded: its folder name, by which attempt, when."""

    checkpoint: str
    attempt: int
    loaded_at: datetime


def newest(root: Path) -> Published | None:
    """The newest checkpoint in ``root`` that verifies byte for byte and is not given up; ``None`` without."""
    for item in candidates(root):
        if verify(item.path).verified:
            return item
    return None


def candidates(root: Path) -> list[Published]:
    """Published checkpoints that are not given up, newest first; nothing is said about their bytes."""
    dead = given_up(root)
    return [item for item in reversed(published(root)) if item.path.name not in dead]


def given_up(root: Path) -> frozenset[str]:
    """Folder names of the checkpoints that failed to load too often."""
    return frozenset(name for name, count in failed_loads(root).items() if count >= FAILED_LOADS_MAX)


def failed_loads(root: Path) -> Mapping[str, int]:
    """Failed loads by folder name; a file that cannot be read counts as empty."""
    body = _read(root, FAILED_NAME)
    failed = body.get("failed")
    if not isinstance(failed, dict):
        return {}
    return {
        name: count
        for name, count in failed.items()
        if _is_count(count) and parse_folder_name(name) is not None
    }


def last_loaded(root: Path) -> Loaded | None:
    """The newest report of a load that worked; ``None`` without one that can be read."""
    body = _read(root, LOADED_NAME)
    name, attempt, at = body.get("checkpoint"), body.get("attempt"), _instant(body.get("loaded_at"))
    if not (isinstance(name, str) and isinstance(attempt, int) and _is_count(attempt) and at is not None):
        return None
    return Loaded(name, attempt, at) if parse_folder_name(name) is not None else None


def report_loaded(root: Path, checkpoint: str, origin: Origin) -> None:
    """Record that ``checkpoint`` (a folder name in ``root``) was loaded; its failed loads are forgotten."""
    at = origin.now().astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    body = {"version": _VERSION, "checkpoint": checkpoint, "attempt": origin.attempt, "loaded_at": at}
    with folder_lock(root):
        replace_durably(root / LOADED_NAME, json.dumps(body).encode())
    forget_failures(root, checkpoint)


def forget_failures(root: Path, checkpoint: str) -> None:
    """Forget the failed loads of ``checkpoint``: it was loaded after all, or written anew."""
    if checkpoint not in failed_loads(root):
        return
    with folder_lock(root):
        _write_failed(root, {name: count for name, count in failed_loads(root).items() if name != checkpoint})


def report_failed(root: Path, checkpoint: str) -> int:
    """Record a failed load of ``checkpoint`` (a folder name in ``root``); returns how many that makes."""
    with folder_lock(root):
        return _count_failures(root, [checkpoint])[checkpoint]


@contextlib.contextmanager
def loading(root: Path, checkpoint: str) -> Iterator[None]:
    """Mark a load as under way, so that a process killed by it leaves a trace."""
    mark = root / f"{LOADING_PREFIX}{checkpoint}-{os.getpid()}"
    with folder_lock(root):
        descriptor = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        lock_descriptor(descriptor, wait=False)
        os.fsync(descriptor)
    try:
        yield
    finally:
        mark.unlink(missing_ok=True)
        os.close(descriptor)


def settle_loads(root: Path, *, wait: bool = True) -> list[str]:
    """Count the loads whose process died under way as failed; returns the checkpoints' folder names.

    ``wait`` is that of :func:`folder_lock`.
    """
    if not root.is_dir():
        return []
    marks = [(entry, found[1]) for entry in root.iterdir() if (found := _LOADING.fullmatch(entry.name))]
    if not marks:
        return []
    with folder_lock(root, wait=wait):
        dead = [(mark, checkpoint) for mark, checkpoint in sorted(marks) if is_unlocked(mark)]
        if dead:
            _count_failures(root, [checkpoint for _, checkpoint in dead])
        for mark, _ in dead:
            with contextlib.suppress(OSError):
                mark.unlink()
    return [checkpoint for _, checkpoint in dead]


def _count_failures(root: Path, checkpoints: Iterable[str]) -> Mapping[str, int]:
    there = {item.path.name for item in published(root)}
    failed = Counter({name: count for name, count in failed_loads(root).items() if name in there})
    failed.update(checkpoints)
    _write_failed(root, failed)
    return failed


def _write_failed(root: Path, failed: Mapping[str, int]) -> None:
    replace_durably(root / FAILED_NAME, json.dumps({"version": _VERSION, "failed": failed}).encode())


def _read(root: Path, name: str) -> Mapping[str, object]:
    try:
        body = json.loads(read_beneath(root, name, RECORD_BYTES_MAX))
    except (OSError, ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) and body.get("version") == _VERSION else {}


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _COUNT_MAX


def _instant(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        instant = datetime.fromisoformat(text)
        return None if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
