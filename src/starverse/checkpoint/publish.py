"""Publishing a checkpoint: written aside, flushed, described, renamed once.

A writing folder is ``<root>/.writing-<attempt>-<step>-<pid>``, held by a lock on the folder itself for as
long as its writer lives, so that the leftover of a dead one is told from one at work (also across process
id namespaces). ``<root>/.lock`` makes the check of the attempt and the rename one step. Whatever the
instant of a kill, what was published before is whole: the rename is the only change that a reader sees.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from starverse.checkpoint import hashing
from starverse.checkpoint.beneath import open_beneath
from starverse.checkpoint.errors import AlreadyPublished, Fenced, Unusable, save_failure
from starverse.checkpoint.manifest import (
    MANIFEST_NAME,
    FileEntry,
    Manifest,
    ManifestInvalid,
    Published,
    published,
    read_manifest,
    verify,
)
from starverse.checkpoint.removing import remove_tree
from starverse.checkpoint.tree import scan, write_all

WRITING_PREFIX = ".writing-"
REMOVED_PREFIX = ".removed-"
LOCK_NAME = ".lock"
STEP_MAX = 10**18
ATTEMPT_MAX = 10**9 - 1

_WRITING = re.compile(r"\.writing-\d+-\d+-\d+")
_FILES_BATCH = 256
_NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF, errno.EINVAL})


@dataclass(frozen=True, slots=True)
class Origin:
    """Who publishes: the attempt number, the job's id (``None`` outside the platform) and the clock."""

    attempt: int = 0
    run: str | None = None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


