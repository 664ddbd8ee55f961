"""A stand-in for the inside of an instance: ``sshd -i`` in a bare sandbox, one for each stream.

What the real one is to the gateway, this one is too: an unprivileged OpenSSH with its home at ``/root`` that
lets in the gateway's key and nobody else.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Any, Self

from starverse.testing.ordinary_users import ORDINARY_UID

INSIDE_UID = 1000
_CONFIG = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
AllowAgentForwarding no
X11Forwarding no
AllowTcpForwarding yes
AllowStreamLocalForwarding yes
StreamLocalBindUnlink yes
MaxSessions 200
SetEnv PATH=/usr/local/bin:/usr/bin:/bin STARVERSE_TEST=inside
AcceptEnv LANG LC_* STARVERSE_ASKED
Subsystem sftp internal-sftp
LogLevel ERROR
"""


class PlainSshd:
    """Gives streams from :meth:`__enter__` to :meth:`close`; each is an ``sshd -i`` of its own.

    ``home`` is what is seen inside as ``/root``.
    """

    def __init__(self, authorized_key: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="sv-sshd-", dir="/tmp"))
        self.home = self.folder / "home"
        self._authorized_key = authorized_key
        self._running: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self.root = os.geteuid() == 0

    def __enter__(self) -> Self:
        self.folder.chmod(0o755)
        self.home.mkdir()
        (self.folder / "passwd").write_text(
            f"root:x:0:0::/nowhere:/bin/false\nuser:x:{INSIDE_UID}:{INSIDE_UID}::/root:/bin/bash\n"
        )
        (self.folder / "group").write_text(f"root:x:0:\nuser:x:{INSIDE_UID}:\n")
        (self.folder / "authorized_keys").write_text(self._authorized_key + "\n")
        (self.folder / "sshd_config").write_text(_CONFIG.format(folder=self.folder))
        key = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / "host_key"))
        subprocess.run(key, check=True)
        if self.root:
            for path in (self.home, self.folder / "host_key"):
                os.chown(path, ORDINARY_UID, ORDINARY_UID)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open_stream(self, _allocation_id: str, _kind: str = "ssh") -> socket.socket:
        """As the engine's."""
        ours, theirs = socket.socketpair()
        with theirs:
            self.start_on(theirs)
        return ours

    def start_on(self, line: socket.socket) -> None:
        """An ``sshd -i`` on a connection, which the caller may close then."""
        with self._lock:
            process = subprocess.Popen(
                self.command("-i", "-f", str(self.folder / "sshd_config")),
                stdin=line.fileno(),
                stdout=line.fileno(),
                start_new_session=True,
                **self.identity(),
            )
            self._running = [one for one in (*self._running, process) if one.poll() is None]

    def command(self, *arguments: str) -> list[str]:
        """``sshd`` with these arguments, inside the sandbox."""
        inside = str(INSIDE_UID)
        binds = [("passwd", "/etc/passwd"), ("group", "/etc/group")]
        return [
            *("bwrap", "--die-with-parent", "--unshare-user", "--uid", inside, "--gid", inside),
            *("--unshare-pid", "--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev"),
            *("--proc", "/proc", "--tmpfs", "/tmp", "--ro-bind", str(self.folder), str(self.folder)),
            *(word for name, place in binds for word in ("--ro-bind", str(self.folder / name), place)),
            *("--bind", str(self.home), "/root", "--setenv", "HOME", "/root", "--chdir", "/root"),
            *("--", "/usr/sbin/sshd", *arguments),
        ]

    def identity(self) -> dict[str, Any]:
        """What makes :mod:`subprocess` start it as somebody who is not root."""
        return {"user": ORDINARY_UID, "group": ORDINARY_UID, "extra_groups": []} if self.root else {}

    def stop_all(self) -> None:
        """End every inside, as when an instance stops."""
        with self._lock:
            for process in self._running:
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            self._running.clear()

    def close(self) -> None:
        self.stop_all()
        shutil.rmtree(self.folder, ignore_errors=True)
