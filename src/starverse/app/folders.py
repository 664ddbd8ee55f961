"""Submit folders: stored once per content and team, unpacked into workspaces.

A folder is a gzipped tar whose id is the SHA-256 of its bytes. It is received into a file aside, hashed on
the way, read whole with distrust, and only then renamed to its place and recorded.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from starverse.app.archives import (
    DEPTH_MAX,
    ENTRIES_MAX,
    PATH_BYTES_MAX,
    UnpackLimits,
    check_archive,
    give_to,
    unpack_archive,
)
from starverse.app.disk_space import require_space
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.checkpoint.removing import remove_tree
from starverse.db import folders
from starverse.db.folders import Folder, Workspace
from starverse.domain.errors import FieldFault, Invalid, NotFound, TooLarge, Unavailable
from starverse.domain.ids import FolderId

UNPACKED_TIMES = 10
"""A folder that was taken in is unpacked up to so many times the present limit: it may have been lowered."""
PACKED_BYTES_MORE = 16 * 1024**2
"""So much larger than its files an archive may be: names, padding, what does not compress."""

_ID = re.compile(r"sha256:([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class FolderView:
    """``existed``: this very content was there before."""

    id: FolderId
    bytes: int
    existed: bool


@dataclass(frozen=True, slots=True)
class FolderLimits:
    """What a submit folder may be; ``bytes_max`` counts its files as they are before packing."""

    bytes_max: int
    entries_max: int = ENTRIES_MAX
    levels_max: int = DEPTH_MAX
    path_bytes_max: int = PATH_BYTES_MAX


class Upload:
    """A folder on its way in. Call :meth:`finish`, or :meth:`abandon` when its sender is gone."""

    def __init__(self, platform: Platform, identity: Identity, folder_id: str, hex_digest: str) -> None:
        self._platform = platform
        self._identity = identity
        self._folder_id = folder_id
        self._hex_digest = hex_digest
        self._place = _place(platform, identity.team_id, hex_digest)
        self._place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._aside = self._place.with_name(f".incoming-{secrets.token_hex(8)}")
        self._file = self._aside.open("xb")
        self._hash = hashlib.sha256()
        self._bytes = 0

    def write(self, piece: bytes) -> None:
        """Take in more; raises :class:`TooLarge` over the cap."""
        self._bytes += len(piece)
        cap = self._platform.settings.folder_bytes_max
        if self._bytes > cap + cap // 64 + PACKED_BYTES_MORE:
            raise _too_large(cap)
        require_space(self._platform, len(piece))
        self._hash.update(piece)
        self._file.write(piece)

    def finish(self) -> FolderView:
        """Check digest and content, then keep it."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if self._hash.hexdigest() != self._hex_digest:
            got = f"sha256:{self._hash.hexdigest()}"
            raise Invalid(faults=[FieldFault("folder_id", self._folder_id, f"{got}, the digest of the body")])
        with self._aside.open("rb") as archive:
            cap = self._platform.settings.folder_bytes_max
            try:
                check_archive(archive, UnpackLimits(cap))
            except TooLarge as error:
                raise _too_large(cap) from error
        with self._platform.database.write() as connection:
            folder = Folder(
                FolderId(self._folder_id),
                self._identity.team_id,
                self._bytes,
                self._platform.clock.now(),
            )
            existed = folders.keep(connection, folder)
            self._aside.rename(self._place)  # under the record's lock: retention never takes this one away
        return FolderView(folder.id, self._bytes, existed)

    def abandon(self) -> None:
        """Drop what came; harmless after :meth:`finish`."""
        self._file.close()
        self._aside.unlink(missing_ok=True)


def limits_of(platform: Platform) -> FolderLimits:
    """The limits that hold now; the same for everybody."""
    return FolderLimits(platform.settings.folder_bytes_max)


def begin_upload(platform: Platform, identity: Identity, folder_id: str) -> Upload:
    """Start to receive a folder."""
    hex_digest = _hex_digest(folder_id)
    require_space(platform, platform.settings.folder_bytes_max)
    return Upload(platform, identity, folder_id, hex_digest)


