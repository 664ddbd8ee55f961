"""``starverse admin restore``: an installation as a backup has it, all of it or nothing.

Everything is made ready beside what is there: the database filled, compared and checked, the trees unpacked.
Then a note ``restoring.json`` is left, the trees and secrets change places by renames, and last the database
does, by one rename or one commit. Killed before the note, nothing has changed; killed after it, servers
refuse the data folder until the same command was run again, which goes on. What was there before is kept in
a folder ``before-restore-...`` of the data folder.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from starverse.app.maintenance.alone import alone_on
from starverse.app.maintenance.backup import save_before_replacing
from starverse.app.maintenance.content import Backup, fill, open_backup
from starverse.app.maintenance.manifest import BackupRefused
from starverse.app.maintenance.trees import unpack
from starverse.db import schema, servers
from starverse.db.maintenance.filling import TargetNotEmpty, filling, flush, own_like_folder
from starverse.domain.errors import Conflict

NOTE = "restoring.json"
STAGE = ".restoring"


@dataclass(frozen=True, slots=True)
class Restored:
    """``kept``: the folder with what was there before; ``None``: there was nothing. ``ledger`` as told by the
    backup: broken invariants in words."""

    backup: Backup
    revision: str
    kept: Path | None
    ledger: tuple[str, ...]


def restore(source: Path, data: Path, url: str, now: datetime, *, replace: bool) -> Restored:
    """Restore the backup at ``source`` into the data folder and the database at ``url``.

    Raises :class:`~starverse.app.maintenance.manifest.BackupRefused` for one that is not sound, ``Conflict``
    while a server runs, :class:`TargetNotEmpty` when something is there and not ``replace``.
    """
    backup = open_backup(source)
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with alone_on(data, url):
        begun = _begun(data)
        keep = begun or data / f"before-restore-{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
        in_the_way = [tree for tree in _trees(backup) if _holds_something(data / tree)]
        if in_the_way and not replace and begun is None:
            raise TargetNotEmpty(f"{data} is not empty: {', '.join(in_the_way)}")
        may_replace = replace or begun is not None
        if may_replace:
            save_before_replacing(url, data, keep, now)
        stage = _unpack(backup, data)
        try:
            change = partial(_change_places, backup, data, stage, keep)
            with filling(url, keep=keep if may_replace else None, last=change) as connection:
                broken = fill(connection, backup)
                if broken and not backup.manifest.ledger:
                    raise BackupRefused(f"the ledger is not sound once restored: {'; '.join(broken[:3])}")
                servers.forget_all(connection)
                revision = str(schema.revision_of(connection))
        finally:
            shutil.rmtree(stage, ignore_errors=True)
        (data / NOTE).unlink()
        flush(data)
    return Restored(backup, revision, keep if keep.exists() else None, broken)


def require_whole(data: Path) -> None:
    """Raises ``Conflict`` for a data folder whose restoring was begun and not finished."""
    if (data / NOTE).exists():
        raise Conflict(
            f"a restore into {data} was begun and not finished",
            hint="run `starverse admin restore` again with the same backup; it goes on",
        )


def _begun(data: Path) -> Path | None:
    """Where a restore that was killed keeps what was there before."""
    try:
        return data / str(json.loads((data / NOTE).read_text("utf-8"))["keep"])
    except FileNotFoundError:
        return None


def _leave_note(data: Path, keep: Path) -> None:
    aside = data / f".{NOTE}"
    aside.write_text(json.dumps({"keep": keep.name}) + "\n", "utf-8")
    flush(aside)
    aside.rename(data / NOTE)
    flush(data)


def _trees(backup: Backup) -> list[str]:
    """The trees in the backup, by name."""
    found = [Path(name) for name in backup.manifest.files]
    return [path.stem for path in found if path.parts[0] == "trees"]


def _secrets(backup: Backup) -> list[Path]:
    """The secrets in the backup, by their path in the data folder."""
    found = [Path(name) for name in backup.manifest.files]
    return [path.relative_to("secrets") for path in found if path.parts[0] == "secrets"]


def _holds_something(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _unpack(backup: Backup, data: Path) -> Path:
    stage = data / STAGE
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir(mode=0o700)
    for tree in _trees(backup):
        unpack(backup.place / "trees" / f"{tree}.tar", stage)
    return stage


def _change_places(backup: Backup, data: Path, stage: Path, keep: Path) -> None:
    _leave_note(data, keep)
    for tree in _trees(backup):
        _retire(data / tree, keep / tree)
        (stage / tree).rename(data / tree)
    for name in _secrets(backup):
        _retire(data / name, keep / name)
        _place_secret(backup.place / "secrets" / name, data, name)
    flush(data)


def _retire(there: Path, kept: Path) -> None:
    """Keep what was there before; where it is kept already, what is there is of a restore that was killed."""
    if not there.exists():
        return
    if there.is_dir() and (kept.exists() or not any(there.iterdir())):
        shutil.rmtree(there)
        return
    if kept.exists():
        there.unlink()
        return
    kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    there.rename(kept)
    flush(kept.parent)


def _place_secret(source: Path, data: Path, name: Path) -> None:
    target = data / name
    if not target.parent.exists():
        target.parent.mkdir(mode=0o700, parents=True)
        own_like_folder(target.parent, data)
    aside = target.with_name(f".{target.name}.restoring")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(source.read_bytes())
        out.flush()
        os.fsync(out.fileno())
    own_like_folder(aside, data)
    aside.rename(target)
    flush(target.parent)
