"""What the client raises.

The API answers errors as problem+json (RFC 9457); :class:`ClientError` carries the same fields, so that the
CLI can print them and map ``code`` to an exit code. The list of codes is open: an unknown one is shown as it
came. The class does not derive from the server's hierarchy, which a client never imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing wrong in what was sent: where, what was given, what would be right."""

    field: str
    value: str
    expected: str

    def __str__(self) -> str:
        return f"{self.field}: {self.value!r}; expected {self.expected}"


class ClientError(Exception):
    """A request was refused, or never answered.

    ``status`` is the HTTP status, ``None`` when no answer came. ``request_id`` finds the request in the
    server's log. ``retry_after_seconds`` says when a repeat makes sense, ``None`` when unknown.
    """

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        hint: str | None = None,
        faults: tuple[Fault, ...] = (),
        status: int | None = None,
        request_id: str | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.hint = hint
        self.faults = faults
        self.status = status
        self.request_id = request_id
        self.retry_after_seconds = retry_after_seconds


class NotReachable(ClientError):
    """No answer came from the API: nothing listens there, or the connection broke."""

    def __init__(self, api: str, why: str) -> None:
        super().__init__(
            "unavailable",
            f"no answer from the API at {api}: {why}",
            hint="start it with `starverse up`, or set STARVERSE_API to where it runs",
        )


class Refused(ClientError):
    """The client itself refuses to send this; nothing left this machine."""

    def __init__(self, code: str, detail: str, *, hint: str | None = None) -> None:
        super().__init__(code, detail, hint=hint)


_CODE_BY_STATUS: Mapping[int, str] = {
    400: "invalid",
    401: "unauthenticated",
    402: "not_enough_money",
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    412: "conflict",
    413: "too_large",
    422: "invalid",
    429: "limit_exceeded",
    503: "unavailable",
    504: "timed_out",
    507: "no_capacity",
}


def from_problem(status: int, body: object, headers: Mapping[str, str]) -> ClientError:
    """The error in an answer; an answer that is not a problem document still gives a code by its status."""
    problem: Mapping[str, Any] = body if isinstance(body, dict) else {}
    faults = problem.get("faults")
    return ClientError(
        str(problem.get("code") or _CODE_BY_STATUS.get(status, "internal")),
        str(problem.get("detail") or problem.get("title") or _without_words(status)),
        hint=_text(problem.get("hint")),
        faults=tuple(_fault(item) for item in faults) if isinstance(faults, list) else (),
        status=status,
        request_id=_text(problem.get("request_id")) or headers.get("x-request-id"),
        retry_after_seconds=_seconds(problem.get("retry_after_seconds"), headers.get("retry-after")),
    )


def _without_words(status: int) -> str:
    """An answer to HEAD has no body: only its status speaks."""
    if status == 401:
        return "Sign in first: `starverse login EMAIL`, or set STARVERSE_TOKEN."
    return f"the API answered {status} without a reason"


def _fault(item: object) -> Fault:
    fault: Mapping[str, Any] = item if isinstance(item, dict) else {}
    return Fault(*(str(fault.get(name, "")) for name in ("field", "value", "expected")))


def _text(value: object) -> str | None:
    return str(value) if value else None


def _seconds(*values: object) -> int | None:
    for value in values:
        if str(value).isdecimal():
            return int(str(value))
    return None
