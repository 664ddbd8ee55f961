"""What a backup says about itself, and what is wrong with one that cannot be used."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starverse.db.maintenance.rows import TableDigest
from starverse.domain.errors import StarverseError

FORMAT = "starverse-backup"
FORMAT_VERSION = 1
MANIFEST_NAME = "manifest.json"


class BackupRefused(StarverseError):
    """This is not a whole backup that this version can read; take another one."""

    code = "backup_refused"


@dataclass(frozen=True, slots=True)
class FileDigest:
    """The length and the SHA-256 of a file of the backup."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """``files`` by their path in the backup, ``tables`` by name; ``ledger``: broken invariants, in words.

    ``contains`` and ``leaves_out`` name the database, the secrets and the trees of the data folder; one that
    was wanted and is not there yet is in neither.
    ``unread``: what of the trees could not be read.
    """

    made_at: str
    starverse: str
    revision: str
    database: str
    tables: Mapping[str, TableDigest]
    files: Mapping[str, FileDigest]
    contains: tuple[str, ...]
    leaves_out: tuple[str, ...]
    ledger: tuple[str, ...]
    unread: tuple[str, ...]

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables.values())

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())

    def to_json(self) -> str:
        """The manifest's text, with a digest over itself."""
        document: dict[str, Any] = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "made_at": self.made_at,
            "starverse": self.starverse,
            "revision": self.revision,
            "database": self.database,
            "contains": list(self.contains),
            "leaves_out": list(self.leaves_out),
            "ledger": list(self.ledger),
            "unread": list(self.unread),
            "tables": {name: {"rows": t.rows, "sha256": t.sha256} for name, t in self.tables.items()},
            "files": {name: {"bytes": f.bytes, "sha256": f.sha256} for name, f in self.files.items()},
        }
        return json.dumps({**document, "digest": _digest(document)}, ensure_ascii=False, indent=1) + "\n"


def read_manifest(text: str) -> Manifest:
    """Raises :class:`BackupRefused` for what is no manifest, is damaged, or is of a later format."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise BackupRefused(f"{MANIFEST_NAME} is damaged: it is not JSON ({error})") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise BackupRefused(f"{MANIFEST_NAME} is not one of a starverse backup")
    version = document.get("format_version")
    if version != FORMAT_VERSION:
        raise BackupRefused(
            f"the backup has format {version}; this version reads format {FORMAT_VERSION}",
            hint="restore it with the version of starverse that made it, or a newer one",
        )
    digest = document.pop("digest", None)
    if digest != _digest(document):
        raise BackupRefused(f"{MANIFEST_NAME} is damaged: its digest is not that of its content")
    return Manifest(
        made_at=document["made_at"],
        starverse=document["starverse"],
        revision=document["revision"],
        database=document["database"],
        tables={name: TableDigest(t["rows"], t["sha256"]) for name, t in document["tables"].items()},
        files={name: FileDigest(f["bytes"], f["sha256"]) for name, f in document["files"].items()},
        contains=tuple(document["contains"]),
        leaves_out=tuple(document["leaves_out"]),
        ledger=tuple(document["ledger"]),
        unread=tuple(document["unread"]),
    )


def _digest(document: Mapping[str, Any]) -> str:
    text = json.dumps(document, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
