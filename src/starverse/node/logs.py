"""The log of an attempt, and its copy in the workspace that ``--output`` and ``--error`` ask for.

The script writes ``logs/ATTEMPT.out`` (and ``.err`` where ``--error`` names another file) itself,
append-only, so its last line is there whatever was killed. The copy is made by position: byte N of the
log is byte BASE + N of the output file, so copying again changes nothing, and the engine can finish
what a killed launcher left.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from starverse.domain.workloads.launch import LaunchSpec
from starverse.node.disk_reserve import room_bytes
from starverse.node.folder import AllocationFolder, write_atomically

_CHUNK = 1 << 20


class OutputRefused(OSError):
    """``--output`` or ``--error`` names a place that is not the workload's; the log itself is kept."""


@dataclass(frozen=True, slots=True)
class Copy:
    """One log and its copy. ``base``: how long the output file was before this attempt."""

    log: str
    host_folder: str
    path: str
    base: int


def log_paths(spec: LaunchSpec) -> tuple[Path, Path]:
    """Where stdout and stderr of the attempt go; the same file unless ``--error`` names another."""
    output = Path(spec.logs) / f"{spec.attempt}.out"
    apart = spec.error is not None and spec.error != spec.output
    return output, Path(spec.logs) / f"{spec.attempt}.err" if apart else output


