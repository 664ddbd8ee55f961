"""Round trips and bandwidth between two processes over TCP: the figures that need nothing but Python.

Both sides call the same function at the same time, one of them with ``asks`` (or ``sends``) true.
"""

from __future__ import annotations

import socket
import threading
import time
from dataclasses import dataclass

PING_BYTES = 64
PING_ROUNDS = 2_000
WARM_UP_ROUNDS = 200
BLOCK_BYTES = 1 << 20
STREAMS = 4
STREAM_SECONDS = 3.0
IO_SECONDS_MAX = 60.0


class ProbeFailed(RuntimeError):
    """The other side went away or said something else."""


@dataclass(frozen=True, slots=True)
class RoundTrips:
    """Nanoseconds from sending a small message to having its echo: median and 99th percentile."""

    p50_nanoseconds: int
    p99_nanoseconds: int
    rounds: int


def round_trips(link: socket.socket, *, asks: bool, rounds: int = PING_ROUNDS) -> RoundTrips | None:
    """Send a small message to and fro; the figures on the side that asks, ``None`` on the other."""
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    message = bytes(PING_BYTES)
    if not asks:
        for _ in range(rounds + WARM_UP_ROUNDS):
            link.sendall(receive_exactly(link, PING_BYTES))
        return None
    taken = []
    for _ in range(rounds + WARM_UP_ROUNDS):
        before = time.perf_counter_ns()
        link.sendall(message)
        receive_exactly(link, PING_BYTES)
        taken.append(time.perf_counter_ns() - before)
    return RoundTrips(*percentiles(taken[WARM_UP_ROUNDS:]), rounds)


def percentiles(taken: list[int]) -> tuple[int, int]:
    """The median and the 99th percentile, each a value that was measured (nearest rank)."""
    ordered = sorted(taken)
    return ordered[(len(ordered) - 1) // 2], ordered[max(0, -(-99 * len(ordered) // 100) - 1)]


def send_all(links: list[socket.socket], seconds: float = STREAM_SECONDS) -> None:
    """Send as fast as possible over all of them for so long, then close this direction."""
    until = time.monotonic() + seconds
    threads = [threading.Thread(target=_send, args=(link, until)) for link in links]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _send(link: socket.socket, until: float) -> None:
    block = bytes(BLOCK_BYTES)
    try:
        while time.monotonic() < until:
            link.sendall(block)
        link.shutdown(socket.SHUT_WR)
    except OSError:
        link.close()


def receive_all(links: list[socket.socket]) -> int:
    """Read them to their ends; bytes per second from the first byte of any to the last of all."""
    spans: list[tuple[float, float, int]] = []
    threads = [threading.Thread(target=_receive, args=(link, spans)) for link in links]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    total = sum(count for _, _, count in spans)
    if len(spans) < len(links) or not total:
        raise ProbeFailed("a stream broke off")
    seconds = max(last for _, last, _ in spans) - min(first for first, _, _ in spans)
    return int(total / seconds) if seconds > 0 else 0


def _receive(link: socket.socket, spans: list[tuple[float, float, int]]) -> None:
    buffer = memoryview(bytearray(BLOCK_BYTES))
    total, first = 0, 0.0
    try:
        while count := link.recv_into(buffer):
            first = first or time.monotonic()
            total += count
    except OSError:
        return
    spans.append((first, time.monotonic(), total))


def receive_exactly(link: socket.socket, count: int) -> bytes:
    """So many bytes; raises ``ProbeFailed`` where the other side closes before."""
    parts = []
    while count:
        part = link.recv(count)
        if not part:
            raise ProbeFailed("the other side closed the connection")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
