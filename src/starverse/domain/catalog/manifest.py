"""Manifests: which files with which bytes a dataset version is, as text that is the same wherever it is made.

A manifest names its hash algorithm and lists files by path (relative, ``/`` between parts, ordered by their
bytes) with size and hash. Nothing that depends on a machine is in it: no owners, no times, no modes.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from starverse.domain.errors import FieldFault, Invalid

ALGORITHMS = ("blake3", "sha256")
FORMAT = 1
PATH_BYTES_MAX = 1024

_HASH = re.compile(r"[0-9a-f]{64}")
_PATH_EXPECTED = "a relative path without '.', '..', '//' or control characters, at most 1024 bytes of UTF-8"


@dataclass(frozen=True, slots=True, order=True)
class ManifestFile:
    """One file; ``hash`` is 64 hex digits of the manifest's algorithm."""

    path: str
    bytes: int
    hash: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """``files`` in the order of their paths' bytes."""

    algorithm: str
    files: tuple[ManifestFile, ...]

    @property
    def bytes(self) -> int:
        """All files together."""
        return sum(file.bytes for file in self.files)

    def to_text(self) -> str:
        """JSON with sorted keys, one file a line: equal manifests are equal texts."""
        head = json.dumps({"format": FORMAT, "algorithm": self.algorithm}, sort_keys=True)[:-1]
        lines = ",\n".join(
            json.dumps({"path": f.path, "bytes": f.bytes, "hash": f.hash}, sort_keys=True, ensure_ascii=False)
            for f in self.files
        )
        return f'{head}, "files": [\n{lines}\n]}}\n'

    @property
    def digest(self) -> str:
        """``sha256:<hex>`` of :meth:`to_text`: names this very content."""
        return "sha256:" + hashlib.sha256(self.to_text().encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Difference:
    """A file that is not as the manifest says: ``missing``, ``extra``, ``size`` or ``hash``."""

    path: str
    kind: str
    detail: str


def make_manifest(algorithm: str, files: Iterable[ManifestFile]) -> Manifest:
    """A manifest of these files; raises :class:`Invalid` naming every one that cannot be in one."""
    ordered = tuple(sorted(files, key=lambda file: file.path.encode("utf-8", "surrogatepass")))
    faults = []
    if algorithm not in ALGORITHMS:
        faults.append(FieldFault("algorithm", str(algorithm)[:40], f"one of {', '.join(ALGORITHMS)}"))
    faults += _file_faults(ordered)
    if faults:
        raise Invalid(faults=faults)
    return Manifest(algorithm, ordered)


def read_manifest(text: str) -> Manifest:
    """A manifest from its text; raises :class:`Invalid` with every fault."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise Invalid(faults=[FieldFault("manifest", text[:40], "JSON of a manifest")]) from error
    if not isinstance(raw, dict) or set(raw) != {"format", "algorithm", "files"} or raw["format"] != FORMAT:
        expected = f"an object with format {FORMAT}, algorithm and files"
        raise Invalid(faults=[FieldFault("manifest", str(raw)[:80], expected)])
    if not isinstance(raw["files"], list):
        raise Invalid(faults=[FieldFault("files", str(raw["files"])[:80], "a list")])
    faults = [
        FieldFault(f"files[{index}]", str(item)[:80], "an object with path, bytes and hash")
        for index, item in enumerate(raw["files"])
        if not _is_entry(item)
    ]
    if faults:
        raise Invalid(faults=faults)
    return make_manifest(raw["algorithm"], [ManifestFile(**item) for item in raw["files"]])


def compare(wanted: Manifest, found: Manifest) -> tuple[Difference, ...]:
    """How what was found differs from what the manifest says; empty: not at all. Same algorithm needed."""
    if wanted.algorithm != found.algorithm:
        raise ValueError(f"{wanted.algorithm} and {found.algorithm} hashes cannot be compared")
    there: Mapping[str, ManifestFile] = {file.path: file for file in found.files}
    named = {file.path for file in wanted.files}
    differences = []
    for file in wanted.files:
        have = there.get(file.path)
        if have is None:
            differences.append(Difference(file.path, "missing", "the file is not there"))
        elif have.bytes != file.bytes:
            differences.append(Difference(file.path, "size", f"{have.bytes} bytes, {file.bytes} wanted"))
        elif have.hash != file.hash:
            differences.append(Difference(file.path, "hash", f"{have.hash}, {file.hash} wanted"))
    differences += [
        Difference(file.path, "extra", "no such file is in the manifest")
        for file in found.files
        if file.path not in named
    ]
    return tuple(differences)


def is_sound_path(path: str) -> bool:
    """Whether a path can be in a manifest: it stays below its folder and reads the same everywhere."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return False
    parts = path.split("/")
    return (
        0 < size <= PATH_BYTES_MAX
        and not any(part in ("", ".", "..") for part in parts)
        and not any(unicodedata.category(character) == "Cc" for character in path)
    )


def _file_faults(ordered: tuple[ManifestFile, ...]) -> list[FieldFault]:
    faults = []
    seen: set[str] = set()
    folders: set[str] = set()
    for file in ordered:
        shown = ascii(file.path)[1:-1][:200]
        if not is_sound_path(file.path):
            faults.append(FieldFault("path", shown, _PATH_EXPECTED))
            continue
        alike = unicodedata.normalize("NFC", file.path)
        if alike in seen:
            faults.append(FieldFault("path", shown, "each path once"))
        seen.add(alike)
        parts = alike.split("/")
        folders.update("/".join(parts[:depth]) for depth in range(1, len(parts)))
        if file.bytes < 0:
            faults.append(FieldFault(f"{shown}: bytes", str(file.bytes), "a size, at least 0"))
        if _HASH.fullmatch(file.hash) is None:
            faults.append(FieldFault(f"{shown}: hash", file.hash[:80], "64 lower-case hex digits"))
    faults += [
        FieldFault("path", ascii(path)[1:-1], "a file or a folder, not both") for path in seen & folders
    ]
    if not ordered:
        faults.append(FieldFault("files", "none", "at least one file"))
    return faults


def _is_entry(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and set(item) == {"path", "bytes", "hash"}
        and isinstance(item["path"], str)
        and type(item["bytes"]) is int
        and isinstance(item["hash"], str)
    )
