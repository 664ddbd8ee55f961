"""The real OpenSSH client at the end of an engine's streams, for tests.

``ssh`` calls a small ProxyCommand, which gets the connected descriptor from here: between the client and the
sshd inside there is nobody of ours.
"""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from starverse.engines.base import EngineUnavailable
from starverse.node.api_proxy import pass_between

SECONDS_MAX = 60.0
_PROXY = """import os, socket
with socket.socket(socket.AF_UNIX) as line:
    line.connect({path!r})
    said, handles, _, _ = socket.recv_fds(line, 1000, 1)
    if not handles and said != b"through":
        raise SystemExit(said.decode())
    socket.send_fds(socket.socket(fileno=os.dup(1)), [b"x"], handles or [line.fileno()])
"""


class SshLine:
    """Keys and the options of ``ssh`` with which a client reaches whatever ``open_stream`` connects to."""

    def __init__(self, folder: Path, key: Path) -> None:
        self.folder = folder
        self.options = (
            *("-F", "none", "-i", str(key), "-o", "BatchMode=yes", "-o", "LogLevel=ERROR"),
            *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
            *("-o", f"ProxyCommand={shlex.join([sys.executable, '-I', '-S', str(folder / 'proxy.py')])}"),
            *("-o", "ProxyUseFdpass=yes"),
        )

    @property
    def rsh(self) -> str:
        """For ``rsync -e`` and ``scp -S``."""
        return shlex.join(["ssh", *self.options])

    def begin(self, *command: str, options: tuple[str, ...] = (), **how: object) -> subprocess.Popen[bytes]:
        """``ssh`` in the background."""
        return subprocess.Popen(["ssh", *self.options, *options, "user@inside", *command], **how)  # type: ignore[call-overload,no-any-return]

    def run(
        self, *command: str, options: tuple[str, ...] = (), given: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        """``ssh`` to its end."""
        return self.tool("ssh", *options, "user@inside", *command, given=given)

    @contextmanager
    def shared(self, name: str) -> Iterator[tuple[str, ...]]:
        """A connection that many sessions share: the options with which they do."""
        path = self.folder / f"{name}.control"
        fast = ("-o", "KexAlgorithms=curve25519-sha256")
        master = self.begin(options=("-M", "-N", "-S", str(path), *fast), stdin=subprocess.DEVNULL)
        try:
            give_up = time.monotonic() + SECONDS_MAX
            while not path.exists():
                assert master.poll() is None and time.monotonic() < give_up, "no shared connection"
                time.sleep(0.01)
            yield ("-S", str(path))
        finally:
            master.terminate()
            master.wait()

    def tool(self, name: str, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """``ssh``, ``scp`` or ``sftp`` with our options, to its end."""
        return subprocess.run(
            [name, *self.options, *arguments],
            input=given,
            capture_output=True,
            timeout=SECONDS_MAX,
            check=False,
        )


def make_key(folder: Path) -> tuple[Path, str]:
    """A key pair of a client, made in ``folder``: the private one's path, the public one's text."""
    key = folder / "client_key"
    if not key.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    return key, key.with_suffix(".pub").read_text().strip()


@contextmanager
def ssh_line(
    folder: Path, open_stream: Callable[[], socket.socket], *, through: bool = False
) -> Iterator[SshLine]:
    """Connect whoever runs ``ssh`` with these options by ``open_stream``; ``folder`` has a short path.

    ``through``: every byte passes through this process, as through a gateway.
    """
    key, _ = make_key(folder)
    with (
        tempfile.TemporaryDirectory(prefix="l-", dir=folder) as own,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        place = Path(own)  # of this line alone: another may be open to another instance in the same folder
        path = place / "sock"
        (place / "proxy.py").write_text(_PROXY.format(path=str(path)))
        listener.bind(str(path))
        listener.listen(256)
        serving = threading.Thread(target=_serve, args=(listener, open_stream, through), daemon=True)
        serving.start()
        try:
            yield SshLine(place, key)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()


def _serve(listener: socket.socket, open_stream: Callable[[], socket.socket], through: bool) -> None:
    while True:
        try:
            asker, _ = listener.accept()
        except OSError:
            return
        threading.Thread(target=_give, args=(asker, open_stream, through), daemon=True).start()


def _give(asker: socket.socket, open_stream: Callable[[], socket.socket], through: bool) -> None:
    with asker:
        try:
            with open_stream() as line:
                if through:
                    asker.sendall(b"through")
                    pass_between(asker, line)
                    return
                socket.send_fds(asker, [b"x"], [line.fileno()])
        except EngineUnavailable as error:
            asker.sendall(str(error).encode()[:900])
