"""The manifest of a checkpoint: what it holds, and whether the bytes on disk match.

``<root>/step-<10 digits>-a<attempt>/manifest.json`` describes everything beside it::

    {"format": "starverse-checkpoint", "version": 1, "algorithm": "blake3", "block_bytes": 16777216,
     "attempt": 2, "step": 1200, "run": "<job id or null>", "created_at": "2026-01-02T03:04:05Z",
     "files": [{"path": "model.bin", "size": 12, "hash": "<hex>"}],
     "links": [{"path": "latest", "target": "model.bin"}], "folders": ["logs"],
     "digest": "<hash of this document without this field, keys sorted, no spaces>"}

How a file's hash is made: :mod:`starverse.checkpoint.hashing`. ``folders`` names the empty ones only. A
link may point inside the checkpoint only. Files that the manifest does not name are ignored.
"""

from __future__ import annotations

import enum
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from starverse.checkpoint import hashing
from starverse.checkpoint.beneath import OpenFile, open_beneath, read_beneath

FORMAT = "starverse-checkpoint"
VERSION = 1
MANIFEST_NAME = "manifest.json"
MANIFEST_BYTES_MAX = 64 * 1024 * 1024
BLOCK_BYTES_MIN = 64 * 1024
BLOCKS_PER_FILE_MAX = 1 << 20
COUNT_MAX = 2**63 - 1
"""The largest number that may stand anywhere in a manifest."""

SPARSE_BYTES_FREE = 1 << 30
SPARSE_TIMES = 4
"""A bounded reader reads so many bytes for nothing, and so many times what is really on disk: holes cost
their owner no space, but the reader's time. Compressed file systems stay well within."""

_FOLDER = re.compile(r"step-(\d{10,18})-a(\d{1,9})")
_HEX = re.compile(r"[0-9a-f]{64}")
_FILES_BATCH = 256
_BLOCKS_BATCH = 65536
_REASON_MAX = 500


class Fault(enum.Enum):
    """Why a folder is not a verified checkpoint."""

    NO_MANIFEST = "no_manifest"
    INVALID_MANIFEST = "invalid_manifest"
    WRONG_NAME = "wrong_name"
    NO_ALGORITHM = "no_algorithm"
    MISSING_FILE = "missing_file"
    WRONG_KIND = "wrong_kind"
    WRONG_SIZE = "wrong_size"
    WRONG_HASH = "wrong_hash"
    WRONG_LINK = "wrong_link"
    UNREADABLE = "unreadable"
    TOO_LARGE = "too_large"
    SPARSE = "sparse"


class ManifestInvalid(Exception):
    """The manifest cannot be trusted; the message says where and why, in printable text of bounded length."""

    def __init__(self, reason: str, fault: Fault = Fault.INVALID_MANIFEST) -> None:
        self.fault = fault
        super().__init__("".join(char if char.isprintable() else "?" for char in reason[:_REASON_MAX]))


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A regular file: its path inside the checkpoint with ``/`` between parts, its bytes, its hex hash."""

    path: str
    size: int
    hash: str


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """A symbolic link inside the checkpoint and its relative target."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint holds. ``run`` is the job's id, ``None`` outside the platform."""

    attempt: int
    step: int
    created_at: str
    files: tuple[FileEntry, ...]
    links: tuple[LinkEntry, ...] = ()
    folders: tuple[str, ...] = ()
    run: str | None = None
    algorithm: str = field(default_factory=hashing.default_algorithm)
    block_bytes: int = hashing.BLOCK_BYTES

    @property
    def folder_name(self) -> str:
        """The only name under which a checkpoint with this manifest counts."""
        return folder_name(self.step, self.attempt)

    @property
    def content(self) -> tuple[object, ...]:
        """What two checkpoints have in common when they hold the same bytes."""
        return (self.algorithm, self.block_bytes, self.files, self.links, self.folders)

    def to_bytes(self) -> bytes:
        """The document to write, with its own digest."""
        body = self._body()
        return json.dumps({**body, "digest": _digest(self.algorithm, body)}, indent=1).encode() + b"\n"

    def _body(self) -> dict[str, object]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "algorithm": self.algorithm,
            "block_bytes": self.block_bytes,
            "attempt": self.attempt,
            "step": self.step,
            "run": self.run,
            "created_at": self.created_at,
            "files": [{"path": item.path, "size": item.size, "hash": item.hash} for item in self.files],
            "links": [{"path": item.path, "target": item.target} for item in self.links],
            "folders": list(self.folders),
        }


