"""HTTP to the API: one place for the address, the token, repeats and problem documents.

Only connection errors are repeated, a few times, and only where a repeat is safe: the request never left, or
its method is safe to repeat, or it carries an ``Idempotency-Key``, which then stays the same.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

import httpx2

from starverse import __version__
from starverse.client.errors import ClientError, NotReachable, Refused, from_problem
from starverse.client.settings import Settings

API_PREFIX = "/api/v1"
REPEAT_PAUSES_SECONDS = (0.1, 0.3, 0.6)
UNANSWERED_PAUSES_SECONDS = (*REPEAT_PAUSES_SECONDS, 1.0, 2.0, 4.0, 8.0)
"""For a create that was sent and not answered: the server may have it, and is waited for to say so."""
TIMEOUT_CONNECT_SECONDS = 5.0
TIMEOUT_READ_SECONDS = 60.0
_SAFE_METHODS = frozenset({"GET", "HEAD", "PUT"})
_LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})

Query = Mapping[str, str | int | Sequence[str] | None]


@dataclass(frozen=True, slots=True)
class Call:
    """One request. ``path`` is below ``/api/v1`` and already quoted; ``None`` in ``query`` is left out.

    ``key`` is the idempotency key of a create. ``file`` is sent as it is, from its start.
    """

    method: str
    path: str
    query: Query = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    file: BinaryIO | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    key: str | None = None
    timeout_seconds: float = TIMEOUT_READ_SECONDS

    @property
    def repeatable(self) -> bool:
        return self.method in _SAFE_METHODS or self.key is not None


def new_key() -> str:
    """A fresh idempotency key."""
    return str(uuid.uuid4())


class Transport:
    """Sends calls; ``pause`` waits between repeats."""

    def __init__(self, settings: Settings, *, pause: Callable[[float], None] = time.sleep) -> None:
        self.settings = settings
        self.pause = pause
        self._http = _http_client(settings)

    def close(self) -> None:
        self._http.close()

    def send(self, call: Call) -> dict[str, Any]:
        """The answer's JSON object, ``{}`` when it has none; raises :class:`ClientError`."""
        response = self._answer(call, stream=False)
        if not response.content:
            return {}
        try:
            answer = response.json()
        except ValueError as error:
            raise self._not_ours(call, "the answer is not JSON") from error
        if not isinstance(answer, dict):
            raise self._not_ours(call, "the answer is not a JSON object")
        return answer

    def exists(self, call: Call) -> bool:
        """Whether a ``HEAD`` finds something."""
        try:
            self._answer(call, stream=False)
        except ClientError as error:
            if error.status == 404:
                return False
            raise
        return True

    def pages(self, call: Call, *, items_max: int | None = None) -> Iterator[dict[str, Any]]:
        """The items of a list, page after page; at most ``items_max`` of them."""
        cursor: str | None = None
        count = 0
        while True:
            query = {**call.query, "cursor": cursor}
            page = self.send(Call(call.method, call.path, query, headers=call.headers))
            for item in page.get("items", ()):
                if items_max is not None and count >= items_max:
                    return
                count += 1
                yield item
            cursor = page.get("next_cursor")
            if not cursor:
                return

    @contextmanager
    def stream(self, call: Call) -> Iterator[httpx2.Response]:
        """The open answer, to be read piece by piece; a broken connection raises :class:`NotReachable`."""
        response = self._answer(call, stream=True)
        try:
            yield response
        except httpx2.TransportError as error:
            raise NotReachable(self.settings.api, _why(error)) from error
        finally:
            response.close()

    def _answer(self, call: Call, *, stream: bool) -> httpx2.Response:
        response = self._send_repeating(call, stream=stream)
        if response.is_success:
            return response
        try:
            response.read()
            body = response.json() if response.content else None
        except (ValueError, httpx2.TransportError):
            body = None
        finally:
            response.close()
        raise from_problem(response.status_code, body, response.headers)

    def _send_repeating(self, call: Call, *, stream: bool) -> httpx2.Response:
        pauses: tuple[float, ...] = REPEAT_PAUSES_SECONDS
        repeats = 0
        while True:
            try:
                self._expect_socket()
                return self._http.send(self._request(call), stream=stream)
            except UnicodeEncodeError as error:
                raise _not_text(error) from error
            except httpx2.TransportError as error:
                if isinstance(error, (httpx2.ReadTimeout, httpx2.WriteTimeout)):
                    raise ClientError(
                        "timed_out",
                        f"the API at {self.settings.api} did not answer within {call.timeout_seconds:g} s",
                        hint="look whether it took effect before trying again",
                    ) from error
                never_left = isinstance(error, (httpx2.ConnectError, httpx2.ConnectTimeout))
                if not never_left and call.key is not None:
                    pauses = UNANSWERED_PAUSES_SECONDS
                if repeats == len(pauses) or not (never_left or call.repeatable):
                    raise NotReachable(self.settings.api, _why(error)) from error
            self.pause(pauses[repeats])
            repeats += 1

    def _expect_socket(self) -> None:
        """A Unix socket that is not there is told in its own words."""
        path = self.settings.socket_path
        if path is not None and not Path(path).exists():
            raise httpx2.ConnectError("there is no such socket")

    def _request(self, call: Call) -> httpx2.Request:
        headers = {"Accept": "application/json", **call.headers}
        if call.key is not None:
            headers["Idempotency-Key"] = call.key
        if call.file is not None:
            call.file.seek(0)
        return self._http.build_request(
            call.method,
            API_PREFIX + call.path,
            params=[pair for name, value in call.query.items() for pair in _pairs(name, value)],
            json=call.body,
            content=call.file,
            headers=headers,
            timeout=httpx2.Timeout(call.timeout_seconds, connect=TIMEOUT_CONNECT_SECONDS),
        )

    def _not_ours(self, call: Call, why: str) -> ClientError:
        return ClientError(
            "internal",
            f"{self.settings.api} does not speak the starverse API: {call.method} {call.path}: {why}",
            hint="check STARVERSE_API",
        )


