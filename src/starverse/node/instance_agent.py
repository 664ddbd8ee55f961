"""The agent of an instance: the script of its workload. It starts ``sshd -i`` on each stream it is handed.

Run inside the sandbox as a file by its path (``python -I -S AGENT RUN_FOLDER``), so it imports next to
nothing and nothing of ours; it has the rights of the workload and no more. It speaks with its launcher
over ``agent.sock``, one record each:

::

    agent -> launcher   ready                        sshd accepts its configuration
                        failed TEXT                  it does not
                        seen SOURCE SECONDS DETAIL   evidence of use, see activity.py; SECONDS ago
    launcher -> agent   ssh                          with a descriptor: a connection for an sshd

When a client goes while its command still runs, the command gets SIGHUP, as from a terminal.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # without the enum that `signal` imports
import _socket  # likewise
import os
import select
import sys

SSHD = "/usr/sbin/sshd"
_RECORD_BYTES_MAX = 4096
_HANDLES_BYTES = _socket.CMSG_SPACE(4 * 4)
_POLLRDHUP = 0x2000
_PR_SET_CHILD_SUBREAPER = 36


class Session:
    """One connection: its sshd, and what of the connection is kept here until it ends."""

    def __init__(self, pid: int, line: int) -> None:
        self.pid = pid
        self.line = line
        self.commands: set[int] = set()


class Agent:
    """``run`` is the folder with ``agent.sock`` and ``ssh/``."""

    def __init__(self, run: str) -> None:
        self._config = f"{run}/ssh/sshd_config"
        self._launcher = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self._launcher.connect(f"{run}/agent.sock")
        self._poll = select.poll()
        self._sessions: dict[int, Session] = {}
        self._lines: dict[int, Session] = {}

    def begin(self) -> bool:
        """Have the configuration checked; answers whether connections can be taken."""
        reader, writer = os.pipe()
        pid = self._spawn(["-t", "-f", self._config], (os.devnull, writer, writer))
        os.close(writer)
        said = b""
        while part := os.read(reader, 4096):
            said += part
        os.close(reader)
        if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0:
            self._tell(b"ready")
            return True
        self._tell(b"failed sshd: " + b"; ".join(said.strip().splitlines()[-3:])[:1000])
        return False

    def serve(self) -> None:
        """Until the launcher hangs up."""
        reader, writer = os.pipe()
        for end in (reader, writer):
            os.set_blocking(end, False)
        _signal.set_wakeup_fd(writer)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        launcher = self._launcher.fileno()
        self._poll.register(launcher, select.POLLIN)
        self._poll.register(reader, select.POLLIN)
        while True:
            for number, _ in self._poll.poll(10_000):
                if number == launcher:
                    if not self._hear():
                        return
                elif number == reader:
                    os.read(reader, 4096)
                    self._reap()
                else:
                    self._client_goes(self._lines[number])

    def _hear(self) -> bool:
        record, ancillary, _, _ = self._launcher.recvmsg(_RECORD_BYTES_MAX, _HANDLES_BYTES)
        handles = [
            int.from_bytes(data[at : at + 4], sys.byteorder)
            for level, kind, data in ancillary
            if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS
            for at in range(0, len(data) - 3, 4)
        ]
        if not record:
            return False
        if record == b"ssh" and len(handles) == 1:
            self._begin_session(handles.pop())
        for handle in handles:
            os.close(handle)
        return True

    def _begin_session(self, line: int) -> None:
        try:
            pid = self._spawn(["-i", "-e", "-f", self._config], (line, line, 2))
        except OSError as error:
            os.write(2, f"sshd: {error.strerror}\n".encode())
            os.close(line)
            return
        session = Session(pid, line)
        self._sessions[pid] = self._lines[line] = session
        self._poll.register(line, _POLLRDHUP)

    def _client_goes(self, session: Session) -> None:
        """Note what its sshd runs: that is over too unless it ends before its sshd."""
        self._poll.unregister(session.line)
        for child in _children(session.pid):
            session.commands.update(_children(child))

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            session = self._sessions.pop(pid, None)
            if session is not None:
                self._end(session)

    def _end(self, session: Session) -> None:
        del self._lines[session.line]
        with Ignoring(KeyError):
            self._poll.unregister(session.line)
        os.close(session.line)
        for command in session.commands:
            if _parent(command) == os.getpid():  # its sshd ended before it: this process took it up
                for number in (_signal.SIGHUP, _signal.SIGCONT):
                    with Ignoring(OSError):
                        os.killpg(command, number)

    def _spawn(self, arguments: list[str], handles: tuple[object, int, int]) -> int:
        source = handles[0]
        actions: list[tuple[object, ...]] = [
            (os.POSIX_SPAWN_OPEN, 0, source, os.O_RDONLY, 0)
            if isinstance(source, str)
            else (os.POSIX_SPAWN_DUP2, source, 0),
            (os.POSIX_SPAWN_DUP2, handles[1], 1),
            (os.POSIX_SPAWN_DUP2, handles[2], 2),
        ]
        # sshd takes what it is to be called again by from its name: an absolute path
        return os.posix_spawn(SSHD, [SSHD, *arguments], os.environ, file_actions=actions, setsid=True)

    def _tell(self, record: bytes) -> None:
        self._launcher.send(record)


class Ignoring:
    """As in contextlib, whose import costs a start a tenth of its time."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:  # noqa: PTH123
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rsplit(b") ", 1)[1].split()[1])
    except (OSError, IndexError):
        return 0


def _take_up_orphans() -> None:
    """So that it is seen here whether a command outlived its sshd."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(run: str) -> int:
    agent = Agent(run)
    if not agent.begin():
        return 1
    _take_up_orphans()
    agent.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
