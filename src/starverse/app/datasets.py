"""The dataset shelf: copy a host folder in with a manifest of every byte, list, verify.

A copy is made aside, hashed as it is read, read back, and renamed to its place only when all of it is
there. Links, devices and odd names are refused by name before anything is copied, and so is content that is
there already in sound versions.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from starverse.app.archives import DEPTH_MAX
from starverse.app.disk_space import require_space
from starverse.app.idempotency import Once, claim, made_before
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.db import datasets
from starverse.db.datasets import Dataset
from starverse.db.events import Event, record
from starverse.domain.catalog.manifest import (
    Difference,
    Manifest,
    ManifestFile,
    compare,
    is_sound_path,
    make_manifest,
    read_manifest,
)
from starverse.domain.errors import Conflict, FieldFault, Invalid, NotFound, Unavailable
from starverse.domain.ids import DatasetId

FAULTS_SHOWN = 100

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?")
_PIECE_BYTES = 4 * 1024**2


class _Hash(Protocol):
    def update(self, data: bytes, /) -> object: ...

    def hexdigest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class NewDataset:
    """What to put on the shelf: ``path`` is a folder on the platform's host."""

    name: str
    title: str
    source: str
    licence: str
    path: str
    once: Once | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """What reading every byte of a dataset found."""

    dataset: Dataset
    faults: tuple[Difference, ...]


@dataclass(frozen=True, slots=True)
class DatasetDetail:
    """The newest version, what versions there are, and the newest one's files."""

    dataset: Dataset
    versions: tuple[Dataset, ...]
    manifest: Manifest


def add_dataset(platform: Platform, identity: Identity, new: NewDataset) -> Dataset:
    """Copy a host folder onto the shelf as the next version of its name. The operator's.

    A repeat of the request is answered by what the first one made, before anything is copied again.
    """
    _check_fields(new)
    with platform.database.read() as connection:
        earlier = _made_before(connection, identity, new)
    if earlier is not None:
        return earlier
    source = _source_folder(platform, new.path)
    found = list(_regular_files(source))
    require_space(platform, sum(size for _, size in found))
    dataset_id = DatasetId(platform.ids.uuid7())
    place = platform.paths.dataset(dataset_id)
    place.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    aside = place.with_name(f".new-{dataset_id}")
    try:
        manifest = _copy(source, [path for path, _ in found], aside)
        if compare(manifest, _hash_folder(aside, manifest.algorithm)):
            raise Unavailable("The copy does not read back as it was written; look at the platform's disk.")
        with platform.database.read() as connection:
            earlier = _made_before(connection, identity, new)
            if earlier is not None:  # by the same request, while this one copied
                return earlier
            _refuse_repeat(datasets.versions_of(connection, new.name), manifest)
        aside.rename(place)
        kept = False
        try:
            made = _record(platform, identity, new, dataset_id, manifest)
            kept = made.id == dataset_id
            return made
        finally:
            if not kept:
                _remove(place)
    finally:
        _remove(aside)


def list_datasets(platform: Platform) -> tuple[Dataset, ...]:
    """The newest version of each dataset, by name. The shelf is the same for everyone."""
    with platform.database.read() as connection:
        return datasets.newest(connection)


def get_dataset(platform: Platform, name: str) -> DatasetDetail:
    """One dataset with its versions and files."""
    with platform.database.read() as connection:
        versions = datasets.versions_of(connection, name)
        if not versions:
            raise NotFound(f"There is no dataset {name[:80]!r}; see `starverse dataset ls`.")
        manifest = datasets.manifest_of(connection, versions[0].id)
    return DatasetDetail(versions[0], versions, read_manifest(manifest))


