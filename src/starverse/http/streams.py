"""Following a log by server-sent events: ``async``, touching files only, in threads of its own."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Header, Query, Request
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event

from starverse.app import logs
from starverse.app.logs import FollowStart, JobPulse, LogRequest, Piece
from starverse.domain.timespan import format_instant
from starverse.http.pulses import PulseHub
from starverse.http.routing import make_router
from starverse.http.schemas_jobs import LogOut
from starverse.http.security import AnyCaller, PlatformDep

PAUSE_SECONDS = 0.2
KEEP_ALIVE_SECONDS = 15.0
READERS = 8

router = make_router("logs", "/jobs")


class Follower:
    """Turns a growing log into events, attempt after attempt, until its job has ended."""

    def __init__(
        self, start: FollowStart, path_of: Callable[[int], Path], readers: ThreadPoolExecutor
    ) -> None:
        self._attempt, self._offset = start.attempt, start.offset
        self._path_of = path_of
        self._readers = readers
        self._notice: tuple[int, datetime] | None = None

    async def events(self, newest: Callable[[], JobPulse]) -> AsyncIterator[bytes]:
        """Encoded events; a comment where nothing happened for a while."""
        spoke_at = time.monotonic()
        while True:
            pulse = newest()  # before the file: what had ended then is in the file whole
            spoke = False
            async for event in self._news(pulse):
                spoke = True
                yield event
            if spoke:
                spoke_at = time.monotonic()
                continue
            if self._attempt < pulse.attempt:
                self._attempt, self._offset = self._attempt + 1, 0
                continue
            if pulse.ended:
                yield _event("end", self._id(), _end(pulse))
                return
            if time.monotonic() - spoke_at > KEEP_ALIVE_SECONDS:
                spoke_at = time.monotonic()
                yield format_sse_event(comment="still here")
            await asyncio.sleep(PAUSE_SECONDS)

    async def _news(self, pulse: JobPulse) -> AsyncIterator[bytes]:
        whole = self._attempt < pulse.attempt or not pulse.running
        piece = await self._read(whole)
        if piece is not None and piece.gap is not None:
            self._offset = piece.gap.end
            yield _event("gap", self._id(), {"from": piece.gap.start, "to": piece.gap.end})
        if piece is not None and piece.next_offset > self._offset:
            self._offset = piece.next_offset
            yield _event("log", self._id(), {"text": piece.text})
        if pulse.notice is not None and self._attempt == pulse.attempt:
            reason, deadline = pulse.notice
            if self._notice != (pulse.attempt, deadline):
                self._notice = (pulse.attempt, deadline)
                said = {"reason": reason, "deadline": format_instant(deadline)}
                yield _event("notice", self._id(), said)

    async def _read(self, whole: bool) -> Piece | None:
        path = self._path_of(self._attempt)
        try:
            if path.stat().st_size <= self._offset:
                return None
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(
                self._readers,
                lambda: logs.read_piece(path, self._offset, logs.FOLLOW_BYTES, whole=whole),
            )
        except FileNotFoundError:
            return None

    def _id(self) -> str:
        return f"{self._attempt}:{self._offset}"


def _event(kind: str, event_id: str, data: dict[str, Any]) -> bytes:
    return format_sse_event(event=kind, id=event_id, data_str=json.dumps(data, ensure_ascii=False))


def _end(pulse: JobPulse) -> dict[str, Any]:
    return {
        "state": pulse.state.value,
        "reason": pulse.reason,
        "exit_code": pulse.exit_code,
        "exit_signal": pulse.exit_signal,
    }


def begin(
    ref: str,
    platform: PlatformDep,
    identity: AnyCaller,
    stream: Annotated[str, Query(description="out or err", max_length=10)] = "out",
    attempt: Annotated[int | None, Query(ge=1, le=999_999, description="Begin with this attempt")] = None,
    last_event_id: Annotated[str | None, Header(max_length=100)] = None,
) -> FollowStart:
    """Authorise and find the place, in a thread: the one look at the database."""
    return logs.begin_follow(platform, identity, ref, stream, last_event_id, attempt)


@router.get("/{ref}/logs")
def read_log(
    ref: str,
    platform: PlatformDep,
    identity: AnyCaller,
    attempt: Annotated[int | None, Query(description="Default: the newest")] = None,
    stream: Annotated[str, Query(description="out or err", max_length=10)] = "out",
    offset: Annotated[int, Query(description="In bytes; below zero: from the end")] = 0,
    limit: Annotated[int, Query(description="In bytes")] = logs.BYTES_DEFAULT,
) -> LogOut:
    """A part of a log. Where the cap removed the oldest bytes, ``gap`` says which."""
    request = LogRequest(attempt, stream, offset, limit)
    return LogOut.of(logs.read_log(platform, identity, ref, request))


@router.get(
    "/{ref}/logs:follow",
    response_class=StreamingResponse,
    responses={200: {"description": "Server-sent events", "content": {"text/event-stream": {}}}},
)
async def follow_log(
    request: Request, platform: PlatformDep, start: Annotated[FollowStart, Depends(begin)]
) -> StreamingResponse:
    """Follow a log over all attempts to the end of the job.

    Events ``log`` {text}, ``gap`` {from, to}, ``notice`` {reason, deadline}, ``end`` {state, exit_code}; an
    event's id is ``attempt:offset``, and ``Last-Event-ID`` goes on from there.
    """
    hub: PulseHub = request.app.state.pulses
    readers: ThreadPoolExecutor = request.app.state.log_readers

    async def events() -> AsyncIterator[bytes]:
        with hub.watch(start.pulse) as newest:
            follower = Follower(
                start, lambda a: logs.log_path(platform, start.pulse.job_id, a, start.stream), readers
            )
            async for event in follower.events(newest):
                yield event

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events(), media_type="text/event-stream", headers=headers)
