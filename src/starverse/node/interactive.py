"""The launcher's part in an instance: what sshd inside needs, and the connections that reach it.

::

    run/ssh/          sshd_config, host_key (made for this allocation), authorized_keys
    run/agent.sock    where the agent inside calls; see node/instance_agent.py for what is said

Who gets in is decided by the platform: the only keys that may log in are its own.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping

from starverse.domain.workloads.launch import Activity, LaunchSpec
from starverse.node.api_proxy import pass_between
from starverse.node.cards.hygiene import GrantedCards
from starverse.node.channel import hello_line
from starverse.node.dialing import dial
from starverse.node.folder import AllocationFolder
from starverse.node.sandbox import oci_root
from starverse.node.sandbox.driver import StartRefused
from starverse.node.streams import GO_AHEAD, STREAM_SECONDS_MAX, StreamWish
from starverse.node.unix_sockets import bind_unix

AGENT_SOCKET = "agent.sock"
STREAMS_MAX = 512
SOURCES = ("cpu", "disk", "network", "ssh", "jupyter")
"""Of evidence that comes from inside."""
SECONDS_MAX = 10 * 366 * 86_400.0
READY_SECONDS_MAX = 20.0
"""For the agent to call and to say that sshd is content."""

HOST_KEYS = "starverse.node.host_keys"
"""The module that makes host keys here; loading it takes longer than ``ssh-keygen`` does, so the process that
launchers are forked from has loaded it."""
_KEYS = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f")
_RECORD_BYTES_MAX = 65536
_SAID_BYTES_MAX = 1000
_OWN_OF_SESSIONS = ("PWD", "OLDPWD", "SHLVL", "_", "TERM")


class Interactive:
    """From :meth:`prepare`, before the sandbox starts, to :meth:`close`. ``ready`` once SSH is accepted;
    ``failure`` is why it never will be."""

    def __init__(
        self,
        spec: LaunchSpec,
        folder: AllocationFolder,
        say: Callable[[str], None],
        now: Callable[[], float],
        look_seconds: float,
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._say = say
        self._now = now
        self._look_seconds = look_seconds
        self._owner = spec.unix_uid if os.geteuid() == 0 else None
        self._listener: socket.socket | None = None
        self._agent: socket.socket | None = None
        self._keygen: subprocess.Popen[bytes] | None = None
        self._free = threading.BoundedSemaphore(STREAMS_MAX)
        self._handing_over = threading.Lock()
        self._noting = threading.Lock()
        self._closed = threading.Event()
        self.ready = False
        self.failure = ""
        self.activity: tuple[Activity, ...] = ()

    # -- start

    def begin_keys(self) -> None:
        """Have a host key made: at once where the library for it is loaded, else aside, and
        :meth:`finish_keys` waits for it."""
        ssh = self._folder.run / "ssh"
        ssh.mkdir(exist_ok=True)
        ssh.chmod(0o755)
        for name in ("host_key", "host_key.pub"):
            (ssh / name).unlink(missing_ok=True)
        if HOST_KEYS in sys.modules:
            from starverse.node.host_keys import write_host_key

            write_host_key(ssh / "host_key", self._owner)
            return
        try:
            self._keygen = subprocess.Popen(
                [*_KEYS, str(ssh / "host_key")], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
        except OSError as error:
            raise StartRefused(f"ssh-keygen: {error.strerror}: apt-get install openssh-client") from error

    def prepare(self, sshd: str, environment: Mapping[str, str]) -> None:
        """All that the agent and sshd find; raises :class:`StartRefused` or ``OSError``."""
        if not sshd:
            raise StartRefused("openssh-server is not installed: apt-get install openssh-server")
        ssh = self._folder.run / "ssh"
        (ssh / "authorized_keys").write_text("".join(f"{key}\n" for key in self._spec.gateway_keys))
        config = sshd_config(environment)
        if oci_root.is_root_image(self._spec.image):
            for option, (name, script) in oci_root.sshd_parts().items():
                (ssh / name).write_text(script)
                (ssh / name).chmod(0o755)
                config = f"{option} /run/starverse/ssh/{name}\n{config}"
        (ssh / "sshd_config").write_text(config)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        path = self._folder.run / AGENT_SOCKET
        path.unlink(missing_ok=True)
        bind_unix(self._listener, path)
        path.chmod(0o600)
        self._listener.listen(1)
        if self._owner is not None:
            os.chown(path, self._owner, self._owner)
        if self._keygen is not None and self._keygen.poll() is not None:
            self.finish_keys()

    def finish_keys(self) -> None:
        """Wait for the host key, without which the agent does not begin."""
        if self._keygen is None:
            return
        key = self._folder.run / "ssh" / "host_key"
        _, said = self._keygen.communicate()
        if self._keygen.returncode != 0 or not key.exists():
            raise StartRefused(f"ssh-keygen: {said.decode(errors='replace').strip()[:200]}")
        self._keygen = None
        if self._owner is not None:
            os.chown(key, self._owner, self._owner)

    # -- keep

    def watch_cards(self, cards: GrantedCards) -> None:
        """Note every few seconds whether one of the cards works, in a thread: drivers may take their time."""
        if cards.source is not None:
            watch = threading.Thread(target=self._watch_cards, args=(cards,), name="cards", daemon=True)
            watch.start()

    def _watch_cards(self, cards: GrantedCards) -> None:
        while not self._closed.wait(self._look_seconds):
            found = cards.busiest()
            if found is not None:
                index, share = found
                self.note(Activity("cards", self._now(), f"card {index} works at {share:.0%}"))

    def wait_on(self) -> list[tuple[int, int]]:
        """What to wait on with ``poll``: numbers and events."""
        if self._agent is not None:
            return [(self._agent.fileno(), select.POLLIN)]
        return [] if self._listener is None else [(self._listener.fileno(), select.POLLIN)]

    def listen(self, now: float) -> None:
        """Take in what the agent says."""
        if self._agent is None:
            self._accept()
        while self._agent is not None:
            try:
                record = self._agent.recv(_RECORD_BYTES_MAX)
            except BlockingIOError:
                return
            except ConnectionResetError:  # it went without having read all; what it said comes after this
                continue
            except OSError:
                record = b""
            if not record:
                with self._handing_over:
                    self._agent.close()
                    self._agent = None
                return
            self._hear(record.decode(errors="replace"), now)

    def open_streams(self, wishes: list[StreamWish]) -> None:
        """Dial back for each of the wishes, which are taken out, each in a thread of its own."""
        taken, wishes[:] = list(wishes), []
        for wish in taken:
            if self.ready and self._agent is not None and self._free.acquire(blocking=False):
                threading.Thread(target=self._open, args=(wish,), name="stream", daemon=True).start()

    def close(self) -> None:
        """Listen no more; connections that were handed over end with the sandbox."""
        self._closed.set()
        self._listen_no_more()
        if self._agent is not None:
            self._agent.close()
            self._agent = None
        if self._keygen is not None and self._keygen.returncode is None:
            self._keygen.kill()
            self._keygen.communicate()

    def tell_people(self, line: str) -> None:
        """Show a line in every terminal inside, as far as that goes without waiting."""
        if not self.ready or not self._handing_over.acquire(blocking=False):
            return
        try:
            if self._agent is not None:
                with contextlib.suppress(OSError):
                    self._agent.send(f"say {line}".encode()[:_SAID_BYTES_MAX])
        finally:
            self._handing_over.release()

    def _listen_no_more(self) -> None:
        """One agent calls, before anything else runs inside."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            with contextlib.suppress(OSError):
                (self._folder.run / AGENT_SOCKET).unlink()

    def _accept(self) -> None:
        if self._listener is None:
            return
        with contextlib.suppress(BlockingIOError):
            line, _ = self._listener.accept()
            line.setblocking(False)
            with contextlib.suppress(OSError):  # it may have said what is wrong, and gone
                line.send(b"check")
            self._agent = line
            self._listen_no_more()

    def note(self, seen: Activity) -> None:
        """Keep the newest evidence of each source."""
        with self._noting:
            others = [one for one in self.activity if one.source != seen.source]
            before = next((one for one in self.activity if one.source == seen.source), seen)
            newest = seen if seen.last_at >= before.last_at else before
            self.activity = tuple(sorted((*others, newest), key=lambda one: one.source))

    def _hear(self, record: str, now: float) -> None:
        word, _, rest = record.partition(" ")
        if word == "ready":
            self.ready = True
        elif word == "failed":
            self.failure = rest[:1000]
        elif word == "seen":
            seen = read_seen(rest, now)
            if seen is not None:
                self.note(seen)

    def _open(self, wish: StreamWish) -> None:
        """In its thread: dial, have it accepted, give the connection to the agent."""
        try:
            hello = hello_line(self._spec, "stream", wish.id)
            line = dial(wish.addresses, self._spec.channel_ca, hello)
            with line:
                if line.family == socket.AF_UNIX:
                    line.sendall(hello)
                line.settimeout(STREAM_SECONDS_MAX)
                if _read_exactly(line, len(GO_AHEAD)) != GO_AHEAD:
                    return
                line.settimeout(None)
                if line.family == socket.AF_UNIX:
                    self._hand_over(wish.kind, line)
                    return
                outer, inner = socket.socketpair()
                with inner:
                    self._hand_over(wish.kind, inner)
                pass_between(outer, line)
        except (OSError, ValueError) as error:
            self._say(f"a stream could not be opened: {error}")
        finally:
            self._free.release()

    def _hand_over(self, kind: str, line: socket.socket) -> None:
        with self._handing_over:
            if self._agent is None:
                raise OSError("the agent has gone")
            select.select([], [self._agent], [], STREAM_SECONDS_MAX)
            socket.send_fds(self._agent, [kind.encode()], [line.fileno()])