@dataclass(frozen=True, slots=True)
class Verification:
    """The outcome of :func:`verify`. ``fault`` is ``None`` if and only if the checkpoint is verified."""

    path: Path
    manifest: Manifest | None
    fault: Fault | None = None
    reason: str = "every byte matches the manifest"

    @property
    def verified(self) -> bool:
        """Whether every byte matches the manifest."""
        return self.fault is None


@dataclass(frozen=True, slots=True, order=True)
class Published:
    """A published checkpoint; they order by attempt, then step: a later attempt knows better."""

    attempt: int
    step: int
    path: Path = field(compare=False)


def folder_name(step: int, attempt: int) -> str:
    """``step-0000001200-a2``."""
    return f"step-{step:010d}-a{attempt}"


def parse_folder_name(name: str) -> tuple[int, int] | None:
    """``(step, attempt)`` of a published checkpoint's folder; ``None`` for any other name."""
    found = _FOLDER.fullmatch(name)
    if found is None:
        return None
    step, attempt = int(found[1]), int(found[2])
    return (step, attempt) if folder_name(step, attempt) == name else None


def published(root: Path) -> list[Published]:
    """The published checkpoints in ``root``, oldest first by (attempt, step); empty without the folder.

    Being listed says nothing about the bytes: see :func:`verify`.
    """
    found = []
    try:
        with os.scandir(root) as entries:
            for entry in entries:
                parsed = parse_folder_name(entry.name)
                if parsed is not None and entry.is_dir(follow_symlinks=False):
                    found.append(Published(parsed[1], parsed[0], Path(entry.path)))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(found)


def read_manifest(folder: Path) -> Manifest:
    """The manifest of ``folder``; raises :class:`ManifestInvalid` when there is none that can be trusted."""
    try:
        document = read_beneath(folder, MANIFEST_NAME, MANIFEST_BYTES_MAX)
    except FileNotFoundError:
        raise ManifestInvalid(f"there is no {MANIFEST_NAME}", Fault.NO_MANIFEST) from None
    except OSError as error:
        raise ManifestInvalid(f"{MANIFEST_NAME} cannot be read: {error}", Fault.UNREADABLE) from error
    manifest = parse(document)
    if folder.name != manifest.folder_name:
        raise ManifestInvalid(
            f"the folder is {folder.name}, its manifest says {manifest.folder_name}", Fault.WRONG_NAME
        )
    return manifest


def parse(document: bytes) -> Manifest:
    """Read a manifest; raises :class:`ManifestInvalid` naming the first thing wrong."""
    try:
        return _read_body(json.loads(document))
    except (ValueError, OverflowError, RecursionError) as error:
        raise ManifestInvalid(f"it is not whole JSON: {error}") from error


def _read_body(body: object) -> Manifest:
    if not isinstance(body, dict) or body.get("format") != FORMAT:
        raise ManifestInvalid(f"it is not a {FORMAT} manifest")
    if body.get("version") != VERSION:
        raise ManifestInvalid(f"version {body.get('version')!r} is not known; this library reads {VERSION}")
    algorithm = _text(body, "algorithm")
    if algorithm not in hashing.KNOWN_ALGORITHMS:
        raise ManifestInvalid(f"hash algorithm {algorithm!r} is not one of {hashing.KNOWN_ALGORITHMS}")
    if not hashing.is_available(algorithm):
        raise ManifestInvalid(
            f"{algorithm} is not importable here: pip install {algorithm}", Fault.NO_ALGORITHM
        )
    if body.pop("digest", None) != _digest(algorithm, body):
        raise ManifestInvalid("its own digest does not match")
    run = body.get("run")
    manifest = Manifest(
        attempt=_count(body, "attempt"),
        step=_count(body, "step"),
        created_at=_text(body, "created_at"),
        files=tuple(_file(item) for item in _list(body, "files")),
        links=tuple(_link(item) for item in _list(body, "links")),
        folders=tuple(safe_path(item) for item in _list(body, "folders")),
        run=run if isinstance(run, str) else None,
        algorithm=algorithm,
        block_bytes=_count(body, "block_bytes"),
    )
    if manifest.block_bytes < BLOCK_BYTES_MIN:
        raise ManifestInvalid(f"block_bytes is {manifest.block_bytes}, less than {BLOCK_BYTES_MIN}")
    for entry in manifest.files:
        if entry.size > manifest.block_bytes * BLOCKS_PER_FILE_MAX:
            raise ManifestInvalid(f"{entry.path} has more than {BLOCKS_PER_FILE_MAX} blocks")
    names = [item.path for item in manifest.files] + [item.path for item in manifest.links]
    names += manifest.folders
    if len(set(names)) != len(names):
        raise ManifestInvalid("a path is named twice")
    return manifest


