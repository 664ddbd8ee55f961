"""The shelf: versions of datasets and their manifests."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, Row, Select, func, insert, select, update

from starverse.db.tables import datasets
from starverse.domain.ids import DatasetId


@dataclass(frozen=True, slots=True)
class Dataset:
    """One version. ``state``: added (not verified yet), verified, damaged (its bytes do not match)."""

    id: DatasetId
    name: str
    version: int
    state: str
    title: str
    source: str
    licence: str
    manifest_digest: str
    files: int
    bytes: int
    added_at: datetime
    verified_at: datetime | None = None
    message: str = ""


def add(connection: Connection, dataset: Dataset, manifest: str) -> None:
    """Raises ``IntegrityError`` when the name has this version."""
    connection.execute(
        insert(datasets).values(
            id=dataset.id,
            name=dataset.name,
            version=dataset.version,
            state=dataset.state,
            title=dataset.title,
            source=dataset.source,
            licence=dataset.licence,
            manifest=manifest,
            manifest_digest=dataset.manifest_digest,
            files=dataset.files,
            bytes=dataset.bytes,
            added_at=dataset.added_at,
            verified_at=dataset.verified_at,
            message=dataset.message,
        )
    )


def newest(connection: Connection) -> tuple[Dataset, ...]:
    """The newest version of each name, by name."""
    last = (
        select(datasets.c.name, func.max(datasets.c.version).label("version"))
        .group_by(datasets.c.name)
        .subquery()
    )
    query = (
        _select()
        .join(last, (last.c.name == datasets.c.name) & (last.c.version == datasets.c.version))
        .order_by(datasets.c.name)
    )
    return tuple(_dataset(row) for row in connection.execute(query))


def versions_of(connection: Connection, name: str) -> tuple[Dataset, ...]:
    """All versions of a name, newest first."""
    query = _select().where(datasets.c.name == name).order_by(datasets.c.version.desc())
    return tuple(_dataset(row) for row in connection.execute(query))


def find_verified(connection: Connection, name: str) -> Dataset | None:
    """The newest verified version of a name: what ``--dataset NAME`` mounts."""
    query = (
        _select()
        .where(datasets.c.name == name, datasets.c.state == "verified")
        .order_by(datasets.c.version.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return None if row is None else _dataset(row)


def manifest_of(connection: Connection, dataset_id: DatasetId) -> str:
    return str(
        connection.execute(select(datasets.c.manifest).where(datasets.c.id == dataset_id)).scalar_one()
    )


def note_verified(
    connection: Connection, dataset_id: DatasetId, state: str, message: str, now: datetime
) -> None:
    """What a verification found: ``verified`` or ``damaged``."""
    connection.execute(
        update(datasets)
        .where(datasets.c.id == dataset_id)
        .values(state=state, message=message, verified_at=now)
    )


def _select() -> Select[*tuple[object, ...]]:
    return select(*(datasets.c[name] for name in Dataset.__dataclass_fields__))


def _dataset(row: Row[*tuple[object, ...]]) -> Dataset:
    return Dataset(**row._mapping)