class Writing:
    """A checkpoint being written in :attr:`folder`; ends with :meth:`publish` or :meth:`abandon`."""

    def __init__(self, root: Path, step: int, origin: Origin) -> None:
        if not 0 <= step < STEP_MAX or not 0 <= origin.attempt <= ATTEMPT_MAX:
            raise Unusable(f"step {step} and attempt {origin.attempt} have to be whole numbers from 0")
        self.root = root
        self.step = step
        self.origin = origin
        self.folder = root / f"{WRITING_PREFIX}{origin.attempt}-{step}-{os.getpid()}"
        self._lock: int | None = None
        try:
            if not root.is_dir():
                root.mkdir(parents=True, exist_ok=True)
                flush_folder(root.parent)
            with folder_lock(root):
                remove_leftovers(root)
                self.folder.mkdir()
                self._lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                lock_descriptor(self._lock, wait=False)
        except FileExistsError as error:
            raise Unusable(f"step {step} is being saved already by this process") from error
        except OSError as error:
            self.abandon()
            raise save_failure(error) from error

    def __enter__(self) -> Writing:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def publish(
        self, known: Mapping[str, FileEntry] | None = None, *, replaceable: Collection[str] = ()
    ) -> Published:
        """Flush, hash and describe what the folder holds, then rename it into place.

        ``known`` holds entries of files that the writer hashed and flushed itself; ``replaceable`` names
        published folders that may be replaced (those given up). Publishing the same content of a step
        again is no error and changes nothing. Raises :class:`Fenced`, :class:`AlreadyPublished`,
        :class:`SaveFailed` or :class:`Unusable`; the folder is then gone.
        """
        try:
            manifest = self._describe(known or {})
            _write_durably(self.folder / MANIFEST_NAME, manifest.to_bytes())
            return self._rename(manifest, replaceable)
        except OSError as error:
            raise save_failure(error) from error
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Remove the folder if it was not published, and let go of its lock; safe to call again."""
        lock, self._lock = self._lock, None
        if lock is not None:
            if self.folder.is_dir():
                _remove(self.folder)
            os.close(lock)

    def _describe(self, known: Mapping[str, FileEntry]) -> Manifest:
        tree = scan(self.folder)
        if MANIFEST_NAME in tree.files:
            raise Unusable(f"{MANIFEST_NAME} is the checkpoint's own file; name yours otherwise")
        algorithm = hashing.default_algorithm()
        unknown = [path for path in tree.files if path not in known]
        entries = dict(known)
        for start in range(0, len(unknown), _FILES_BATCH):
            batch = unknown[start : start + _FILES_BATCH]
            entries.update(_hash_and_flush(self.folder, batch, algorithm))
        for folder in sorted(tree.all_folders, reverse=True):
            flush_folder(self.folder / folder)
        return Manifest(
            attempt=self.origin.attempt,
            step=self.step,
            created_at=self.origin.now()
            .astimezone(UTC)
            .isoformat(timespec="microseconds")
            .replace("+00:00", "Z"),
            files=tuple(entries[path] for path in tree.files),
            links=tree.links,
            folders=tree.folders,
            run=self.origin.run,
            algorithm=algorithm,
        )

    def _rename(self, manifest: Manifest, replaceable: Collection[str]) -> Published:
        place = self.root / manifest.folder_name
        with folder_lock(self.root):
            check_fence(self.root, self.origin.attempt)
            if place.is_dir():
                found = verify(place)
                if found.verified and place.name not in replaceable:
                    if found.manifest is not None and found.manifest.content == manifest.content:
                        return Published(self.origin.attempt, self.step, place)
                    raise AlreadyPublished(
                        f"{place.name} is published with other content; a published one never changes: "
                        "save a higher step, or use another folder for another run."
                    )
                set_aside(place)
            flush_folder(self.folder)
            self.folder.rename(place)
            flush_folder(self.root)
        return Published(self.origin.attempt, self.step, place)


def check_fence(root: Path, attempt: int) -> None:
    """Raise :class:`Fenced` when a checkpoint of a higher attempt is published in ``root``.

    A folder without a readable manifest fences nobody.
    """
    for item in reversed(published(root)):
        if item.attempt <= attempt:
            return
        with contextlib.suppress(ManifestInvalid):
            read_manifest(item.path)
            raise Fenced(
                f"attempt {item.attempt} has published {item.path.name} in {root} and this is attempt "
                f"{attempt}, an older run of the same job: it cannot publish any more and must end."
            )


def remove_leftovers(root: Path) -> list[Path]:
    """Remove what dead writers and removers left in ``root``; returns the writing folders abandoned.

    The caller holds :func:`folder_lock`, so that a folder just made is not taken for a leftover.
    """
    abandoned = []
    for entry in _entries(root):
        if entry.name.startswith(REMOVED_PREFIX):
            _remove(entry)
        elif _WRITING.fullmatch(entry.name) and is_unlocked(entry):
            _remove(entry)
            abandoned.append(entry)
    return abandoned


def set_aside(place: Path) -> None:
    """Take a published folder out of the list by one rename, then remove it: never half of it is listed."""
    aside = place.with_name(f"{REMOVED_PREFIX}{place.name}-{os.getpid()}")
    _remove(aside)
    place.rename(aside)
    flush_folder(place.parent)
    _remove(aside)


@contextlib.contextmanager
def folder_lock(root: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold ``<root>/.lock``; where the file system has no locks, go on without.

    Without ``wait`` raises ``BlockingIOError`` where someone else holds it: for those who must not be held
    up by the owner of the folder.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    descriptor = os.open(root / LOCK_NAME, flags, 0o666)
    try:
        if not lock_descriptor(descriptor, wait=wait):
            raise BlockingIOError(errno.EAGAIN, f"{LOCK_NAME} is held by another process")
        yield
    finally:
        os.close(descriptor)


def flush_folder(folder: Path) -> None:
    """fsync a folder, so that the names in it survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_durably(path: Path, content: bytes) -> None:
    """Write a small file so that readers see the old or the new content, never half of it."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.unlink(missing_ok=True)  # a leftover, or a pipe that was put in our way
        _write_durably(aside, content, os.O_EXCL)
        aside.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
    flush_folder(path.parent)


def _hash_and_flush(folder: Path, paths: list[str], algorithm: str) -> dict[str, FileEntry]:
    """Hash the files while their bytes go to the disk; both release the interpreter lock."""
    with contextlib.ExitStack() as stack:
        sizes: list[int] = []
        hashes: list[Callable[[], bytes]] = []
        flushes: list[Callable[[], bytes]] = []
        counts: list[int] = []
        for path in paths:
            opened = stack.enter_context(open_beneath(folder, path))
            found = os.fstat(opened.number)
            if not stat.S_ISREG(found.st_mode):
                raise Unusable(f"{path} changed its kind while it was saved")
            spans = hashing.block_spans(found.st_size, hashing.BLOCK_BYTES)
            hashes += [partial(hashing.hash_span, algorithm, opened.number, *span) for span in spans]
            flushes.append(partial(_flush, opened.number))
            sizes.append(found.st_size)
            counts.append(len(spans))
        try:
            digests = hashing.run_all([*flushes, *hashes])[len(flushes) :]
        except EOFError as error:
            raise Unusable(f"a file shrank while it was saved: {error}") from error
    entries = {}
    at = 0
    for path, size, count in zip(paths, sizes, counts, strict=True):
        entries[path] = FileEntry(path, size, hashing.join_blocks(algorithm, digests[at : at + count]))
        at += count
    return entries


def _remove(folder: Path) -> None:
    """What stays is removed with the next leftovers."""
    with contextlib.suppress(OSError):
        remove_tree(folder)


def _flush(descriptor: int) -> bytes:
    os.fsync(descriptor)
    return b""


def _write_durably(path: Path, content: bytes, how: int = os.O_TRUNC) -> None:
    flags = os.O_WRONLY | os.O_CREAT | how | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    try:
        write_all(descriptor, memoryview(content), 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def lock_descriptor(descriptor: int, *, wait: bool) -> bool:
    """Take the exclusive lock; ``False`` when someone else holds it and ``wait`` is false."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            if not wait and isinstance(error, BlockingIOError):
                return False
            raise
    return True


def is_unlocked(path: Path) -> bool:
    """Whether nobody holds the lock of a file or folder; ``False`` when that cannot be told."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _entries(root: Path) -> list[Path]:
    try:
        return sorted(root.iterdir())
    except FileNotFoundError:
        return []