def read_seen(text: str, now: float) -> Activity | None:
    """``SOURCE AGO DETAIL``; whatever the sandbox says is a stranger's word: ``None`` for what is none."""
    source, _, rest = text.partition(" ")
    ago, _, detail = rest.partition(" ")
    try:
        seconds = float(ago)
    except ValueError:
        return None
    if source not in SOURCES or not 0 <= seconds < SECONDS_MAX:
        return None
    return Activity(source, now - seconds, "".join(c if c.isprintable() else "?" for c in detail)[:200])


def sshd_config(environment: Mapping[str, str]) -> str:
    """For the sshd inside, which has neither root nor PAM; every session gets the job's environment.

    A value with a line break cannot be written there and is left out.
    """
    given = " ".join(
        _quoted(f"{name}={value}")
        for name, value in environment.items()
        if name not in _OWN_OF_SESSIONS and not {"\n", "\0", "\r"}.intersection(value)
    )
    return f"""\
HostKey /run/starverse/ssh/host_key
AuthorizedKeysFile /run/starverse/ssh/authorized_keys
PidFile none
LogLevel VERBOSE
UsePAM no
StrictModes no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
AllowAgentForwarding no
AllowTcpForwarding yes
AllowStreamLocalForwarding yes
StreamLocalBindUnlink yes
X11Forwarding no
PermitTunnel no
PermitUserEnvironment no
PrintMotd no
PrintLastLog no
MaxSessions 1000
AcceptEnv COLORTERM TERM_PROGRAM TERM_PROGRAM_VERSION
Subsystem sftp internal-sftp
SetEnv {given}
"""


def _quoted(text: str) -> str:
    r"""As sshd splits words: double quotes, with ``\"`` and ``\\`` inside."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _read_exactly(line: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count and (part := line.recv(count - len(found))):
        found += part
    return found