def _http_client(settings: Settings) -> httpx2.Client:
    headers = {"User-Agent": f"starverse/{__version__}"}
    if settings.token and not (settings.token.isascii() and settings.token.isprintable()):
        raise Refused(
            "unauthenticated", "the token is not plain text", hint="`starverse login EMAIL` makes a new one"
        )
    if settings.token:
        headers["Authorization"] = f"Bearer {settings.token}"
    if settings.team:
        headers["X-Starverse-Team"] = _header_text(settings.team)
    if settings.socket_path is not None:
        transport = httpx2.HTTPTransport(uds=settings.socket_path, verify=False)
        return httpx2.Client(transport=transport, base_url="http://starverse", headers=headers)
    host = urlsplit(settings.api).hostname or ""
    return httpx2.Client(
        base_url=settings.api,
        headers=headers,
        verify=settings.api.startswith("https://"),
        trust_env=host not in _LOOPBACK_HOSTS,
    )


def _not_text(error: UnicodeEncodeError) -> Refused:
    """What was typed, or a name on this disk, has bytes that are not UTF-8."""
    around = error.object[max(0, error.start - 30) : error.end + 10]
    shown = around.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return Refused("invalid", f"not UTF-8 text: ...{shown}...", hint="write names and values in UTF-8")


def _header_text(text: str) -> str:
    """A team's name in a header: percent-encoded where it is not plain ASCII."""
    from urllib.parse import quote

    return text if text.isascii() and text.isprintable() else quote(text)


def _pairs(name: str, value: str | int | Sequence[str] | None) -> list[tuple[str, str]]:
    if value is None or value == "":
        return []
    if isinstance(value, bool):
        return [(name, "true" if value else "false")]
    if isinstance(value, (str, int)):
        return [(name, str(value))]
    return [(name, item) for item in value]


def _why(error: Exception) -> str:
    text = str(error) or type(error).__name__
    return text.removeprefix("[Errno ").partition("] ")[2] or text