def find_folder(platform: Platform, identity: Identity, folder_id: str) -> FolderView:
    """Raises :class:`NotFound` unless the team's store has this content, in the record and on disk."""
    hex_digest = _hex_digest(folder_id)
    with platform.database.read() as connection:
        found = folders.find(connection, identity.team_id, folder_id)
    if found is None or not _place(platform, identity.team_id, hex_digest).is_file():
        raise NotFound(f"There is no folder {folder_id} in team {identity.team_name}.")
    return FolderView(found.id, found.bytes, existed=True)


def unpack_workspace(platform: Platform, workspace: Workspace) -> None:
    """Make a workspace from its folder (or empty), whole or not at all; a repeat changes nothing."""
    target = platform.paths.workspace(workspace.id)
    if target.is_dir():
        return
    owner = workspace.unix_uid if os.geteuid() == 0 else None
    target.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    aside = target.with_name(f".new-{workspace.id}-{secrets.token_hex(4)}")
    aside.mkdir(mode=0o700)
    try:
        if workspace.folder_id is not None:
            _unpack(platform, workspace.team_id, workspace.folder_id, aside, owner)
        elif owner is not None:
            give_to(aside, owner)
        _rename_new(aside, target)
    finally:
        with contextlib.suppress(OSError):
            remove_tree(aside)


def make_home(home: Path, unix_uid: int) -> None:
    """An empty folder that an instance has as ``/root``; one that is there stays."""
    home.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    home.parent.parent.chmod(0o711)
    if home.is_dir():
        return
    aside = home.with_name(f".new-home-{secrets.token_hex(4)}")
    aside.mkdir(mode=0o700)
    if os.geteuid() == 0:
        give_to(aside, unix_uid)
    _rename_new(aside, home)


def remove_unused(platform: Platform, before: datetime, limit: int) -> int:
    """Delete packed folders uploaded before then that no workspace needs any more; how many."""
    with platform.database.read() as connection:
        unused = folders.unused_since(connection, before, limit)
    removed = 0
    for folder in unused:
        place = _place(platform, folder.team_id, _hex_digest(folder.id))
        aside = place.with_name(f".old-{secrets.token_hex(8)}")
        with platform.database.write() as connection:
            if not folders.forget_unused(connection, folder, before):
                continue  # uploaded again, or used, a moment ago
            with contextlib.suppress(FileNotFoundError):
                place.rename(aside)
        aside.unlink(missing_ok=True)
        removed += 1
    return removed


def _unpack_limits(platform: Platform) -> UnpackLimits:
    """For what was taken in once, perhaps while more was allowed."""
    bytes_max = UNPACKED_TIMES * platform.settings.folder_bytes_max
    return UnpackLimits(bytes_max, require_room=lambda size: require_space(platform, size))


def _unpack(platform: Platform, team_id: str, folder_id: str, aside: Path, owner: int | None) -> None:
    place = _place(platform, team_id, _hex_digest(folder_id))
    try:
        with place.open("rb") as archive:
            unpack_archive(archive, aside, _unpack_limits(platform), owner)
    except FileNotFoundError as error:
        raise NotFound(f"The packed folder {folder_id} is gone; submit again.") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Unavailable("The platform's disk is full; nothing was started.") from error
        raise


def _too_large(cap: int) -> TooLarge:
    return TooLarge(
        f"The folder is over {cap // 1024**2} MiB, counted as its files are before packing, or has more than "
        f"{ENTRIES_MAX} entries.",
        hint="Leave files out with .starverseignore, or use a dataset.",
    )


def _rename_new(aside: Path, target: Path) -> None:
    try:
        aside.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise  # else: another task of the array was first


def _hex_digest(folder_id: str) -> str:
    found = _ID.fullmatch(folder_id)
    if found is None:
        raise Invalid(faults=[FieldFault("folder_id", folder_id[:80], "sha256: and 64 hex digits")])
    return found[1]


def _place(platform: Platform, team_id: str, hex_digest: str) -> Path:
    return platform.paths.folders / team_id / f"{hex_digest}.tar.gz"
