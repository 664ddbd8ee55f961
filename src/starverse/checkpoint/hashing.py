"""Hashes of checkpoint files, in blocks so that several threads share the work.

BLAKE3 where it is importable, else SHA-256; a manifest names which. A file of at most ``block_bytes`` has
the plain hash of its content (``b3sum`` and ``sha256sum`` agree); the hash of a larger file is the hash of
the joined binary digests of its blocks. Hashing and reading release the interpreter lock.
"""

from __future__ import annotations

import hashlib
import importlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import Protocol, TypeVar, cast

BLOCK_BYTES = 16 * 1024 * 1024
_READ_BYTES = 1024 * 1024
_WORKERS_MAX = 8
_AHEAD_MAX = 4096

T = TypeVar("T")


class Hasher(Protocol):
    """What ``hashlib`` and ``blake3`` objects have in common."""

    def update(self, data: bytes | bytearray | memoryview, /) -> object:
        """Take in more bytes."""

    def digest(self) -> bytes:
        """The digest of everything taken in."""


def _blake3() -> Callable[[], Hasher] | None:
    try:
        return cast("Callable[[], Hasher]", importlib.import_module("blake3").blake3)
    except (ImportError, AttributeError):
        return None


_ALGORITHMS: dict[str, Callable[[], Hasher]] = {"sha256": cast("Callable[[], Hasher]", hashlib.sha256)}
_found = _blake3()
if _found is not None:
    _ALGORITHMS["blake3"] = _found

KNOWN_ALGORITHMS = ("blake3", "sha256")


def default_algorithm() -> str:
    """``blake3`` where it is importable, else ``sha256``."""
    return "blake3" if "blake3" in _ALGORITHMS else "sha256"


def is_available(algorithm: str) -> bool:
    """Whether this interpreter can compute ``algorithm``."""
    return algorithm in _ALGORITHMS


def hash_bytes(algorithm: str, data: bytes | bytearray | memoryview) -> bytes:
    """The digest of ``data``."""
    hasher = _ALGORITHMS[algorithm]()
    hasher.update(data)
    return hasher.digest()


def block_spans(size: int, block_bytes: int) -> list[tuple[int, int]]:
    """The half-open spans that tile ``size`` bytes; an empty file has one empty span."""
    return [(start, min(start + block_bytes, size)) for start in range(0, max(size, 1), block_bytes)]


def block_count(size: int, block_bytes: int) -> int:
    """How many spans :func:`block_spans` has."""
    return max(1, -(-size // block_bytes))


def join_blocks(algorithm: str, digests: Sequence[bytes]) -> str:
    """The hexadecimal hash of a file from the digests of its blocks, in order."""
    return (digests[0] if len(digests) == 1 else hash_bytes(algorithm, b"".join(digests))).hex()


def hash_span(algorithm: str, descriptor: int, start: int, end: int, into: memoryview | None = None) -> bytes:
    """Read ``[start, end)`` of an open file and return its digest, each piece hashed while still in cache.

    ``into`` receives the bytes when given (its length is ``end - start``); otherwise they are dropped.
    Raises ``EOFError`` when the file is shorter.
    """
    hasher = _ALGORITHMS[algorithm]()
    scratch = memoryview(bytearray(min(_READ_BYTES, end - start))) if into is None else None
    at = start
    while at < end:
        want = min(_READ_BYTES, end - at)
        piece = (
            scratch[:want]
            if scratch is not None
            else cast("memoryview", into)[at - start : at - start + want]
        )
        got = os.preadv(descriptor, [piece], at)
        if got == 0:
            raise EOFError(f"the file ends at byte {at}, before {end}")
        hasher.update(piece[:got])
        at += got
    return hasher.digest()


def worker_count() -> int:
    """Threads to use: the cores this process may run on, at most eight."""
    return max(1, min(_WORKERS_MAX, len(os.sched_getaffinity(0))))


def run_all(tasks: Iterable[Callable[[], T]]) -> list[T]:
    """Run the tasks on a few threads and return their results in order.

    Takes tasks from the iterable as it goes, a bounded number ahead. An error is raised once the tasks
    already running have ended; the rest are not begun.
    """
    source = iter(tasks)
    begin = list(islice(source, 2))
    workers = worker_count()
    if workers <= 1 or len(begin) < 2:
        return [task() for task in chain(begin, source)]
    results: list[T] = []
    ahead: deque[Future[T]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix="starverse-checkpoint") as pool:
        try:
            for task in chain(begin, source):
                if len(ahead) >= _AHEAD_MAX:
                    results.append(ahead.popleft().result())
                ahead.append(pool.submit(task))
            while ahead:
                results.append(ahead.popleft().result())
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return results
