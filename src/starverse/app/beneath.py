"""Opening what workloads wrote, without ever being led out of their folder.

Every step is an ``openat`` that follows no link; links are read and walked by hand, and one that leads out
of the folder (absolute ones mean the workload's own ``/workspace``) is not followed. So a link put in place
while we walk cannot deceive us.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from starverse.app.archives import DEPTH_MAX
from starverse.domain.errors import Conflict, FieldFault, Invalid, NotFound

LINKS_MAX = 40
SEEN_AS = ("workspace",)
"""The path under which a workload sees a job's folder."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Entry:
    """``kind`` is file, folder, link or other; ``path`` is relative to the root."""

    path: str
    kind: str
    bytes: int
    modified_seconds: float


@contextmanager
def open_entry(root: Path, path: str, seen_as: tuple[str, ...] = SEEN_AS) -> Iterator[int]:
    """A descriptor of a file or folder for reading; raises :class:`NotFound`, also for what is neither.

    ``seen_as`` is the path under which workloads see the root: where their absolute links begin.
    """
    with _reached(root, path, seen_as) as (folder, name):
        try:
            descriptor = os.open(name, _READ, dir_fd=folder)
        except OSError as error:
            raise _not_had(path, error) from error
        try:
            mode = os.fstat(descriptor).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise NotFound(f"{_shown(path)} is neither a file nor a folder.")
            yield descriptor
        finally:
            os.close(descriptor)


def list_entries(folder: int, path: str) -> Iterator[Entry]:
    """What is in an open folder, by name; ``path`` is where the folder is."""
    prefix = f"{path}/" if path else ""
    for name in sorted(os.listdir(folder)):
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            continue  # gone meanwhile
        yield Entry(f"{prefix}{name}", _kind(status.st_mode), status.st_size, status.st_mtime)


@contextmanager
def new_file(root: Path, path: str, owner: int | None, aside: Path) -> Iterator[int]:
    """A descriptor to write a file's new content to; on a clean exit it replaces what was there, at once.

    Folders on the way are made; no link is followed on the way. ``owner`` gets what is made. ``aside`` is
    where the file lies until then: a name on the same file system, in a folder of the platform's own, so
    that a server that is killed leaves nothing in people's folders.
    """
    parts = clean_parts(path)
    if not parts:
        raise Invalid(faults=[FieldFault("path", path[:200], "the path of a file")])
    here = os.open(root, _FOLDER)
    try:
        for part in parts[:-1]:
            here = _step_into(here, part, path, owner)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(aside, flags, 0o600)
        try:
            yield descriptor
            os.fchmod(descriptor, 0o644)
            if owner is not None:
                os.fchown(descriptor, owner, owner)
            try:
                os.rename(aside, parts[-1], dst_dir_fd=here)
            except IsADirectoryError as error:
                raise Conflict(f"{_shown(path)} is a folder.") from error
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
    finally:
        os.close(here)


def take_out(root: Path, path: str, aside: Path, seen_as: tuple[str, ...] = SEEN_AS) -> None:
    """Take a file, a link or a folder with all in it out of a folder, at once; it lies at ``aside`` then.

    A link is taken, not what it leads to. ``aside`` is a name as of :func:`new_file`. Raises
    :class:`NotFound`.
    """
    parts = clean_parts(path)
    if not parts:
        raise Invalid(faults=[FieldFault("path", path[:200], "the path of a file or folder in it")])
    with _reached(root, "/".join(parts[:-1]), seen_as) as (above, name):
        try:
            folder = os.open(name, _FOLDER, dir_fd=above)
        except OSError as error:
            raise _not_had(path, error) from error
        try:
            os.rename(parts[-1], aside, src_dir_fd=folder)
        except OSError as error:
            raise _not_had(path, error) from error
        finally:
            os.close(folder)


def clean_parts(path: str) -> list[str]:
    """The parts of a relative path without empty ones and dots; raises :class:`Invalid` for ``..``."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts or "\0" in path or any(len(os.fsencode(part)) > 255 for part in parts):
        raise Invalid(faults=[FieldFault("path", _shown(path), "a path inside the folder, without '..'")])
    if len(parts) > DEPTH_MAX:
        expected = f"a path of at most {DEPTH_MAX} levels"
        raise Invalid(faults=[FieldFault("path", f"{_shown(path)} ({len(parts)} levels)", expected)])
    return parts


def _step_into(here: int, part: str, path: str, owner: int | None) -> int:
    try:
        os.mkdir(part, 0o755, dir_fd=here)
        if owner is not None:
            os.chown(part, owner, owner, dir_fd=here, follow_symlinks=False)
    except FileExistsError:
        pass
    try:
        below = os.open(part, _FOLDER, dir_fd=here)
    except OSError as error:
        raise Conflict(f"{part} on the way to {_shown(path)} is not a folder.") from error
    os.close(here)
    return below


@contextmanager
def _reached(root: Path, path: str, seen_as: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """The open folder that really holds ``path``, and its name in it (``.``: the root)."""
    pending = clean_parts(path)
    try:
        way = [os.open(root, _FOLDER)]
    except OSError as error:
        raise _not_had(path, error) from error
    links = 0
    try:
        while pending:
            part = pending.pop(0)
            if part == "..":
                if len(way) == 1:
                    raise _leads_out(path)
                os.close(way.pop())
                continue
            try:
                status = os.stat(part, dir_fd=way[-1], follow_symlinks=False)
            except OSError as error:
                raise _not_had(path, error) from error
            if stat.S_ISLNK(status.st_mode):
                links += 1
                pending = _after_link(way, part, path, links, seen_as) + pending
            elif pending:
                if len(way) > DEPTH_MAX:
                    raise NotFound(f"{_shown(path)} leads through more than {DEPTH_MAX} folders.")
                way.append(_descend(way[-1], part, path))
            else:
                yield way[-1], part
                return
        yield way[-1], "."
    finally:
        for descriptor in way:
            os.close(descriptor)


def _after_link(way: list[int], part: str, path: str, links: int, seen_as: tuple[str, ...]) -> list[str]:
    """The steps a link stands for; an absolute one starts again at the root."""
    if links > LINKS_MAX:
        raise NotFound(f"{_shown(path)} runs through too many links.")
    try:
        target = os.readlink(part, dir_fd=way[-1])
    except OSError as error:
        raise _not_had(path, error) from error
    steps = [step for step in target.split("/") if step not in ("", ".")]
    if target.startswith("/"):
        if tuple(steps[: len(seen_as)]) != seen_as:
            raise _leads_out(path)
        while len(way) > 1:
            os.close(way.pop())
        steps = steps[len(seen_as) :]
    return steps


def _descend(here: int, part: str, path: str) -> int:
    try:
        return os.open(part, _FOLDER, dir_fd=here)
    except OSError as error:
        raise _not_had(path, error) from error


def _kind(mode: int) -> str:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"


def _missing(path: str) -> NotFound:
    return NotFound(f"There is no {_shown(path) or 'folder'} there.")


def _not_had(path: str, error: OSError) -> NotFound | Conflict:
    return others_own(path) if isinstance(error, PermissionError) else _missing(path)


def others_own(path: str) -> Conflict:
    """What is there, and not the platform's to touch: where it runs as an ordinary user."""
    return Conflict(
        f"{_shown(path)} belongs to another user of a container image, or nobody may read it.",
        hint="Copy or remove it inside an instance on that image, where you are root.",
    )


def _leads_out(path: str) -> NotFound:
    return NotFound(f"{_shown(path)} leads out of the folder; it is not followed.")


def _shown(path: str) -> str:
    return path[:200].encode("utf-8", "replace").decode()