def verify_dataset(platform: Platform, identity: Identity, name: str) -> Verified:
    """Read every byte of the newest version and compare; it becomes ``verified`` or ``damaged``."""
    detail = get_dataset(platform, name)
    place = platform.paths.dataset(detail.dataset.id)
    faults = compare(detail.manifest, _hash_folder(place, detail.manifest.algorithm))
    state = "damaged" if faults else "verified"
    message = f"{len(faults)} of {detail.dataset.files} files are not as the manifest says" if faults else ""
    with platform.database.write() as connection:
        now = platform.clock.now()
        datasets.note_verified(connection, detail.dataset.id, state, message, now)
        event = Event(
            now, "dataset", detail.dataset.id, "verified", state, message, account_id=identity.account_id
        )
        record(connection, event)
        after = datasets.versions_of(connection, name)
    current = next(version for version in after if version.id == detail.dataset.id)
    return Verified(current, faults[:FAULTS_SHOWN])


def _check_fields(new: NewDataset) -> None:
    faults = []
    if _NAME.fullmatch(new.name) is None:
        faults.append(FieldFault("name", new.name[:80], "1 to 63 of a-z, 0-9, '-' and '_'"))
    for field in ("title", "source", "licence"):
        text = getattr(new, field)
        if not text.strip() or len(text) > 1000:
            faults.append(FieldFault(field, text[:80], "1 to 1000 characters"))
    if faults:
        raise Invalid(faults=faults)


def _source_folder(platform: Platform, text: str) -> Path:
    """The folder to copy; neither a link, nor in the platform's own data, nor around it."""
    path = Path(text)
    data = platform.settings.data.resolve()
    problem = None
    if not path.is_absolute() or ".." in path.parts:
        problem = "an absolute path without '..' on the platform's host"
    elif not path.is_dir() or path.is_symlink():
        problem = "a folder on the platform's host, not a link"
    elif path.resolve().is_relative_to(data) or data.is_relative_to(path.resolve()):
        problem = "a folder outside of the platform's data"
    if problem is not None:
        raise Invalid(faults=[FieldFault("path", text[:200], problem)])
    return path.resolve()


def _regular_files(folder: Path) -> Iterator[tuple[str, int]]:
    """Relative path and size of every file; raises :class:`Invalid` naming everything that is not one."""
    faults: list[FieldFault] = []
    found: list[tuple[str, int]] = []
    pending = [""]
    while pending:
        here = pending.pop()
        with os.scandir(folder / here) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                path = f"{here}/{entry.name}" if here else entry.name
                status = entry.stat(follow_symlinks=False)
                if path.count("/") >= DEPTH_MAX:
                    shown = f"{ascii(path)[1:-1][:200]} ({path.count('/') + 1} levels)"
                    faults.append(FieldFault("path", shown, f"at most {DEPTH_MAX} levels"))
                elif not is_sound_path(path):
                    faults.append(FieldFault("path", ascii(path)[1:-1][:200], "a printable UTF-8 name"))
                elif stat.S_ISDIR(status.st_mode):
                    pending.append(path)
                elif stat.S_ISREG(status.st_mode):
                    found.append((path, status.st_size))
                else:
                    faults.append(FieldFault("path", path, "a file or a folder: no links, no devices"))
    if not found and not faults:
        faults.append(FieldFault("path", str(folder), "a folder with at least one file"))
    if faults:
        raise Invalid(faults=faults[:FAULTS_SHOWN])
    yield from found


