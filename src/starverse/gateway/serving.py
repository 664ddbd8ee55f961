"""The SSH gateway of one server: a thread with an event loop of its own.

It listens, lets visitors in, and every few seconds ends the visits that the record no longer allows: a key
or a member that was removed, an instance that stopped. Any number of servers do the same beside each other,
with the same keys.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import asyncssh
import structlog

from starverse.app import ssh_access
from starverse.app.gateway_keys import GatewayKeys
from starverse.app.platform import Platform
from starverse.app.ssh_access import Ambiguous, Located, Visit
from starverse.domain.errors import Unavailable
from starverse.gateway.door import GOODBYE_SECONDS, Door, House
from starverse.gateway.inside import Inside
from starverse.gateway.limits import Doorkeeper, DoorLimits

SWEEP_SECONDS = 2.0
LOGIN_SECONDS = 30.0
KEEP_ALIVE_SECONDS = 30.0
KEEP_ALIVES_MISSED_MAX = 4
RECORD_READERS = 4
BACKLOG = 256
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com", "aes128-ctr", "aes256-ctr")

RESTARTING = "The platform is being restarted; your instance goes on. Connect again in a moment."

T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Stay:
    visit: Visit
    allocation_id: str


class Gateway:
    """Serves from :meth:`start` to :meth:`close`. ``listener`` is bound and listening already."""

    def __init__(
        self,
        platform: Platform,
        keys: GatewayKeys,
        inside: Inside,
        listener: socket.socket,
        limits: DoorLimits | None = None,
    ) -> None:
        self._platform = platform
        self._keys = keys
        self._listener = listener
        self._readers = ThreadPoolExecutor(RECORD_READERS, thread_name_prefix="gateway-record")
        self._house = House(self._admit, self._locate, inside, Doorkeeper(limits), self._arrived, self._left)
        self._stays: dict[Door, _Stay] = {}
        self._uses: dict[str, datetime] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="gateway", daemon=True)
        self._ready = threading.Event()

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def close(self) -> None:
        """Hang up on everybody."""
        if self._loop is not None and self._stopping is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stopping.set)
            self._thread.join()
        self._readers.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        asyncssh.set_log_level("ERROR")
        acceptor = await asyncssh.listen(sock=self._listener, options=self._options())
        self._ready.set()
        sweeping = self._loop.create_task(self._sweep())
        try:
            await self._stopping.wait()
        finally:
            sweeping.cancel()
            acceptor.close()
            await self._say_goodbye()

    async def _say_goodbye(self) -> None:
        """Most visitors go by themselves as their sessions end; the others are hung up on."""
        doors = list(self._stays)
        for door in doors:
            door.end(RESTARTING)
        give_up = asyncio.get_running_loop().time() + GOODBYE_SECONDS
        while self._stays and asyncio.get_running_loop().time() < give_up:
            await asyncio.sleep(0.05)
        for door in list(self._stays):
            door.hang_up()

    def _options(self) -> asyncssh.SSHServerConnectionOptions:
        return asyncssh.SSHServerConnectionOptions(
            config=None,
            server_factory=lambda: Door(self._house),
            server_host_keys=[(str(self._keys.host_key), str(self._keys.host_certificate))],
            server_version="starverse",
            encryption_algs=list(CIPHERS),
            compression_algs=["none"],
            public_key_auth=True,
            password_auth=False,
            kbdint_auth=False,
            host_based_auth=False,
            gss_host=None,
            agent_forwarding=False,
            x11_forwarding=False,
            allow_scp=False,
            line_editor=False,
            encoding=None,
            login_timeout=LOGIN_SECONDS,
            keepalive_interval=KEEP_ALIVE_SECONDS,
            keepalive_count_max=KEEP_ALIVES_MISSED_MAX,
        )

    # -- what the record says, read in threads

    async def _admit(self, fingerprint: str, name: str) -> Visit | Ambiguous | None:
        return await self._read(lambda: ssh_access.admit_by_key(self._platform, fingerprint, name), None)

    async def _locate(self, visit: Visit) -> Located:
        away = Located(None, "The platform cannot look the instance up right now; try again.")
        return await self._read(lambda: ssh_access.locate(self._platform, visit), away)

    async def _read(self, ask: Callable[[], T], away: T) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, ask)
        except Unavailable:
            return away

    # -- who is inside

    def _arrived(self, door: Door, visit: Visit, allocation_id: str) -> None:
        self._stays[door] = _Stay(visit, allocation_id)
        asyncio.get_running_loop().run_in_executor(self._readers, self._note_use, visit)

    def _left(self, door: Door) -> None:
        self._stays.pop(door, None)

    def _note_use(self, visit: Visit) -> None:
        with contextlib.suppress(Unavailable):
            key = visit.way.key_id
            self._uses[key] = ssh_access.note_visit(self._platform, visit, self._uses.get(key))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            stays = {door: (stay.visit, stay.allocation_id) for door, stay in self._stays.items()}
            ended = await self._ended(frozenset(stays.values()))
            for door, stay in stays.items():
                if stay in ended:
                    door.end(ended[stay])

    async def _ended(self, stays: frozenset[tuple[Visit, str]]) -> dict[tuple[Visit, str], str]:
        """Which of them have to end; none where that cannot be looked up: the next round asks again."""
        try:
            return await self._read(lambda: ssh_access.ended_visits(self._platform, stays), {})
        except Exception as error:
            log.error("the gateway cannot look up its visits", exc_info=error)
            return {}


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is there: what comes into instances costs a third less with it."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
