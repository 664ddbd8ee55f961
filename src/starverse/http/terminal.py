"""The web terminal: a WebSocket to a shell inside an instance.

Bytes go both ways as binary messages. Text messages are JSON, from the browser ``{"type": "resize",
"cols": 120, "rows": 40}``, to it ``{"type": "exit", "code": 0}`` or ``{"type": "ended", "message": "..."}``,
after which the server closes. The token comes as ``Authorization``, or, as browsers cannot send that, as the
subprotocol ``bearer.TOKEN`` beside ``starverse.terminal``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from dataclasses import dataclass
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from starverse.app import auth
from starverse.app.identity import Identity
from starverse.app.inside import InsideInstances, Terminal, Unreachable
from starverse.app.platform import Platform
from starverse.app.ssh_access import Visit, admit_by_sign_in, require_running
from starverse.domain.errors import FieldFault, Forbidden, Invalid, StarverseError
from starverse.http.problems import problem_response
from starverse.http.visits import Visits, require_same_origin

SUBPROTOCOL = "starverse.terminal"
BEARER = "bearer."
CELLS_MAX = 1000
BAD_MESSAGE = 1008
ENDED = 1001


@dataclass(frozen=True, slots=True)
class _Guest:
    """Who has the terminal, by which token, and where."""

    token: str | None
    team: str | None
    visit: Visit
    allocation_id: str


async def terminal(socket: WebSocket) -> None:
    """Open a shell inside the instance named in the path, and pass bytes until one side ends."""
    platform: Platform = socket.app.state.platform
    inside: InsideInstances | None = socket.app.state.inside
    try:
        require_same_origin(socket)
        size = _size(socket.query_params)
        guest = await run_in_threadpool(_admit, platform, socket)
        if inside is None:
            raise Unreachable("There are no ways into instances here.")
        shell = await inside.open_terminal(guest.allocation_id, *size)
    except StarverseError as error:
        await socket.send_denial_response(problem_response("", error))
        return
    try:
        offered = socket.scope.get("subprotocols", [])
        await socket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)
        await _serve(socket, shell, guest)
    finally:
        shell.close()


async def _serve(socket: WebSocket, shell: Terminal, guest: _Guest) -> None:
    platform: Platform = socket.app.state.platform
    visits: Visits = socket.app.state.visits

    def signed_in() -> Identity:
        return auth.identify(platform, guest.token, guest.team)

    out = asyncio.create_task(_to_browser(socket, shell))
    into = asyncio.create_task(_to_shell(socket, shell))
    ended = asyncio.create_task(visits.end_of(guest.visit, guest.allocation_id, signed_in))
    done, pending = await asyncio.wait({out, into, ended}, return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    await asyncio.wait(pending)
    with contextlib.suppress(WebSocketDisconnect, RuntimeError):  # the browser may be gone already
        if out in done and out.exception() is None:
            code = shell.exit_code()
            await socket.send_text(json.dumps({"type": "exit", "code": code}))
            await socket.close(1000, f"exit {code}")
        elif ended in done:
            await socket.send_text(json.dumps({"type": "ended", "message": ended.result()}))
            await socket.close(ENDED, "ended")
        elif into in done and isinstance(into.exception(), ValueError):
            await socket.close(BAD_MESSAGE, "no message of this protocol")
        elif out in done:
            await socket.close(1011, "the connection into the instance has ended")


async def _to_browser(socket: WebSocket, shell: Terminal) -> None:
    """What the shell says; no more of it is read than the browser takes."""
    while data := await shell.read():
        await socket.send_bytes(data)


async def _to_shell(socket: WebSocket, shell: Terminal) -> None:
    """What the browser says; raises ``ValueError`` on a message that is none of this protocol."""
    while True:
        message = await socket.receive()
        if message["type"] != "websocket.receive":
            return
        if message.get("bytes") is not None:
            await shell.write(message["bytes"])
        else:
            shell.resize(*_read_resize(message["text"]))


def _read_resize(text: str) -> tuple[int, int]:
    try:
        said: Any = json.loads(text)
        if said["type"] != "resize":
            raise ValueError(said["type"])
        return _cells(said["cols"]), _cells(said["rows"])
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(text[:80]) from error


def _cells(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= CELLS_MAX:
        raise ValueError(value)
    return value


def _size(query: Any) -> tuple[int, int]:
    """The terminal's size from ``cols`` and ``rows``; raises ``Invalid``."""
    faults, size = [], []
    for name, default in (("cols", "80"), ("rows", "24")):
        text = str(query.get(name, default))
        if text.isascii() and text.isdecimal() and len(text) <= 4 and 1 <= int(text) <= CELLS_MAX:
            size.append(int(text))
        else:
            faults.append(FieldFault(name, text[:40], f"1 to {CELLS_MAX}"))
    if faults:
        raise Invalid(faults=faults)
    return size[0], size[1]


def _admit(platform: Platform, socket: WebSocket) -> _Guest:
    token, team = _token(socket), socket.query_params.get("team")
    identity = auth.identify(platform, token, team)
    if identity.scope == "workload":
        raise Forbidden("A token of a running workload may not do this.", hint="Use your own token.")
    ref = str(socket.path_params["ref"])
    if "\0" in ref:
        raise Invalid(faults=[FieldFault("ref", ascii(ref)[:80], "text without NUL")])
    visit = admit_by_sign_in(platform, identity, ref)
    return _Guest(token, team, visit, require_running(platform, visit))


def _token(socket: WebSocket) -> str | None:
    scheme, _, token = socket.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token:
        return token.strip()
    for name in socket.scope.get("subprotocols", []):
        if name.startswith(BEARER):
            return str(name.removeprefix(BEARER))
    return None


ROUTE = WebSocketRoute("/api/v1/instances/{ref}/terminal", terminal)
