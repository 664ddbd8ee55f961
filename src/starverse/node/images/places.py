"""Where builds and finished images lie below ``DATA/images``.

::

    .build-IMAGE/       one build: order.json, lock, log, result.json, root/ (the image to be), home/, tmp/
    sha256-HEX/         a finished image, read-only
    sha256-HEX.json     its seal, written last: without one the folder beside it is nothing
    .old-*              on its way out
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
from dataclasses import asdict, dataclass
from pathlib import Path

from starverse.checkpoint.removing import remove_tree
from starverse.domain.catalog.image_builds import BuildOrder, BuildResult
from starverse.domain.catalog.image_trees import Entry, EntryKind
from starverse.domain.ids import is_uuid

_BUILD = ".build-"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class BuildFolder:
    """The folder of one build."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    def write_order(self, order: BuildOrder) -> None:
        self.path.mkdir(mode=0o711, parents=True)
        (self / "lock").touch(mode=0o600)
        write_whole(self / "order.json", json.dumps(asdict(order)))

    def read_order(self) -> BuildOrder:
        raw = json.loads((self / "order.json").read_text("utf-8"))
        raw["layers"] = tuple((name, folder) for name, folder in raw["layers"])
        return BuildOrder(**raw)

    def claim(self) -> int | None:
        """The builder's first act: a lock that ends with it; ``None``: another one builds here, or nobody is
        to."""
        try:
            handle = os.open(self / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        return handle

    def has_builder(self) -> bool:
        handle = self.claim()
        if handle is None:
            return (self / "lock").exists()
        os.close(handle)
        return False

    def write_result(self, result: BuildResult) -> None:
        write_whole(self / "result.json", json.dumps(asdict(result)))

    def read_result(self) -> BuildResult | None:
        try:
            raw = json.loads((self / "result.json").read_text("utf-8"))
        except (OSError, ValueError):
            return None
        raw["contents"] = tuple(raw["contents"])
        return BuildResult(**raw)


@dataclass(frozen=True, slots=True)
class Seal:
    """What a finished image is: every entry of it, compiled files too, and what it holds in words."""

    digest: str
    bytes: int
    contents: tuple[str, ...]
    python: str
    entries: tuple[Entry, ...]


class Store:
    """``DATA/images``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def build_folder(self, image_id: str) -> BuildFolder:
        return BuildFolder(self.root / f"{_BUILD}{image_id}")

    def builds(self) -> tuple[str, ...]:
        """The ids of images that have a build folder."""
        names = (name.removeprefix(_BUILD) for name in self._names() if name.startswith(_BUILD))
        return tuple(sorted(name for name in names if is_uuid(name)))

    def place(self, digest: str) -> Path:
        """The folder of an image by its digest; no other text becomes a path."""
        if _DIGEST.fullmatch(digest) is None:
            raise ValueError(f"no digest of an image: {digest[:80]!r}")
        return self.root / digest.replace(":", "-")

    def is_sealed(self, digest: str) -> bool:
        """Whether it is there as a whole: the seal is written last and goes first."""
        place = self.place(digest)
        return _seal_file(place).is_file() and place.is_dir()

    def read_seal(self, digest: str) -> Seal:
        """Raises ``OSError`` or ``ValueError`` where there is none to read."""
        raw = json.loads(_seal_file(self.place(digest)).read_text("utf-8"))
        entries = tuple(
            Entry(path, EntryKind(kind), size, hash_) for path, kind, size, hash_ in raw["entries"]
        )
        return Seal(raw["digest"], raw["bytes"], tuple(raw["contents"]), raw["python"], entries)

    def contents(self, place: Path) -> tuple[str, ...]:
        """What the seal of the image in this folder says that it holds; nothing where there is none."""
        try:
            return self.read_seal(place.name.replace("-", ":", 1)).contents
        except (OSError, ValueError):
            return ()

    def digests(self) -> tuple[str, ...]:
        """Of every folder that is there, sealed or not, and of seals without a folder."""
        named = (name.removesuffix(".json").replace("-", ":", 1) for name in self._names())
        return tuple(sorted({name for name in named if _DIGEST.fullmatch(name)}))

    def keep(self, tree: Path, seal: Seal) -> None:
        """Make a finished tree an image; where there is one of this content already, that one stays."""
        place = self.place(seal.digest)
        if not self.is_sealed(seal.digest):
            self._clear(place)
            tree.rename(place)
            place.chmod(0o555)
            entries = [(e.path, e.kind.value, e.bytes, e.hash) for e in seal.entries]
            text = {**asdict(seal), "entries": entries}
            os.sync()
            write_whole(_seal_file(place), json.dumps(text))

    def remove(self, digest: str) -> None:
        self._clear(self.place(digest))

    def sweep(self) -> int:
        """Delete what was on its way out when somebody was killed; how many."""
        left = [self.root / name for name in self._names() if name.startswith(".old-")]
        for path in left:
            remove_tree(path)
        return len(left)

    def remove_build(self, image_id: str) -> None:
        self._put_out(self.build_folder(image_id).path)

    def _clear(self, place: Path) -> None:
        _seal_file(place).unlink(missing_ok=True)
        self._put_out(place)

    def _put_out(self, path: Path) -> None:
        aside = self.root / f".old-{secrets.token_hex(8)}"
        if path.is_dir():
            path.chmod(0o755)  # a read-only folder cannot be renamed by an ordinary user
            path.rename(aside)
            remove_tree(aside)

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.root)  # noqa: PTH208  (names alone)
        except FileNotFoundError:
            return []


def _seal_file(place: Path) -> Path:
    return place.with_name(f"{place.name}.json")


def write_whole(path: Path, text: str) -> None:
    """The file is there with all of this text, or as it was before."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
