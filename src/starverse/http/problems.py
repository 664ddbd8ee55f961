"""Errors as ``application/problem+json`` (RFC 9457): the one place where error classes become statuses."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from starverse.app.etags import Changed
from starverse.domain.errors import (
    Conflict,
    FieldFault,
    Forbidden,
    Invalid,
    InvariantBroken,
    LimitExceeded,
    NoCapacity,
    NotEnoughMoney,
    NotFound,
    StarverseError,
    TimedOut,
    TooLarge,
    Unauthenticated,
    Unavailable,
)
from starverse.domain.wrong_input import expected_of

MEDIA_TYPE = "application/problem+json"

STATUS_OF: Mapping[type[StarverseError], int] = {
    Unauthenticated: 401,
    NotEnoughMoney: 402,
    Forbidden: 403,
    NotFound: 404,
    Conflict: 409,
    Changed: 412,
    TooLarge: 413,
    Invalid: 422,
    LimitExceeded: 429,
    Unavailable: 503,
    TimedOut: 504,
    NoCapacity: 507,
    InvariantBroken: 500,
    StarverseError: 500,
}
"""The status of an error class; a class not named here has that of its nearest named parent."""

STATUS_OF_CODE: Mapping[str, int] = {"engine_unavailable": 503}
"""Statuses of errors whose classes are made in layers that the API does not import."""

RETRY_SECONDS_UNAVAILABLE = 5
_FOR_THE_OPERATOR = frozenset({503, 504})
"""No fault of the program, and yet for the operator to see; others above 500 are ordinary answers."""

_log = structlog.get_logger(__name__)


class Fault(BaseModel):
    """One thing wrong in a request: where, what was given, what would be right."""

    field: str
    value: str
    expected: str


class Problem(BaseModel):
    """What every error answers; ``code`` is stable, ``detail`` and ``hint`` are for people."""

    type: str = Field(examples=["urn:starverse:problem:not_found"])
    title: str
    status: int
    code: str = Field(examples=["not_found"])
    detail: str
    hint: str | None = None
    request_id: str
    faults: list[Fault] = Field(default_factory=list)
    retry_after_seconds: int | None = None


PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {
    "default": {
        "description": "An error; `code` says which",
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}


def with_schemas(description: dict[str, Any]) -> dict[str, Any]:
    """An OpenAPI description with the shapes of problems, which its ``default`` responses name."""
    schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
    inner = schema.pop("$defs", {})
    description["components"]["schemas"].update({"Problem": schema, **inner})
    return description


def status_of(error: StarverseError) -> int:
    """The HTTP status of an error."""
    if error.code in STATUS_OF_CODE:
        return STATUS_OF_CODE[error.code]
    return next(STATUS_OF[cls] for cls in type(error).__mro__ if cls in STATUS_OF)


def problem_response(request_id: str, error: StarverseError) -> JSONResponse:
    """The answer for an error of the hierarchy."""
    status = status_of(error)
    faults = error.faults if isinstance(error, Invalid) else ()
    retry_after = error.retry_after_seconds if isinstance(error, LimitExceeded) else None
    if status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after is None:
        retry_after = RETRY_SECONDS_UNAVAILABLE
    headers = {}
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return _respond(request_id, status, error.code, error.detail, error.hint, faults, retry_after, headers)


def install(app: FastAPI) -> None:
    """Answer every error of the app in the one shape."""
    app.add_exception_handler(StarverseError, _on_starverse_error)
    app.add_exception_handler(RequestValidationError, _on_validation_error)
    app.add_exception_handler(HTTPException, _on_http_exception)


def request_id_of(request: Request) -> str:
    """The id that the middleware gave this request."""
    return str(request.scope.get("starverse_request_id", ""))


async def _on_starverse_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, StarverseError)
    status = status_of(error)
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        fault = status == HTTPStatus.INTERNAL_SERVER_ERROR
        _log.log(
            logging.ERROR if fault else logging.WARNING if status in _FOR_THE_OPERATOR else logging.INFO,
            "request failed",
            code=error.code,
            detail=error.detail,
            context=error.context,
            request_id=request_id_of(request),
            **({"exc_info": error} if fault else {}),
        )
    return problem_response(request_id_of(request), error)


async def _on_validation_error(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    quiet = "/secrets/" in request.url.path
    faults = [_fault(found, quiet) for found in error.errors()]
    return problem_response(request_id_of(request), Invalid(faults=faults))


async def _on_http_exception(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.BAD_REQUEST:  # the framework could not read the body at all
        unread = Invalid(faults=[FieldFault("body", "unreadable", "valid JSON in UTF-8, not too deep")])
        return problem_response(request_id_of(request), unread)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid")
    detail = {
        404: f"There is no {request.url.path} here.",
        405: f"{request.method} does not apply to {request.url.path}.",
    }.get(error.status_code, str(error.detail))
    return _respond(
        request_id_of(request), error.status_code, code, detail, None, (), None, dict(error.headers or {})
    )


def _fault(found: Mapping[str, Any], quiet: bool) -> FieldFault:
    """A pydantic finding as a fault: ``body.cards`` reads ``cards``; secrets are never repeated, whatever
    the name under which they came (``quiet``: nothing that was given is)."""
    location = [str(part) for part in found["loc"] if part not in ("body", "query", "path", "header")]
    broken = found["type"] == "json_invalid"
    field = f"body, character {location[-1]}" if broken and location else ".".join(location) or "body"
    given = found.get("input")
    if found["type"] == "unsound_text":
        context = found["ctx"]
        return FieldFault(
            context["place"][:200].encode("utf-8", "replace").decode().replace("\0", "\\0"),
            context["found"],
            "text without NUL and without half of a character (lone surrogates)",
        )
    if found["type"] == "missing":
        shown = "missing"
    elif quiet or "password" in field or isinstance(given, (dict, list, bytes)):
        shown = type(given).__name__
    else:
        shown = str(given)[:80].encode("utf-8", "replace").decode()
    if broken:
        shown = "no JSON"
    return FieldFault(field[:200].encode("utf-8", "replace").decode(), shown, expected_of(found))


def _respond(
    request_id: str,
    status: int,
    code: str,
    detail: str,
    hint: str | None,
    faults: Sequence[FieldFault],
    retry_after: int | None,
    headers: Mapping[str, str],
) -> JSONResponse:
    problem = Problem(
        type=f"urn:starverse:problem:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        code=code,
        detail=_printable(detail),
        hint=None if hint is None else _printable(hint),
        request_id=request_id,
        faults=[Fault(field=f.field, value=_printable(f.value), expected=f.expected) for f in faults],
        retry_after_seconds=retry_after,
    )
    content = problem.model_dump(exclude={"retry_after_seconds"} if retry_after is None else None)
    return JSONResponse(content, status_code=status, headers=dict(headers), media_type=MEDIA_TYPE)


def _printable(text: str) -> str:
    """Text that any JSON reader takes: lone surrogates are replaced."""
    return text.encode("utf-8", "replace").decode()
