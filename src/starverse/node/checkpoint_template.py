"""Checkpoints for scripts that do not use the library: copies of one named folder of the workspace.

The folder is copied every 30 minutes, on notice and after the process has ended, and published like any
other checkpoint, its content below ``folder/``. A copy is void when anything in the folder changed while
it was made; the next one is tried when it is due. Before a start the newest verified copy replaces the
folder. No symbolic link is followed, so that a script cannot have files outside of its folder copied.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from starverse.checkpoint import hashing, loads
from starverse.checkpoint.beneath import open_beneath
from starverse.checkpoint.errors import Unusable, save_failure
from starverse.checkpoint.manifest import (
    FileEntry,
    Manifest,
    ManifestInvalid,
    Published,
    published,
    read_manifest,
    safe_path,
    verify,
)
from starverse.checkpoint.publish import Origin, Writing
from starverse.checkpoint.removing import remove_tree
from starverse.checkpoint.retention import prune
from starverse.checkpoint.tree import CopyRules, SourceChanged, Tree, copy_files, make_folders, scan
from starverse.node.disk_reserve import room_bytes

CONTENT = "folder"
"""Where the copied folder lies inside a checkpoint."""

_RECENT_NS = 2_000_000_000


class Rehash(enum.Enum):
    """Which files are read a second time after copying, to see writes that their times do not show.

    ``RECENT``: those written to within two seconds before the copy began, since file times are coarse;
    ``ALL``: also for writers through memory maps, whose times may lag; ``NEVER``: the process has ended.
    """

    RECENT = "recent"
    ALL = "all"
    NEVER = "never"


class CopyOutcome(enum.Enum):
    """What became of a copy."""

    PUBLISHED = "published"
    UNCHANGED = "unchanged"
    VOIDED = "voided"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class CopyResult:
    """``checkpoint`` is the one published, or the equal one that was there already; ``None`` otherwise.

    ``skipped`` lists what cannot be in a checkpoint (sockets, pipes, links that lead out).
    """

    outcome: CopyOutcome
    checkpoint: Published | None = None
    reason: str = ""
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Template:
    """The ``folder`` (relative to ``workspace``) to copy, the checkpoint folder ``root``, who publishes.

    A copy that would leave less than ``reserve_bytes`` of its disk free is not begun.
    """

    workspace: Path
    folder: str
    root: Path
    origin: Origin = field(default_factory=Origin)
    keep_last: int = 3
    reserve_bytes: int = 0

    def __post_init__(self) -> None:
        try:
            safe_path(self.folder)
        except ManifestInvalid as error:
            raise Unusable(
                f"--checkpoint {self.folder!r}: expected a folder inside the workspace, such as state"
            ) from error


def publish_copy(template: Template, rehash: Rehash = Rehash.RECENT) -> CopyResult:
    """Copy the folder and publish the copy as the next step.

    An outcome that a script can cause is in the result. Raises :class:`DiskFull`, :class:`SaveFailed` and
    :class:`Fenced`; the previous checkpoint is untouched then as well.
    """
    try:
        before = scan(template.workspace, template.folder, skip=True)
    except OSError as error:
        if not os.path.lexists(template.workspace / template.folder):
            return CopyResult(CopyOutcome.EMPTY, reason=f"there is no folder {template.folder}")
        return CopyResult(CopyOutcome.VOIDED, reason=f"{template.folder} cannot be read: {error.strerror}")
    if before.is_empty:
        return CopyResult(CopyOutcome.EMPTY, reason=f"{template.folder} is empty", skipped=before.skipped)
    step = max((item.step for item in published(template.root)), default=0) + 1
    with Writing(template.root, step, template.origin) as writing:
        try:
            _require_room(writing.folder, sum(mark.size for mark in before.files.values()), template)
            entries = copy_as_it_was(template, before, writing.folder, rehash)
        except SourceChanged as change:
            return CopyResult(CopyOutcome.VOIDED, reason=f"void: {change}", skipped=before.skipped)
        except OSError as error:
            raise save_failure(error) from error
        same = _equal_one(template.root, entries, before)
        if same is not None:
            return CopyResult(CopyOutcome.UNCHANGED, same, "the folder is as it was", before.skipped)
        done = writing.publish(entries)
    with contextlib.suppress(OSError):
        prune(template.root, template.keep_last, trusted={done.path.name})
    return CopyResult(CopyOutcome.PUBLISHED, done, skipped=before.skipped)


def restore_copy(template: Template) -> Published | None:
    """Put the newest verified copy in the place of the folder; ``None`` (and nothing done) without one.

    Every byte is verified while it is copied; a copy that does not match falls back to the one before.
    Killed in between, the next call does it again. Raises :class:`Unusable` where the folder's parents
    are not plain folders, ``OSError`` for a full disk.
    """
    place = template.workspace / template.folder
    for item in loads.candidates(template.root):
        try:
            manifest = read_manifest(item.path)
            aside = _restored_aside(template, item.path, manifest)
        except (ManifestInvalid, SourceChanged):
            continue
        old = place.with_name(f".{place.name}.replaced")
        remove_tree(old)
        if place.is_symlink() or place.exists():
            place.rename(old)
        aside.rename(place)
        remove_tree(old)
        return item
    return None


def _require_room(place: Path, size: int, template: Template) -> None:
    if size > max(0, room_bytes(place, template.reserve_bytes)):
        reason = f"a copy of {size} bytes would use up the disk's reserve"
        raise OSError(errno.ENOSPC, reason)


def copy_as_it_was(template: Template, before: Tree, folder: Path, rehash: Rehash) -> dict[str, FileEntry]:
    """Copy what ``before`` lists into ``folder``; raises :class:`SourceChanged` when the folder changed."""
    content = folder / CONTENT
    content.mkdir()
    begun_ns = content.stat().st_ctime_ns  # by the clock that stamps files
    make_folders(content, before.all_folders)
    rules = CopyRules(hashing.default_algorithm(), source_prefix=template.folder)
    sizes = {path: mark.size for path, mark in before.files.items()}
    hashes = copy_files(template.workspace, content, sizes, rules)
    for link in before.links:
        (content / link.path).symlink_to(link.target)
    try:
        after = scan(template.workspace, template.folder, skip=True)
    except OSError as error:
        raise SourceChanged(f"the folder cannot be read any more: {error.strerror}") from error
    if after != before:
        raise SourceChanged(_difference(before, after))
    for path, mark in before.files.items():
        recent = max(mark.modified_ns, mark.changed_ns) > begun_ns - _RECENT_NS
        if rehash is Rehash.ALL or (rehash is Rehash.RECENT and recent):
            _rehash(template, path, mark.size, hashes[path])
    return {
        f"{CONTENT}/{path}": FileEntry(f"{CONTENT}/{path}", size, hashes[path])
        for path, size in sizes.items()
    }


def _rehash(template: Template, path: str, size: int, expected: str) -> None:
    algorithm = hashing.default_algorithm()
    try:
        with open_beneath(template.workspace, f"{template.folder}/{path}") as opened:
            spans = hashing.block_spans(size, hashing.BLOCK_BYTES)
            digests = [hashing.hash_span(algorithm, opened.number, start, end) for start, end in spans]
    except (OSError, EOFError) as error:
        raise SourceChanged(f"{path} changed after it was copied: {error}") from error
    if hashing.join_blocks(algorithm, digests) != expected:
        raise SourceChanged(f"{path} was written to while it was copied")


def _difference(before: Tree, after: Tree) -> str:
    changed = sorted(
        path for path in {*before.files, *after.files} if before.files.get(path) != after.files.get(path)
    )
    return f"{changed[0] if changed else 'the folder'} changed while it was copied"


def _equal_one(root: Path, entries: Mapping[str, FileEntry], tree: Tree) -> Published | None:
    """The newest checkpoint, if it is verified, not given up, and holds just this."""
    found = published(root)
    if not found or found[-1].path.name in loads.given_up(root):
        return None
    try:
        manifest = read_manifest(found[-1].path)
    except ManifestInvalid:
        return None
    links = tuple((f"{CONTENT}/{link.path}", link.target) for link in tree.links)
    same = (
        manifest.files == tuple(sorted(entries.values(), key=lambda entry: entry.path))
        and tuple((link.path, link.target) for link in manifest.links) == links
        and manifest.folders == tuple(f"{CONTENT}/{folder}" for folder in tree.folders)
    )
    return found[-1] if same and verify(found[-1].path).verified else None


def _restored_aside(template: Template, checkpoint: Path, manifest: Manifest) -> Path:
    """The verified content of ``checkpoint`` in a new folder beside its place."""
    names = [entry.path for entry in manifest.files] + [link.path for link in manifest.links]
    if not all(path.startswith(f"{CONTENT}/") for path in (*names, *manifest.folders)):
        raise SourceChanged(f"{checkpoint.name} was not made by the template")
    aside = _plain_parent(template) / f".{Path(template.folder).name}.restored"
    remove_tree(aside)
    _require_room(aside.parent, sum(entry.size for entry in manifest.files), template)
    try:
        _fill(aside, checkpoint, manifest)
    except BaseException:
        remove_tree(aside)
        raise
    return aside


def _fill(aside: Path, checkpoint: Path, manifest: Manifest) -> None:
    inside = f"{CONTENT}/"
    aside.mkdir()
    paths = [entry.path.removeprefix(inside) for entry in manifest.files]
    links = [(link.path.removeprefix(inside), link.target) for link in manifest.links]
    folders = {folder.removeprefix(inside) for folder in manifest.folders}
    for path in [*paths, *(path for path, _ in links)]:
        folders.update(str(parent) for parent in Path(path).parents if str(parent) != ".")
    for folder in sorted(folders):
        (aside / folder).mkdir(parents=True, exist_ok=True)
    rules = CopyRules(manifest.algorithm, manifest.block_bytes, source_prefix=CONTENT, flush=False)
    sizes = {path: entry.size for path, entry in zip(paths, manifest.files, strict=True)}
    hashes = copy_files(checkpoint, aside, sizes, rules)
    for path, entry in zip(paths, manifest.files, strict=True):
        if hashes[path] != entry.hash:
            raise SourceChanged(f"{path} does not match the manifest")
    for path, target in links:
        (aside / path).symlink_to(target)


def _plain_parent(template: Template) -> Path:
    """The folder that holds the named one, made if missing; no part of it may be a link."""
    parent = template.workspace
    for part in template.folder.split("/")[:-1]:
        parent = parent / part
        if parent.is_symlink() or (parent.exists() and not parent.is_dir()):
            raise Unusable(f"--checkpoint {template.folder!r}: {parent.name} is not a plain folder")
        parent.mkdir(exist_ok=True)
    return parent