def verify(folder: Path, *, bytes_max: int | None = None) -> Verification:
    """Read every byte of the checkpoint in ``folder`` and compare it with the manifest.

    ``bytes_max`` is for readers of folders that others wrote, where a sparse file is as large as its owner
    likes: a manifest that announces more is a fault, and so is one that announces far more than is on disk.
    Never follows a symbolic link and never leaves ``folder``. Raises nothing: every fault is in the result.
    """
    manifest = None
    try:
        manifest = read_manifest(folder)
        if bytes_max is not None:
            _check_bytes(folder, manifest, bytes_max)
        for link in manifest.links:
            _check_link(folder, link)
        check_files(folder, manifest, manifest.files)
    except ManifestInvalid as error:
        return Verification(folder, manifest, error.fault, str(error))
    except (OSError, ValueError, OverflowError, RecursionError) as error:
        return Verification(folder, manifest, Fault.UNREADABLE, str(ManifestInvalid(f"unreadable: {error}")))
    return Verification(folder, manifest)


def bytes_to_read(folder: Path, bytes_max: int) -> int:
    """How many bytes :func:`verify` would read in ``folder``; 0 where it refuses before it reads any."""
    try:
        manifest = read_manifest(folder)
        _check_bytes(folder, manifest, bytes_max)
    except (ManifestInvalid, OSError, ValueError, OverflowError, RecursionError):
        return 0
    return sum(entry.size for entry in manifest.files)


def check_files(
    folder: Path, manifest: Manifest, files: Sequence[FileEntry], into: Mapping[str, memoryview] | None = None
) -> None:
    """Read and hash ``files`` on a few threads; raises :class:`ManifestInvalid` at the first fault.

    ``into`` maps a path to the buffer that receives the file's bytes, exactly ``size`` long.
    """
    batch: list[FileEntry] = []
    blocks = 0
    for entry in files:
        batch.append(entry)
        blocks += 1 + entry.size // manifest.block_bytes
        if len(batch) >= _FILES_BATCH or blocks >= _BLOCKS_BATCH:
            _check_batch(folder, manifest, batch, into or {})
            batch, blocks = [], 0
    if batch:
        _check_batch(folder, manifest, batch, into or {})


def _check_batch(
    folder: Path, manifest: Manifest, files: Sequence[FileEntry], into: Mapping[str, memoryview]
) -> None:
    with ExitStack() as stack:
        opened = [(entry, stack.enter_context(_open_entry(folder, entry)).number) for entry in files]
        try:
            digests = hashing.run_all(_block_tasks(manifest, opened, into))
        except (OSError, EOFError) as error:
            raise ManifestInvalid(f"a file cannot be read: {error}", Fault.UNREADABLE) from error
    at = 0
    for entry in files:
        count = hashing.block_count(entry.size, manifest.block_bytes)
        if hashing.join_blocks(manifest.algorithm, digests[at : at + count]) != entry.hash:
            raise ManifestInvalid(f"{entry.path}: its bytes do not match their hash", Fault.WRONG_HASH)
        at += count


def _block_tasks(
    manifest: Manifest, opened: Sequence[tuple[FileEntry, int]], into: Mapping[str, memoryview]
) -> Iterator[Callable[[], bytes]]:
    for entry, number in opened:
        buffer = into.get(entry.path)
        for start, end in hashing.block_spans(entry.size, manifest.block_bytes):
            target = None if buffer is None else buffer[start:end]
            yield partial(hashing.hash_span, manifest.algorithm, number, start, end, target)


def _check_bytes(folder: Path, manifest: Manifest, bytes_max: int) -> None:
    """Whether reading all of it may be asked of a reader who did not write it."""
    total = sum(entry.size for entry in manifest.files)
    if total > bytes_max:
        raise ManifestInvalid(f"it holds {total} bytes, more than {bytes_max}", Fault.TOO_LARGE)
    if total <= SPARSE_BYTES_FREE:
        return
    blocks: dict[tuple[int, int], int] = {}
    for entry in manifest.files:
        with _open_entry(folder, entry) as opened:
            found = os.fstat(opened.number)
        blocks[found.st_dev, found.st_ino] = found.st_blocks * 512
    on_disk = sum(blocks.values())
    if total > SPARSE_BYTES_FREE + SPARSE_TIMES * on_disk:
        raise ManifestInvalid(
            f"it announces {total} bytes, only {on_disk} are on disk: sparse files are not read", Fault.SPARSE
        )


