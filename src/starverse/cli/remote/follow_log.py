"""Printing a job's log as it grows: the text to stdout, everything about it to stderr."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starverse.cli.remote.session import Session


def tell_break(session: Session) -> Callable[[Exception], None]:
    """Says once per break that the connection is being made again."""
    told: list[str] = []

    def tell(error: Exception) -> None:
        if str(error) not in told:
            told.append(str(error))
            session.note(f"connection lost ({error}); trying again")

    return tell


def print_log(
    session: Session, ref: str, *, attempt: int | None = None, stream: str = "out"
) -> dict[str, Any]:
    """Follow a log to the job's end; the data of the ``end`` event, ``{}`` when there was none."""
    events = session.client().jobs.follow_log(
        ref, attempt=attempt, stream=stream, on_break=tell_break(session)
    )
    for event in events:
        if event.kind == "log":
            session.write(str(event.data.get("text", "")))
        elif event.kind == "gap":
            session.note(
                f"[the oldest part of the log is gone: bytes {event.data.get('from')} "
                f"to {event.data.get('to')}]"
            )
        elif event.kind == "notice":
            text = event.data.get("text") or event.data.get("message") or event.data.get("reason")
            session.note(f"[notice: {text}]")
        elif event.kind == "end":
            return event.data
    return {}