def _copy(source: Path, paths: list[str], target: Path) -> Manifest:
    """Copy and hash in one reading; the copy is read-only and flushed to disk."""
    algorithm, new_hash = _best_hash()
    target.mkdir(mode=0o755)
    files = []
    for path in paths:
        place = target / path
        place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor = os.open(source / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as reader, place.open("xb") as writer:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Conflict(f"{path} changed while it was copied; add the dataset again.")
            size, digest = 0, new_hash()
            while piece := reader.read(_PIECE_BYTES):
                digest.update(piece)
                size += writer.write(piece)
            writer.flush()
            os.fsync(writer.fileno())
            os.fchmod(writer.fileno(), 0o444)
        files.append(ManifestFile(path, size, digest.hexdigest()))
    for folder, _, _ in os.walk(target, topdown=False):
        os.chmod(folder, 0o555)  # noqa: PTH101
    return make_manifest(algorithm, files)


def _hash_folder(folder: Path, algorithm: str) -> Manifest:
    """The manifest of what is there now; a folder without files has none to compare and is all missing."""
    new_hash = _hash_named(algorithm)
    files = []
    if not folder.is_dir():
        return Manifest(algorithm, ())
    for parent, folders, names in os.walk(folder):
        for name in [*names, *(name for name in folders if Path(parent, name).is_symlink())]:
            place = Path(parent, name)
            digest = new_hash()
            size = 0
            if place.is_file() and not place.is_symlink():
                with place.open("rb") as file:
                    while piece := file.read(_PIECE_BYTES):
                        digest.update(piece)
                        size += len(piece)
            files.append(ManifestFile(str(place.relative_to(folder)), size, digest.hexdigest()))
    return Manifest(algorithm, tuple(sorted(files)))


def _record(
    platform: Platform, identity: Identity, new: NewDataset, dataset_id: DatasetId, manifest: Manifest
) -> Dataset:
    try:
        with platform.database.write() as connection:
            now = platform.clock.now()
            earlier = claim(connection, identity.account_id, new.once, dataset_id, now)
            if earlier is not None:
                return _version(connection, new.name, earlier)
            before = datasets.versions_of(connection, new.name)
            _refuse_repeat(before, manifest)
            dataset = Dataset(
                id=dataset_id,
                name=new.name,
                version=before[0].version + 1 if before else 1,
                state="verified",
                title=new.title,
                source=new.source,
                licence=new.licence,
                manifest_digest=manifest.digest,
                files=len(manifest.files),
                bytes=manifest.bytes,
                added_at=now,
                verified_at=now,
            )
            datasets.add(connection, dataset, manifest.to_text())
            message = f"{new.name} version {dataset.version}: {dataset.files} files, {dataset.bytes} bytes"
            event = Event(now, "dataset", dataset_id, "added", "", message, account_id=identity.account_id)
            record(connection, event)
            return dataset
    except IntegrityError as error:
        raise Conflict(f"{new.name} got another version at the same moment; try again.") from error


def _made_before(connection: Connection, identity: Identity, new: NewDataset) -> Dataset | None:
    earlier = made_before(connection, identity.account_id, new.once)
    return None if earlier is None else _version(connection, new.name, earlier)


def _version(connection: Connection, name: str, dataset_id: str) -> Dataset:
    return next(each for each in datasets.versions_of(connection, name) if each.id == dataset_id)


def _refuse_repeat(before: tuple[Dataset, ...], manifest: Manifest) -> None:
    """A damaged version is mended by the next one with what it had."""
    same = next(
        (each for each in before if each.manifest_digest == manifest.digest and each.state != "damaged"), None
    )
    if same is not None:
        raise Conflict(f"{same.name} version {same.version} has this very content already.")


def _best_hash() -> tuple[str, Callable[[], _Hash]]:
    try:
        return "blake3", _hash_named("blake3")
    except Conflict:
        return "sha256", _hash_named("sha256")


def _hash_named(algorithm: str) -> Callable[[], _Hash]:
    if algorithm == "sha256":
        return hashlib.sha256
    try:
        from blake3 import blake3
    except ImportError as error:
        raise Conflict(
            "The manifest has BLAKE3 hashes, and BLAKE3 is not installed here.",
            hint="Install it: `pip install starverse[blake3]`.",
        ) from error
    made: Callable[[], _Hash] = blake3
    return made


def _remove(folder: Path) -> None:
    """Delete a read-only copy, if it is there."""
    for parent, _, _ in os.walk(folder):
        os.chmod(parent, 0o755)  # noqa: PTH101
    shutil.rmtree(folder, ignore_errors=True)