def safe_path(value: object) -> str:
    """``value`` if it is a relative path that stays inside the folder; else :class:`ManifestInvalid`."""
    if not isinstance(value, str) or "\0" in value:
        raise ManifestInvalid(f"{value!r} is not a path")
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        raise ManifestInvalid(f"{value!r} cannot be the name of a file") from None
    if any(part in ("", ".", "..") for part in value.split("/")):
        raise ManifestInvalid(f"path {value!r} does not stay inside the checkpoint")
    if value == MANIFEST_NAME:
        raise ManifestInvalid(f"{MANIFEST_NAME} cannot name itself")
    return value


def is_safe_target(path: str, target: str) -> bool:
    """Whether a link at ``path`` to ``target`` stays inside: relative, and ``..`` only at its beginning.

    With ``..`` only at the beginning no other link can lead it outside.
    """
    parts = target.split("/")
    up = 0
    while up < len(parts) and parts[up] == "..":
        up += 1
    rest = parts[up:]
    return up <= path.count("/") and "\0" not in target and target != "" and not {"", ".."} & set(rest)


def _open_entry(folder: Path, entry: FileEntry) -> OpenFile:
    try:
        opened = open_beneath(folder, entry.path)
    except FileNotFoundError:
        raise ManifestInvalid(f"{entry.path} is missing", Fault.MISSING_FILE) from None
    except OSError as error:
        raise ManifestInvalid(f"{entry.path} cannot be opened: {error.strerror}", Fault.WRONG_KIND) from error
    found = os.fstat(opened.number)
    fault = None
    if not stat.S_ISREG(found.st_mode):
        fault = ManifestInvalid(f"{entry.path} is not a regular file", Fault.WRONG_KIND)
    elif found.st_size != entry.size:
        fault = ManifestInvalid(
            f"{entry.path} has {found.st_size} bytes, its manifest says {entry.size}", Fault.WRONG_SIZE
        )
    if fault is not None:
        os.close(opened.number)
        raise fault
    return opened


def _check_link(folder: Path, link: LinkEntry) -> None:
    try:
        with open_beneath(folder, link.path, os.O_PATH) as opened:
            target = os.readlink("", dir_fd=opened.number)
    except OSError as error:
        raise ManifestInvalid(
            f"{link.path} is not the link it was: {error.strerror}", Fault.WRONG_LINK
        ) from error
    if target != link.target:
        raise ManifestInvalid(f"{link.path} points to another place than it did", Fault.WRONG_LINK)


def _file(item: object) -> FileEntry:
    if not isinstance(item, dict):
        raise ManifestInvalid(f"{item!r} is not a file entry")
    digest = _text(item, "hash")
    if _HEX.fullmatch(digest) is None:
        raise ManifestInvalid(f"hash {digest!r} is not 64 hexadecimal digits")
    return FileEntry(safe_path(item.get("path")), _count(item, "size"), digest)


def _link(item: object) -> LinkEntry:
    if not isinstance(item, dict):
        raise ManifestInvalid(f"{item!r} is not a link entry")
    link = LinkEntry(safe_path(item.get("path")), _text(item, "target"))
    if not is_safe_target(link.path, link.target):
        raise ManifestInvalid(f"link {link.path!r} to {link.target!r} does not stay inside the checkpoint")
    return link


def _digest(algorithm: str, body: Mapping[str, object]) -> str:
    document = json.dumps(body, sort_keys=True, separators=(",", ":")).encode()
    return hashing.hash_bytes(algorithm, document).hex()


def _count(body: Mapping[str, object], key: str) -> int:
    value = body.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= COUNT_MAX:
        raise ManifestInvalid(f"{key} is {value!r}, not a whole number from 0 to {COUNT_MAX}")
    return value


def _text(body: Mapping[str, object], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str):
        raise ManifestInvalid(f"{key} is {value!r}, not text")
    return value


def _list(body: Mapping[str, object], key: str) -> list[object]:
    value = body.get(key)
    if not isinstance(value, list):
        raise ManifestInvalid(f"{key} is not a list")
    return value
