"""Arrays in a checkpoint: any object with a C-contiguous buffer, NumPy's among them, without NumPy.

``arrays.json`` names them, each one's raw bytes lie in ``arrays/<index>.bin``::

    {"version": 1, "arrays": [{"name": "w1", "file": "arrays/00000.bin", "bytes": 16, "dtype": "<f4",
                               "shape": [2, 2]}]}

``dtype`` and ``shape`` are what the object said of itself, else ``null``.
"""

from __future__ import annotations

import json
import mmap
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from starverse.checkpoint import hashing
from starverse.checkpoint.errors import Unusable, Unverified
from starverse.checkpoint.manifest import FileEntry, Manifest, ManifestInvalid, check_files, read_manifest
from starverse.checkpoint.tree import write_all

INDEX_NAME = "arrays.json"
_FOLDER = "arrays"
_VERSION = 1
_FILES_BATCH = 256

Buffer = Any
"""Any object with a buffer (Python 3.11 has no name for that)."""


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """What is known of an array beside its bytes."""

    name: str
    file: str
    size: int
    dtype: str | None
    shape: tuple[int, ...] | None


class LoadedArray:
    """An array read back: its bytes in :attr:`data`, with the ``dtype`` and ``shape`` it was saved with.

    ``numpy.asarray(loaded)`` is an array on the same memory, writable.
    """

    def __init__(self, info: ArrayInfo, data: memoryview) -> None:
        self.name = info.name
        self.dtype = info.dtype
        self.shape = info.shape
        self.data = data

    @property
    def __array_interface__(self) -> dict[str, object]:
        if self.dtype is None or self.shape is None:
            return {"version": 3, "typestr": "|u1", "shape": (len(self.data),), "data": self.data}
        return {"version": 3, "typestr": self.dtype, "shape": self.shape, "data": self.data}

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    def __len__(self) -> int:
        return len(self.data)


class Pool:
    """Memory that takes the copies of an asynchronous save, kept from one save to the next."""

    def __init__(self) -> None:
        self._held: dict[str, memoryview] = {}

    def reserve(self, sizes: Mapping[str, int]) -> None:
        """Have memory ready, its pages touched, and let go of what is not needed any more."""
        for name in [name for name in self._held if name not in sizes]:
            del self._held[name]
        for name, size in sizes.items():
            held = self._held.get(name)
            if held is None or len(held) != size:
                self._held[name] = new_memory(size, touched=True)

    def copy(self, views: Mapping[str, memoryview]) -> dict[str, memoryview]:
        """One copy of each buffer into the pool's memory."""
        self.reserve({name: len(view) for name, view in views.items()})
        for name, view in views.items():
            self._held[name][:] = view
        return {name: self._held[name] for name in views}


def new_memory(size: int, *, touched: bool = False) -> memoryview:
    """``size`` bytes of private zeroed memory, on huge pages where the system gives them."""
    if size == 0:
        return memoryview(bytearray())
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= 1 << 21:
        memory.madvise(mmap.MADV_HUGEPAGE)
    view = memoryview(memory)
    if touched:
        view[:: mmap.PAGESIZE] = bytes(len(range(0, size, mmap.PAGESIZE)))
    return view


def raw_view(name: str, value: Buffer) -> memoryview:
    """The bytes of ``value`` without a copy; raises :class:`Unusable` unless it is C-contiguous."""
    try:
        view = memoryview(value)
        if not view.c_contiguous:
            raise Unusable(f"{name!r} is not C-contiguous; save numpy.ascontiguousarray of it")
        return pickle.PickleBuffer(value).raw() if view.nbytes else memoryview(b"")
    except (TypeError, ValueError, BufferError) as error:
        raise Unusable(
            f"{name!r} is a {type(value).__name__} without a plain buffer ({error}); "
            "save bytes or a C-contiguous array (for a tensor on the CPU: tensor.numpy())"
        ) from error


def describe(arrays: Mapping[str, Buffer]) -> list[ArrayInfo]:
    """Name, size, dtype and shape of each array, in the order given."""
    described = []
    for index, (name, value) in enumerate(arrays.items()):
        dtype = getattr(value, "dtype", None)
        shape = getattr(value, "shape", None)
        text = None if dtype is None else str(getattr(dtype, "str", dtype))
        sides = None if shape is None else tuple(int(side) for side in shape)
        size = memoryview(value).nbytes
        described.append(ArrayInfo(name, f"{_FOLDER}/{index:05d}.bin", size, text, sides))
    return described


