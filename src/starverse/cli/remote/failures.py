"""Printing an error and choosing the exit code: one place for text, JSON and every kind of failure."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from starverse.cli.remote import exit_codes
from starverse.cli.remote.session import JSON_VERSION, Session
from starverse.cli.remote.tables import visible

FAULTS_SHOWN = 10
"""As text; ``--json`` has them all."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What is told about a failure; ``faults`` are ``(field, value, expected)``."""

    code: str
    detail: str
    hint: str | None = None
    request_id: str | None = None
    faults: tuple[tuple[str, str, str], ...] = ()
    retry_after_seconds: int | None = None


def failure_of(error: BaseException) -> Failure | None:
    """The failure in an error that carries a ``code`` and a ``detail``; ``None`` for any other exception.

    Errors of the client and of the product's own hierarchy look alike here; neither is imported.
    """
    code, detail = getattr(error, "code", None), getattr(error, "detail", None)
    if not isinstance(code, str) or not isinstance(detail, str):
        return None
    faults: Any = getattr(error, "faults", ())
    return Failure(
        code,
        detail,
        getattr(error, "hint", None),
        getattr(error, "request_id", None),
        tuple((str(fault.field), str(fault.value), str(fault.expected)) for fault in faults),
        getattr(error, "retry_after_seconds", None),
    )


def report(session: Session, failure: Failure) -> int:
    """Print the failure on stderr; the exit code."""
    if session.json:
        error: dict[str, Any] = {
            "code": failure.code,
            "detail": failure.detail,
            "hint": failure.hint,
            "request_id": failure.request_id,
            "faults": [
                {"field": field, "value": value, "expected": expected}
                for field, value, expected in failure.faults
            ],
        }
        if failure.retry_after_seconds:
            error["retry_after_seconds"] = failure.retry_after_seconds
        session.note(json.dumps({"version": JSON_VERSION, "error": error}, ensure_ascii=False))
    else:
        session.note("\n".join(_lines(failure)))
    return exit_codes.exit_code_of(failure.code)


def _lines(failure: Failure) -> list[str]:
    lines = []
    if len(failure.faults) > 1:
        lines.append(f"starverse: {len(failure.faults)} things are wrong")
    else:
        lines.append("starverse: " + "\n  ".join(visible(line) for line in failure.detail.splitlines()))
    for field, value, expected in failure.faults[:FAULTS_SHOWN] if len(failure.faults) > 1 else ():
        lines.append(f"  {visible(field)}: {visible(repr(value))}; expected {visible(expected)}")
    if len(failure.faults) > FAULTS_SHOWN:
        lines.append(f"  and {len(failure.faults) - FAULTS_SHOWN} more")
    if failure.hint:
        lines.append(f"hint: {visible(failure.hint)}")
    if failure.retry_after_seconds:
        lines.append(f"try again in {failure.retry_after_seconds} s")
    if failure.request_id and failure.code == "internal":
        lines.append(f"request id: {failure.request_id}")
    return lines
