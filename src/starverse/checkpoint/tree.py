"""What a folder holds, and copying it while hashing; no symbolic link is ever followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from starverse.checkpoint import hashing
from starverse.checkpoint.beneath import open_beneath
from starverse.checkpoint.errors import Unusable
from starverse.checkpoint.manifest import LinkEntry, is_safe_target

_FILES_BATCH = 128


@dataclass(frozen=True, slots=True)
class Mark:
    """What changes when a file is written to or replaced."""

    size: int
    modified_ns: int
    changed_ns: int
    inode: int
    device: int

    @classmethod
    def of(cls, found: os.stat_result) -> Mark:
        """The mark of a file from its status."""
        return cls(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev)


@dataclass(frozen=True, slots=True)
class Tree:
    """What a folder holds, paths relative to it and sorted; two are equal if nothing changed between.

    ``folders`` are the empty ones, ``skipped`` what cannot be in a checkpoint.
    """

    files: Mapping[str, Mark]
    links: tuple[LinkEntry, ...] = ()
    folders: tuple[str, ...] = ()
    all_folders: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to copy."""
        return not self.files and not self.links


def scan(base: Path, below: str = "", *, skip: bool = False) -> Tree:
    """What the folder ``below`` in ``base`` holds (``""``: ``base`` itself).

    Links that lead out of it, sockets, pipes and devices are skipped when ``skip``, else
    :class:`Unusable`. Raises ``OSError``.
    """
    files: dict[str, Mark] = {}
    links: list[LinkEntry] = []
    folders: list[str] = []
    empty: list[str] = []
    skipped: list[str] = []
    waiting = [""]
    while waiting:
        here = waiting.pop()
        count = 0
        with (
            open_beneath(base, _join(below, here) or ".", os.O_RDONLY | os.O_DIRECTORY) as opened,
            os.scandir(opened.number) as entries,
        ):
            for entry in entries:
                count += 1
                path = _join(here, entry.name)
                found = entry.stat(follow_symlinks=False)
                if stat.S_ISREG(found.st_mode):
                    files[path] = Mark.of(found)
                elif stat.S_ISDIR(found.st_mode):
                    folders.append(path)
                    waiting.append(path)
                elif (link := _link(path, entry.name, opened.number, found)) is not None:
                    links.append(link)
                else:
                    skipped.append(path)
        if here and not count:
            empty.append(here)
    if skipped and not skip:
        raise Unusable(
            f"{min(skipped)} cannot be in a checkpoint: only files, folders and relative links inside it can"
        )
    links.sort(key=lambda link: link.path)
    return Tree(
        dict(sorted(files.items())),
        tuple(links),
        tuple(sorted(empty)),
        tuple(sorted(folders)),
        tuple(sorted(skipped)),
    )


def copy_files(source: Path, target: Path, sizes: Mapping[str, int], how: CopyRules) -> dict[str, str]:
    """Copy regular files (path -> bytes to copy) from ``source`` to ``target``; returns their hex hashes.

    The folders have to be there already and the files not. Permissions and times are kept. Raises
    :class:`SourceChanged` when a file cannot be read as announced, ``OSError`` when writing fails.
    """
    names = list(sizes)
    hashes: dict[str, str] = {}
    for start in range(0, len(names), _FILES_BATCH):
        hashes.update(
            _copy_batch(
                source, target, {name: sizes[name] for name in names[start : start + _FILES_BATCH]}, how
            )
        )
    return hashes


@dataclass(frozen=True, slots=True)
class CopyRules:
    """How to copy: hash algorithm and block size, prefixes below source and target, whether to flush."""

    algorithm: str
    block_bytes: int = hashing.BLOCK_BYTES
    source_prefix: str = ""
    target_prefix: str = ""
    flush: bool = True


class SourceChanged(Exception):
    """A file changed or vanished while it was copied; the message names it."""


def make_folders(target: Path, tree_folders: Sequence[str]) -> None:
    """Make folders below ``target``, parents first."""
    for folder in sorted(tree_folders):
        (target / folder).mkdir(exist_ok=True)


def _copy_batch(source: Path, target: Path, sizes: Mapping[str, int], how: CopyRules) -> dict[str, str]:
    with ExitStack() as stack:
        tasks: list[Callable[[], bytes]] = []
        counts: list[int] = []
        closes: list[Callable[[], None]] = []
        for path, size in sizes.items():
            try:
                reading = stack.enter_context(open_beneath(source, _join(how.source_prefix, path)))
                found = os.fstat(reading.number)
            except OSError as error:
                raise SourceChanged(f"{path} cannot be read: {error.strerror}") from error
            if not stat.S_ISREG(found.st_mode) or found.st_size != size:
                raise SourceChanged(f"{path} is not the file it was")
            writing = stack.enter_context(
                open_beneath(target, _join(how.target_prefix, path), os.O_RDWR | os.O_CREAT | os.O_EXCL)
            )
            spans = hashing.block_spans(size, how.block_bytes)
            tasks += [
                partial(_copy_span, how.algorithm, path, (reading.number, writing.number), *span)
                for span in spans
            ]
            counts.append(len(spans))
            closes.append(partial(_finish, writing.number, found, flush=how.flush))
        digests = hashing.run_all(tasks)
        hashing.run_all(closes)
    hashes = {}
    at = 0
    for path, count in zip(sizes, counts, strict=True):
        hashes[path] = hashing.join_blocks(how.algorithm, digests[at : at + count])
        at += count
    return hashes


def _copy_span(algorithm: str, path: str, descriptors: tuple[int, int], start: int, end: int) -> bytes:
    content = memoryview(bytearray(end - start))
    try:
        digest = hashing.hash_span(algorithm, descriptors[0], start, end, content)
    except (OSError, EOFError) as error:
        raise SourceChanged(f"{path} changed while it was read: {error}") from error
    write_all(descriptors[1], content, start)
    return digest


def _finish(descriptor: int, found: os.stat_result, *, flush: bool) -> None:
    os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & 0o777)
    os.utime(descriptor, ns=(found.st_atime_ns, found.st_mtime_ns))
    if flush:
        os.fsync(descriptor)


def write_all(descriptor: int, content: memoryview, at: int) -> None:
    """Write all of ``content`` at the byte ``at``; the system may take it in parts."""
    done = 0
    while done < len(content):
        done += os.pwrite(descriptor, content[done:], at + done)


def _link(path: str, name: str, folder: int, found: os.stat_result) -> LinkEntry | None:
    if not stat.S_ISLNK(found.st_mode):
        return None
    target = os.readlink(name, dir_fd=folder)
    return LinkEntry(path, target) if is_safe_target(path, target) else None


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder and name else folder or name
