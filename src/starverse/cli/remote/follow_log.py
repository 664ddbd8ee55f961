"""Printing a job's log as it grows: the text to stdout, everything about it to stderr."""

from __future__ import annotations

from typing import Any

from starverse.cli.remote.session import Session
from starverse.cli.remote.telling import tell_break


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
