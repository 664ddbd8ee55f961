"""Apps of instances in the browser: links, and the proxy below ``/apps/INSTANCE_ID/PORT/``."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

from fastapi import Depends, Request
from starlette.concurrency import run_in_threadpool
from starlette.requests import HTTPConnection
from starlette.responses import RedirectResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from starverse.app import app_links
from starverse.app.app_links import SESSION_SECONDS, AppVisit
from starverse.app.inside import InsideInstances, Unreachable
from starverse.domain.errors import NotFound, StarverseError, Unauthenticated
from starverse.http.app_proxy.headers import COOKIE, Place, cookie_of
from starverse.http.app_proxy.requests import pass_on
from starverse.http.app_proxy.sockets import open_inner, pump
from starverse.http.problems import problem_response
from starverse.http.routing import make_router
from starverse.http.schemas_ssh import AppLinkIn, AppLinkOut
from starverse.http.security import PlatformDep, TeamCaller
from starverse.http.visits import Visits, origin_of, require_same_origin

LINK = "starverse-link"
ENDED = 1001
_PATH = re.compile(r"/apps/([0-9a-f-]{36})/([1-9][0-9]{0,4})(/.*)?", re.DOTALL)

router = make_router("instances")


def find_app(ref: str, body: AppLinkIn, platform: PlatformDep, identity: TeamCaller) -> Any:
    """Authorise and find the port, in a thread."""
    return app_links.find_app(platform, identity, ref, body.app)


@router.post("/instances/{ref}/app-links", status_code=201)
async def make_app_link(
    request: Request,
    platform: PlatformDep,
    wanted: Annotated[Any, Depends(find_app)],
) -> AppLinkOut:
    """A link that opens JupyterLab (started if need be) or a port of a running instance in a browser; it has
    to be opened within a minute, and then lets that browser in for twelve hours."""
    link = await app_links.make_link(platform, wanted, _inside(request))
    return AppLinkOut.of(link, url=origin_of(request) + link.path)


class AppProxy:
    """What is asked for below ``/apps/``, over HTTP and WebSocket."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send) if scope["type"] == "websocket" else None
        try:
            if socket is not None:
                await self._socket(socket)
            else:
                await self._request(scope, receive, send)
        except StarverseError as error:
            refusal = problem_response(str(scope.get("starverse_request_id", "")), error)
            if socket is not None:
                await socket.send_denial_response(refusal)
            else:
                await refusal(scope, receive, send)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        connection = HTTPConnection(scope)
        instance_id, port, rest = _asked(scope)
        if not rest:
            await RedirectResponse(f"{scope['path']}/", 307)(scope, receive, send)
            return
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        ticket = dict(query).get(LINK)
        if ticket is not None:
            await self._enter(connection, (ticket, instance_id, port), query)(scope, receive, send)
            return
        visit = await self._visit(connection, instance_id, port)
        pipe, place = await self._open(connection, visit)
        await pass_on(scope, receive, send, pipe, place)

    def _enter(
        self, connection: HTTPConnection, asked: tuple[str, str, int], query: list[tuple[str, str]]
    ) -> RedirectResponse:
        """A link's ticket becomes a cookie, and is gone from the address."""
        visit, cookie = app_links.open_link(connection.app.state.platform, *asked)
        rest = urlencode([(name, value) for name, value in query if name != LINK])
        answer = RedirectResponse(visit.prefix + (f"?{rest}" if rest else ""), 303)
        answer.set_cookie(
            COOKIE,
            cookie,
            max_age=SESSION_SECONDS,
            path=visit.prefix,
            secure=origin_of(connection).startswith("https"),
            httponly=True,
            samesite="lax",
        )
        answer.headers["Cache-Control"] = "no-store"
        return answer

    async def _socket(self, socket: WebSocket) -> None:
        require_same_origin(socket)
        instance_id, port, _ = _asked(socket.scope)
        visit = await self._visit(socket, instance_id, port)
        pipe, place = await self._open(socket, visit)
        raw = (socket.scope.get("raw_path") or socket.scope["path"].encode()).decode("latin-1")
        query = socket.scope["query_string"].decode("latin-1")
        inner = await open_inner(socket, pipe, place, place.path_inside(raw) + (f"?{query}" if query else ""))
        visits: Visits = socket.app.state.visits
        allocation_id = await visits.allocation_of(visit.visit)
        try:
            await socket.accept(inner.subprotocol)
            passing = asyncio.create_task(pump(socket, inner))
            ended = asyncio.create_task(visits.end_of(visit.visit, allocation_id))
            _, pending = await asyncio.wait({passing, ended}, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.wait(pending)
            if ended not in pending:
                with contextlib.suppress(RuntimeError):
                    await socket.close(ENDED, "ended")
        finally:
            pipe.close()

    async def _visit(self, connection: HTTPConnection, instance_id: str, port: int) -> AppVisit:
        cookie = cookie_of(connection.scope["headers"])
        if not cookie:
            raise Unauthenticated("Open this app by a link.", hint="`starverse open` makes one")
        platform = connection.app.state.platform
        return await run_in_threadpool(app_links.read_session, platform, cookie, instance_id, port)

    async def _open(self, connection: HTTPConnection, visit: AppVisit) -> tuple[Any, Place]:
        visits: Visits = connection.app.state.visits
        allocation_id = await visits.allocation_of(visit.visit)
        place = Place(
            origin=origin_of(connection),
            prefix=visit.prefix,
            port=visit.port,
            client=connection.client.host if connection.client else "",
            whole_path=visit.whole_path,
            authorization=visit.authorization,
        )
        return await _inside(connection).open_port(allocation_id, visit.port), place


def _inside(connection: HTTPConnection) -> InsideInstances:
    inside: InsideInstances | None = connection.app.state.inside
    if inside is None:
        raise Unreachable("There are no ways into instances here.")
    return inside


def _asked(scope: Scope) -> tuple[str, int, str]:
    """Instance, port and the path after them; raises ``NotFound``."""
    found = _PATH.fullmatch(scope["path"])
    if found is None:
        raise NotFound(f"There is no {scope['path'][:200]} here.")
    return found[1], int(found[2]), found[3] or ""
