"""Logs: append-only files, one per attempt and stream; read in ranges, followed across attempts.

An event's id is ``attempt:offset``, the byte after what it told, so a follower goes on exactly there. Where
the cap punched a hole in the oldest part, readers see a gap instead of zeros.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from starverse.app import jobs as job_cases
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.db.job_pulses import JobPulse, pulses
from starverse.domain.errors import FieldFault, Invalid, NotFound

__all__ = [
    "FollowStart",
    "JobPulse",
    "LogPart",
    "LogRequest",
    "begin_follow",
    "log_path",
    "read_log",
    "read_piece",
    "read_pulses",
]

STREAMS = ("out", "err")
BYTES_DEFAULT = 256 * 1024
BYTES_MAX = 4 * 1024**2
FOLLOW_BYTES = 64 * 1024

_EVENT_ID = re.compile(r"(\d{1,6}):(\d{1,15})")


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes ``[start, end)`` that the cap of the log removed."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class LogRequest:
    """``attempt`` ``None``: the newest; ``offset`` below zero counts from the end."""

    attempt: int | None = None
    stream: str = "out"
    offset: int = 0
    limit: int = BYTES_DEFAULT


@dataclass(frozen=True, slots=True)
class LogPart:
    """``text`` is what stands from ``offset`` (behind the ``gap``, if any) to ``next_offset``; ``ended``:
    nothing will follow in this attempt."""

    attempt: int
    attempts: int
    stream: str
    offset: int
    next_offset: int
    text: str
    gap: Gap | None
    ended: bool


@dataclass(frozen=True, slots=True)
class Piece:
    """What :func:`read_piece` found: the gap before, the text, and the byte after it."""

    text: str
    gap: Gap | None
    next_offset: int


def read_log(platform: Platform, identity: Identity, ref: str, request: LogRequest) -> LogPart:
    """A part of a job's log; an attempt that has no log yet reads as empty."""
    _check(request)
    pulse = _pulse(platform, identity, ref)
    attempt = pulse.attempt if request.attempt is None else request.attempt
    if attempt > pulse.attempt:
        raise NotFound(f"Job {ref} has had {pulse.attempt} attempts; there is no attempt {attempt}.")
    ended = pulse.ended or attempt < pulse.attempt or (attempt > 0 and not pulse.running)
    path = log_path(platform, pulse.job_id, attempt, request.stream)
    try:
        size = path.stat().st_size
    except OSError:
        return LogPart(attempt, pulse.attempt, request.stream, 0, 0, "", None, ended)
    offset = max(0, size + request.offset) if request.offset < 0 else min(request.offset, size)
    piece = read_piece(path, offset, request.limit, whole=ended)
    return LogPart(
        attempt=attempt,
        attempts=pulse.attempt,
        stream=request.stream,
        offset=offset,
        next_offset=piece.next_offset,
        text=piece.text,
        gap=piece.gap,
        ended=ended and piece.next_offset >= size,
    )


@dataclass(frozen=True, slots=True)
class FollowStart:
    """Where a follower begins: before ``offset`` of ``attempt`` everything was told already."""

    pulse: JobPulse
    stream: str
    attempt: int
    offset: int


def begin_follow(
    platform: Platform,
    identity: Identity,
    ref: str,
    stream: str,
    last_event_id: str | None = None,
    attempt: int | None = None,
) -> FollowStart:
    """Where to follow from: the event seen last, else the beginning of ``attempt`` (default: the first)."""
    _check(LogRequest(stream=stream))
    pulse = _pulse(platform, identity, ref)
    if last_event_id:
        found = _EVENT_ID.fullmatch(last_event_id)
        if found is None:
            fault = FieldFault("Last-Event-ID", ascii(last_event_id)[:80], "attempt:offset, as sent before")
            raise Invalid(faults=[fault])
        return FollowStart(pulse, stream, max(1, int(found[1])), int(found[2]))
    return FollowStart(pulse, stream, attempt or 1, 0)


def read_pulses(platform: Platform, job_ids: Collection[str]) -> dict[str, JobPulse]:
    """The pulses of many jobs in one reading, for all followers together."""
    with platform.database.read() as connection:
        return pulses(connection, job_ids)


def log_path(platform: Platform, job_id: str, attempt: int, stream: str) -> Path:
    """The file of one attempt and stream."""
    return platform.paths.logs(job_id) / f"{attempt}.{stream}"


def read_piece(path: Path, offset: int, bytes_max: int, *, whole: bool) -> Piece:
    """Read at most ``bytes_max`` bytes from ``offset``; raises ``FileNotFoundError``.

    Unless ``whole`` (nothing will follow), a character that is cut off at the end is left for the next time.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        start = _data_from(descriptor, offset, size)
        gap = Gap(offset, start) if start > offset else None
        data = os.pread(
            descriptor, max(0, min(bytes_max, _hole_from(descriptor, start, size) - start)), start
        )
    finally:
        os.close(descriptor)
    kept = data if whole and start + len(data) >= size else data[: _whole_characters(data)]
    return Piece(kept.decode("utf-8", "replace"), gap, start + len(kept))


def _data_from(descriptor: int, offset: int, size: int) -> int:
    """The first byte at or after ``offset`` that no hole has."""
    if offset >= size:
        return offset
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA)
    except OSError:
        return size  # a hole up to the end


def _hole_from(descriptor: int, offset: int, size: int) -> int:
    """The first byte after ``offset`` that a hole has; the size where there is none."""
    if offset >= size:
        return offset
    try:
        return os.lseek(descriptor, offset, os.SEEK_HOLE)
    except OSError:
        return size


def _whole_characters(data: bytes) -> int:
    """How many bytes of ``data`` end at the end of a character (UTF-8); broken ones count as whole."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            return len(data)
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if needed > back else len(data)
    return len(data)


def _pulse(platform: Platform, identity: Identity, ref: str) -> JobPulse:
    with platform.database.read() as connection:
        job = job_cases.find_job(connection, identity, ref)
        return pulses(connection, [job.id])[job.id]


def _check(request: LogRequest) -> None:
    faults = []
    if request.stream not in STREAMS:
        faults.append(FieldFault("stream", request.stream[:40], "out or err"))
    if not 1 <= request.limit <= BYTES_MAX:
        faults.append(FieldFault("limit", str(request.limit), f"1 to {BYTES_MAX} bytes"))
    if request.attempt is not None and not 1 <= request.attempt <= 999_999:
        faults.append(FieldFault("attempt", str(request.attempt), "an attempt, counted from 1"))
    if not -(2**50) <= request.offset <= 2**50:
        faults.append(FieldFault("offset", str(request.offset), "a byte offset; below zero: from the end"))
    if faults:
        raise Invalid(faults=faults)
