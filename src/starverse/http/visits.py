"""Whether somebody may still be where they are inside an instance: looked up while they are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from starverse.app.platform import Platform
from starverse.app.ssh_access import Visit, ended_visits, require_running
from starverse.domain.errors import Forbidden, StarverseError, Unavailable

CHECK_SECONDS = 3.0
REMEMBERED_MAX = 10_000


class Visits:
    """Remembers for a few seconds where an instance runs, so that a page of an app costs one look."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._found: dict[Visit, tuple[float, str]] = {}

    async def allocation_of(self, visit: Visit) -> str:
        """Where the instance runs; raises ``Forbidden`` where access has ended, ``Conflict`` where it does
        not run."""
        at, allocation_id = self._found.get(visit, (0.0, ""))
        if time.monotonic() - at < CHECK_SECONDS:
            return allocation_id
        allocation_id = await run_in_threadpool(self._look, visit)
        if len(self._found) >= REMEMBERED_MAX:
            self._found.clear()
        self._found[visit] = time.monotonic(), allocation_id
        return allocation_id

    async def end_of(
        self, visit: Visit, allocation_id: str, also: Callable[[], object] = lambda: None
    ) -> str:
        """Wait until the visit has to end; what to tell the visitor. ``also`` is asked too, in a thread: its
        error ends the visit."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            try:
                ended = await run_in_threadpool(ended_visits, self._platform, {(visit, allocation_id)})
                if ended:
                    return next(iter(ended.values()))
                await run_in_threadpool(also)
            except Unavailable:
                continue  # the database is away: the next round asks again
            except StarverseError as error:
                return error.detail

    def _look(self, visit: Visit) -> str:
        allocation_id = require_running(self._platform, visit)
        ended = ended_visits(self._platform, {(visit, allocation_id)})
        if ended:
            raise Forbidden(next(iter(ended.values())))
        return allocation_id


def origin_of(connection: HTTPConnection) -> str:
    """Scheme and host of this server, as the browser knows it."""
    scheme = {"ws": "http", "wss": "https"}.get(connection.url.scheme, connection.url.scheme)
    return f"{scheme}://{connection.url.netloc}"


def require_same_origin(connection: HTTPConnection) -> None:
    """A browser tells which page opens a WebSocket: only ours may. Who tells none is no browser."""
    origin = Headers(scope=connection.scope).get("origin")
    if origin is not None and origin.lower() != origin_of(connection).lower():
        raise Forbidden("Pages of another origin may not open this.")
