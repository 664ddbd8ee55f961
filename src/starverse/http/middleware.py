"""What every request passes: an id, a limit on its body, security headers, a time in the metrics.

Plain ASGI, so that streams pass untouched.
"""

from __future__ import annotations

import re
import secrets
import time

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from starverse.domain.errors import StarverseError, TooLarge
from starverse.domain.sbatch.scripts import SCRIPT_BYTES_MAX
from starverse.http.metrics import RequestMetrics
from starverse.http.problems import problem_response

BODY_BYTES_MAX = 2 * SCRIPT_BYTES_MAX + 1024**2
"""For JSON bodies: the largest script as JSON writes it, and what goes with it. Uploads of folders and files
have limits of their own."""

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_UPLOAD = re.compile(r"/api/v1/(?:folders/[^/]+|jobs/[^/]+/files/.+)")
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_API_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}

_log = structlog.get_logger(__name__)


class Envelope:
    """Outermost middleware: request id in and out, headers, metrics, an answer for what nobody caught."""

    def __init__(self, app: ASGIApp, metrics: RequestMetrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _REQUEST_ID.fullmatch(given) else secrets.token_hex(8)
        scope["starverse_request_id"] = request_id
        started = time.perf_counter()
        status = 0

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                _complete(MutableHeaders(scope=message), request_id, scope["path"])
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except Exception as error:
            _log.error("request failed", path=scope["path"], request_id=request_id, exc_info=error)
            if status:
                raise
            await problem_response(request_id, StarverseError())(scope, receive, send_with_headers)
        finally:
            route = getattr(scope.get("route"), "path", "(none)")
            self.metrics.observe(scope["method"], route, status, time.perf_counter() - started)


def _complete(headers: MutableHeaders, request_id: str, path: str) -> None:
    headers["X-Request-Id"] = request_id
    wanted = {**_HEADERS, **(_API_HEADERS if path.startswith("/api/") else {})}
    for name, value in wanted.items():
        headers.setdefault(name, value)


def _is_upload(scope: Scope) -> bool:
    """What streams on: uploads, and whatever is meant for an app inside an instance."""
    if scope["path"].startswith("/apps/"):
        return True
    return scope["method"] == "PUT" and _UPLOAD.fullmatch(scope["path"]) is not None


class BodyLimit:
    """Refuses a body over the limit, by its declared length or as soon as too much has come."""

    def __init__(self, app: ASGIApp, bytes_max: int = BODY_BYTES_MAX) -> None:
        self.app = app
        self.bytes_max = bytes_max

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or _is_upload(scope):
            await self.app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "0")
        if declared.isdigit() and int(declared) > self.bytes_max:
            await problem_response(scope.get("starverse_request_id", ""), self._refusal())(
                scope, receive, send
            )
            return
        came = 0

        async def receive_counting() -> Message:
            nonlocal came
            message = await receive()
            came += len(message.get("body", b""))
            if came > self.bytes_max:
                raise self._refusal()
            return message

        await self.app(scope, receive_counting, send)

    def _refusal(self) -> TooLarge:
        return TooLarge(f"The body is over {self.bytes_max} bytes.")