def open_log(path: Path) -> int:
    """Open for appending and for punching holes.

    Mode 0400: a script that opens ``/dev/stdout`` by name would truncate its own log; so it is refused
    instead (``>&2`` and ``>&1`` work).
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o400)
    except PermissionError:  # an ordinary user's file of an earlier launcher that never claimed
        path.chmod(0o600)
        handle = os.open(path, flags)
        path.chmod(0o400)
        return handle


def plan_copies(spec: LaunchSpec, folder: AllocationFolder) -> list[str]:
    """Create the output files, note where the copies begin (``outputs.json``); answers what is refused."""
    copies: list[Copy] = []
    refused: list[str] = []
    output, error = log_paths(spec)
    pairs = [("output", spec.output, output)]
    if error != output:
        pairs.append(("error", spec.error or "", error))
    for option, name, log in pairs:
        if not name:  # /dev/null: nothing but the log
            continue
        try:
            host_folder, path = place_of(spec, name)
            handle = open_beneath(host_folder, path, owner=spec.unix_uid)
            try:
                if spec.open_mode == "truncate":
                    os.ftruncate(handle, 0)
                copies.append(Copy(str(log), host_folder, path, os.fstat(handle).st_size))
            finally:
                os.close(handle)
        except OSError as refusal:
            text = refusal.strerror or str(refusal)
            refused.append(f"--{option}={name}: {text}; the log itself is kept")
    records = [(copy.log, copy.host_folder, copy.path, copy.base) for copy in copies]
    write_atomically(folder / "outputs.json", json.dumps(records))
    return refused


def place_of(spec: LaunchSpec, name: str) -> tuple[str, str]:
    """The host folder that holds an output file, and the path in it; raises :class:`OutputRefused`.

    ``name`` is relative to ``/workspace``, or absolute as the workload sees it.
    """
    inside = PurePosixPath("/workspace", name)
    roots = [("/workspace", spec.workspace)]
    roots += [(mount.target, mount.source) for mount in spec.mounts if not mount.read_only]
    if ".." in inside.parts:
        raise OutputRefused(errno.EINVAL, "a path with .. is not followed")
    for target, source in roots:
        if inside.is_relative_to(target) and inside != PurePosixPath(target):
            return source, str(inside.relative_to(target))
    raise OutputRefused(errno.EINVAL, "is outside of /workspace and of the attached disks")


def open_beneath(folder: str, path: str, *, owner: int | None, create: bool = True) -> int:
    """Open a regular file below ``folder`` for writing without following any link, making it if need be.

    ``owner`` is who new folders and files belong to (``None``: oneself), and whose a file that is there
    must be.
    """
    parts = PurePosixPath(path).parts
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            try:
                os.mkdir(part, 0o755, dir_fd=here)
            except FileExistsError:
                pass
            else:
                if owner is not None:
                    os.chown(part, owner, owner, dir_fd=here, follow_symlinks=False)
            below = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
            os.close(here)
            here = below
        return _open_regular(parts[-1], here, owner, create)
    finally:
        os.close(here)


def _open_regular(name: str, folder: int, owner: int | None, create: bool) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        if not create:
            raise
        handle = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder)
        if owner is not None:
            os.fchown(handle, owner, owner)
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode) or facts.st_uid != (os.geteuid() if owner is None else owner):
        os.close(handle)
        raise OutputRefused(errno.EPERM, "is not a regular file of this team")
    return handle


@dataclass(frozen=True, slots=True)
class Paused:
    """A copy that waits at byte ``at`` of its log since the disk is down to its reserve."""

    path: str
    at: int


class OutputCopier:
    """Copies what the logs have grown by. Problems with the copy never touch the log.

    Copying pauses where the disk of the output file is down to ``reserve_bytes``, and goes on by itself.
    What is a hole in the log becomes one in the copy.
    """

    def __init__(self, folder: AllocationFolder, owner: int | None, reserve_bytes: int) -> None:
        try:
            records = json.loads((folder / "outputs.json").read_text())
        except (FileNotFoundError, ValueError):
            records = []
        self._copies = [Copy(*record) for record in records]
        self._owner = owner
        self._reserve_bytes = reserve_bytes
        self._done: dict[str, int] = {}
        self._paused: dict[str, Paused] = {}

    @property
    def paused(self) -> tuple[Paused, ...]:
        """The copies that wait for room on their disk."""
        return tuple(self._paused.values())

    def step(self, bytes_max: int = 4 * _CHUNK) -> bool:
        """Copy at most ``bytes_max`` of each log; answers whether more is waiting that there is room for."""
        return any([self._advance(copy, bytes_max) for copy in self._copies])  # noqa: C419  (all must run)

    def finish(self, breathe: Callable[[], None] = lambda: None) -> None:
        """Copy all that is there and finds room; ``breathe`` is called in between."""
        while self.step(64 * _CHUNK):
            breathe()

    def _advance(self, copy: Copy, bytes_max: int) -> bool:
        try:
            log = os.open(copy.log, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            end = os.fstat(log).st_size
            if copy.log in self._done and self._done[copy.log] >= end:
                return False
            target = open_beneath(copy.host_folder, copy.path, owner=self._owner)
            try:
                return self._copy(copy, (log, target), end, bytes_max)
            finally:
                os.close(target)
        except OSError:
            return False
        finally:
            os.close(log)

    def _copy(self, copy: Copy, handles: tuple[int, int], end: int, bytes_max: int) -> bool:
        log, target = handles
        there = max(0, os.fstat(target).st_size - copy.base)
        offset = self._done.get(copy.log, min(there, end))
        left = bytes_max
        while offset < end and left > 0:
            begin, stop = _next_data(log, offset, end)
            if begin > offset:
                _lengthen(target, copy.base + begin)
                offset = self._done[copy.log] = begin
                continue
            count = min(_CHUNK, stop - offset, left, room_bytes(target, self._reserve_bytes))
            if count <= 0:
                self._paused[copy.log] = Paused(copy.path, offset)
                return False
            part = os.pread(log, count, offset)
            if not part:
                break
            offset += os.pwrite(target, part, copy.base + offset)
            left -= len(part)
            self._done[copy.log] = offset
        self._paused.pop(copy.log, None)
        return offset < end


def _next_data(log: int, offset: int, end: int) -> tuple[int, int]:
    """The next span of bytes that are really there; begins and ends at ``end`` where only a hole follows."""
    try:
        begin = min(end, os.lseek(log, offset, os.SEEK_DATA))
        return begin, min(end, os.lseek(log, begin, os.SEEK_HOLE)) if begin < end else end
    except OSError as error:
        if error.errno == errno.ENXIO:
            return end, end
        raise


def _lengthen(target: int, size: int) -> None:
    if os.fstat(target).st_size < size:
        os.ftruncate(target, size)


def finish_outputs(folder: str | Path) -> None:
    """Complete the copies of an ended allocation, as its launcher would have; harmless to repeat."""
    place = AllocationFolder(folder)
    spec = place.read_spec()
    OutputCopier(place, spec.unix_uid, spec.disk_reserve_bytes).finish()