def write_arrays(
    folder: Path, infos: Sequence[ArrayInfo], views: Mapping[str, memoryview]
) -> dict[str, FileEntry]:
    """Write the arrays into ``folder`` on a few threads, hashing from memory at the same time, and flush.

    Returns the manifest entries of what was written. Raises ``OSError``.
    """
    (folder / _FOLDER).mkdir()
    entries: dict[str, FileEntry] = {}
    for start in range(0, len(infos), _FILES_BATCH):
        entries.update(_write_batch(folder, infos[start : start + _FILES_BATCH], views))
    index = {"version": _VERSION, "arrays": [_as_json(info) for info in infos]}
    (folder / INDEX_NAME).write_text(json.dumps(index))
    return entries


def _write_batch(
    folder: Path, infos: Sequence[ArrayInfo], views: Mapping[str, memoryview]
) -> dict[str, FileEntry]:
    algorithm = hashing.default_algorithm()
    tasks: list[Callable[[], bytes]] = []
    counts: list[int] = []
    with ExitStack() as stack:
        flushes: list[Callable[[], None]] = []
        for info in infos:
            number = os.open(folder / info.file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
            stack.callback(os.close, number)
            flushes.append(partial(os.fsync, number))
            spans = hashing.block_spans(info.size, hashing.BLOCK_BYTES)
            tasks += [partial(_write_and_hash, algorithm, number, views[info.name], *span) for span in spans]
            counts.append(len(spans))
        digests = hashing.run_all(tasks)
        hashing.run_all(flushes)
    entries = {}
    at = 0
    for info, count in zip(infos, counts, strict=True):
        digest = hashing.join_blocks(algorithm, digests[at : at + count])
        entries[info.file] = FileEntry(info.file, info.size, digest)
        at += count
    return entries


def read_arrays(folder: Path, into: Mapping[str, Buffer] | None = None) -> dict[str, LoadedArray]:
    """Read the arrays of a checkpoint, verifying each block as it arrives.

    ``into`` maps names to writable buffers of the right size that receive the bytes; other arrays get new
    memory. Raises :class:`Unverified` at the first byte that does not match (what ``into`` holds is then
    unspecified), :class:`Unusable` for a checkpoint without arrays or a buffer that does not fit.
    """
    try:
        manifest = read_manifest(folder)
        infos = _read_index(folder, manifest)
        views = {info.file: _target(info, into or {}) for info in infos}
        entries = {entry.path: entry for entry in manifest.files}
        check_files(folder, manifest, [entries[info.file] for info in infos], views)
    except ManifestInvalid as error:
        raise Unverified(f"{folder} is not verified: {error}; resume from an older checkpoint.") from error
    return {info.name: LoadedArray(info, views[info.file]) for info in infos}


def _write_and_hash(algorithm: str, descriptor: int, view: memoryview, start: int, end: int) -> bytes:
    digest = hashing.hash_bytes(algorithm, view[start:end])
    write_all(descriptor, view[start:end], start)
    return digest


def _read_index(folder: Path, manifest: Manifest) -> list[ArrayInfo]:
    sizes = {entry.path: entry for entry in manifest.files}
    index = sizes.get(INDEX_NAME)
    if index is None:
        raise Unusable(f"{folder} holds no arrays; read its files yourself")
    document = bytearray(index.size)
    check_files(folder, manifest, [index], {INDEX_NAME: memoryview(document)})
    try:
        infos = [_from_json(item) for item in json.loads(document)["arrays"]]
    except (KeyError, TypeError, ValueError) as error:
        raise Unusable(
            f"{folder / INDEX_NAME} was not written by this library; read the files yourself"
        ) from error
    for info in infos:
        if info.file not in sizes or sizes[info.file].size != info.size:
            raise ManifestInvalid(f"{INDEX_NAME} and the manifest disagree about {info.file}")
    return infos


def _from_json(item: Mapping[str, Any]) -> ArrayInfo:
    shape = None if item["shape"] is None else tuple(item["shape"])
    return ArrayInfo(item["name"], item["file"], item["bytes"], item["dtype"], shape)


def _target(info: ArrayInfo, into: Mapping[str, Buffer]) -> memoryview:
    if info.name not in into:
        return new_memory(info.size)
    view = raw_view(info.name, into[info.name])
    if view.readonly or len(view) != info.size:
        raise Unusable(f"the buffer for {info.name!r} has to be writable and {info.size} bytes long")
    return view


def _as_json(info: ArrayInfo) -> dict[str, object]:
    shape = None if info.shape is None else list(info.shape)
    return {"name": info.name, "file": info.file, "bytes": info.size, "dtype": info.dtype, "shape": shape}
