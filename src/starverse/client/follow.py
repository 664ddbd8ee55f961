"""Following a job's log over server-sent events, across broken connections and server restarts.

An event's id is ``attempt:byte offset``; after a break the stream is asked for again with the last id seen
(``Last-Event-ID``), so nothing is lost or shown twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from starverse.client.errors import ClientError, NotReachable
from starverse.client.transport import Call, Transport
from starverse.client.waiting import GIVE_UP_SECONDS, is_away

PAUSE_SECONDS_FIRST = 0.2
PAUSE_SECONDS_MAX = 5.0
_SILENCE_SECONDS_MAX = 90.0


@dataclass(frozen=True, slots=True)
class Event:
    """``kind`` is ``log``, ``gap``, ``notice`` or ``end``; newer servers may send more."""

    kind: str
    data: dict[str, Any]
    id: str | None = None


def parse_events(pieces: Iterable[bytes]) -> Iterator[Event]:
    """Events of a server-sent stream (WHATWG HTML, 9.2.6); one cut off by the end of the bytes is dropped."""
    kind, data, event_id = "message", list[str](), None
    for line in _lines(pieces):
        if not line:
            if data:
                yield Event(kind, _object("\n".join(data)), event_id)
            kind, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            kind = value
        elif name == "data":
            data.append(value)
        elif name == "id":
            event_id = value


def _lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """Whole lines; only LF and CRLF end one, whatever else Unicode calls a line break."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r").decode("utf-8", "replace")


def follow(
    transport: Transport,
    call: Call,
    *,
    last_event_id: str | None = None,
    on_break: Callable[[ClientError], None] = lambda error: None,
) -> Iterator[Event]:
    """The events of ``call`` up to and with ``end``.

    ``on_break`` hears of each broken connection before the next try. Raises :class:`ClientError` when the
    API refuses, or stays away for ``GIVE_UP_SECONDS``.
    """
    away_seconds, pause_seconds = 0.0, PAUSE_SECONDS_FIRST
    while True:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        attempt = Call("GET", call.path, call.query, headers=headers, timeout_seconds=_SILENCE_SECONDS_MAX)
        try:
            with transport.stream(attempt) as response:
                for event in parse_events(response.iter_bytes()):
                    last_event_id = event.id or last_event_id
                    away_seconds, pause_seconds = 0.0, PAUSE_SECONDS_FIRST
                    yield event
                    if event.kind == "end":
                        return
            broken: ClientError = NotReachable(transport.settings.api, "it closed the stream")
        except ClientError as error:
            if not is_away(error):
                raise
            broken = error
        if away_seconds >= GIVE_UP_SECONDS:
            raise broken
        on_break(broken)
        transport.pause(pause_seconds)
        away_seconds += pause_seconds
        pause_seconds = min(pause_seconds * 2, PAUSE_SECONDS_MAX)


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {"text": text}
    return value if isinstance(value, dict) else {"text": text}
