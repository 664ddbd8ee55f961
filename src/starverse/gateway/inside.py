"""SSH connections to the ``sshd -i`` inside an allocation.

The stream comes from the engine and leads into that one allocation, whose workload may be anything: the
host key it shows says nothing more, and the key that opens it opens nothing else.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import asyncssh

from starverse.app.gateway_keys import GatewayKeys
from starverse.app.inside import Unreachable
from starverse.domain.errors import StarverseError

OpenStream = Callable[[str, str], socket.socket]
"""The engine's: a socket into an allocation, of a kind (``ssh``: to an sshd); raises ``StarverseError`` where
there is none."""

USER = "user"
HOST = "inside"
"""A name for where a stream leads; nobody looks it up."""
LOGIN_SECONDS = 15.0
KEEP_ALIVE_SECONDS = 15.0
KEEP_ALIVES_MISSED_MAX = 4
STREAMS_AT_ONCE = 32
CIPHERS = ("aes128-gcm@openssh.com", "aes256-gcm@openssh.com")


class Inside:
    """Opens connections into allocations; usable from any event loop."""

    def __init__(self, keys: GatewayKeys, open_stream: OpenStream) -> None:
        self._open_stream = open_stream
        self._openers = ThreadPoolExecutor(STREAMS_AT_ONCE, thread_name_prefix="inside")
        self._options = asyncssh.SSHClientConnectionOptions(
            config=None,
            username=USER,
            client_keys=[str(keys.client_key)],
            preferred_auth="publickey",
            known_hosts=None,
            agent_path=None,
            agent_forwarding=False,
            x11_forwarding=False,
            gss_host=None,
            encryption_algs=list(CIPHERS),
            compression_algs=["none"],
            login_timeout=LOGIN_SECONDS,
            keepalive_interval=KEEP_ALIVE_SECONDS,
            keepalive_count_max=KEEP_ALIVES_MISSED_MAX,
        )

    async def connect(
        self, allocation_id: str, lost: Callable[[], object] = lambda: None
    ) -> asyncssh.SSHClientConnection:
        """Log in; ``lost`` is called once when the connection has ended. Raises :class:`Unreachable`."""
        stream = await self.stream(allocation_id, "ssh")
        watch = _Watch()
        try:
            stream.setblocking(False)
            connection = await asyncssh.connect(
                HOST, sock=stream, options=self._options, client_factory=lambda: watch
            )
        except (OSError, asyncssh.Error) as error:
            stream.close()
            raise Unreachable(_why_not(error)) from error
        watch.lost = lost
        return connection

    async def stream(self, allocation_id: str, kind: str) -> socket.socket:
        """A stream of the engine's; raises :class:`Unreachable`."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._openers, self._open_stream, allocation_id, kind)
        except StarverseError as error:
            raise Unreachable(f"The instance cannot be reached right now: {error.detail}") from error
        except OSError as error:
            raise Unreachable("The instance cannot be reached right now.") from error

    def close(self) -> None:
        self._openers.shutdown(wait=False, cancel_futures=True)


def _why_not(error: Exception) -> str:
    """Why the sshd inside let nobody in, as far as can be told from outside, and what helps."""
    if isinstance(error, asyncssh.PermissionDenied):
        what = "its sshd knows no user that may come in, or the user's shell is gone"
    else:
        what = "its sshd ends before it has let anybody in"
    return (
        f"The instance does not take connections right now: {what}. Try again; if it stays so, something that"
        " sshd needs was removed inside, such as /etc/passwd or /bin. Stop and start it: that puts the users"
        " back. A shell that was removed from its image stays so: launch another with the same disks."
    )


class _Watch(asyncssh.SSHClient):
    """Tells when its connection has ended."""

    def __init__(self) -> None:
        self.lost: Callable[[], object] = lambda: None

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost()
