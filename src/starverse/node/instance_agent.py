"""The agent of an instance: the script of its workload. It starts ``sshd -i`` on each stream it is handed.

Run inside the sandbox by its supervisor (sandbox/inside.py) as a file, so it imports next to nothing until
it takes connections; it has the rights of the workload and no more. It speaks with its launcher over
``agent.sock``, one record each:

::

    launcher -> agent   check                        all that sshd reads is there (it may have been before)
    agent -> launcher   ready                        sshd accepts its configuration
                        failed TEXT                  it does not
                        seen SOURCE AGO DETAIL       evidence of use (activity.py), so many seconds AGO
    launcher -> agent   ssh                          with a descriptor: a connection for an sshd
                        jupyter-start                with one: who asks for JupyterLab (notebooks.py)
                        say TEXT                     to be shown in every terminal

When a client goes while its command still runs, the command gets SIGHUP, as from a terminal.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # without the enum that `signal` imports
import _socket  # likewise
import _thread
import os
import select
import sys
import time

TYPE_CHECKING = False  # as in typing, whose import costs as much as all of this
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starverse.node.activity import Sample

SSHD = "/usr/sbin/sshd"
SESSIONS_MAX = 1000
_RECORD_BYTES_MAX = 4096
_HANDLES_BYTES = _socket.CMSG_SPACE(4 * 4)
_POLLRDHUP = 0x2000
_PR_SET_CHILD_SUBREAPER = 36
_FIRST_LOOK_SECONDS = 0.5
_LOOKS_SECONDS = (0.002, 0.01, 0.05)
"""When to look for the command of a session, after sshd said that it begins: soon, and once more for sure."""
_SESSION = b"Starting session: "
_TOLD_OF_SSHD = (b"Accepted publickey", _SESSION, b"Disconnected from", b"error", b"fatal", b"debug")
"""How those lines of sshd's begin that are of use to people; it writes many others."""


class Ignoring:
    """``contextlib.suppress``, whose import would cost a start a tenth of its time."""

    def __init__(self, *kinds: type[BaseException]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)


class Session:
    """One connection: its sshd, and what of the connection is kept here until it ends."""

    def __init__(self, pid: int, line: int) -> None:
        self.pid = pid
        self.line = line
        self.commands: dict[int, int] = {}

    def look(self) -> None:
        """Note what its sshd runs, with the time at which it began: numbers are used again."""
        for child in _children(self.pid):
            for command in _children(child):
                self.commands[command] = _facts(command)[1]


class Agent:
    """``run`` is the folder with ``agent.sock`` and ``ssh/``, ``packages`` the one in which ``starverse``
    lies; ``sshd`` is how that program is started; ``own_network``: the sandbox has interfaces of its own."""

    def __init__(
        self, run: str, packages: str, look_seconds: float, sshd: tuple[str, ...], *, own_network: bool
    ) -> None:
        self._packages = packages
        self._sshd = sshd
        self._of_sshd = {  # what an image says of libraries is for its own programs
            name: value for name, value in os.environ.items() if not name.startswith("LD_")
        }
        self._ssh = f"{run}/ssh"
        self._config = f"{self._ssh}/sshd_config"
        self._launcher = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        self._launcher.connect(f"{run}/agent.sock")
        self._poll = select.poll()
        self._sessions: dict[int, Session] = {}
        self._lines: dict[int, Session] = {}
        self._said, self._saying = os.pipe()
        self._unfinished = b""
        self._look_at: list[float] = []
        self._watch = Watch(self._tell, look_seconds, own_network=own_network)

    def begin(self) -> bool:
        """Have the configuration checked; answers whether connections can be taken."""
        made = all(os.access(f"{self._ssh}/{name}", os.R_OK) for name in ("host_key.pub", "host_key"))
        if not made and self._launcher.recv(100) != b"check":
            return False
        reader, writer = os.pipe()
        try:
            pid = _spawn([*self._sshd, "-t", "-f", self._config], os.devnull, (writer, writer), self._of_sshd)
        except OSError as error:
            self._tell(f"failed sshd: {error.strerror}".encode())
            return False
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
        ended, writer = os.pipe()
        for end in (ended, writer, self._said, self._saying):
            os.set_blocking(end, False)
        _signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        _signal.signal(_signal.SIGCHLD, lambda *_: None)
        launcher = self._launcher.fileno()
        for number in (launcher, ended, self._said):
            self._poll.register(number, select.POLLIN)
        while True:
            for number, _ in self._poll.poll(self._due_milliseconds()):
                if number == launcher:
                    if not self._hear():
                        return
                elif number == ended:
                    os.read(ended, 4096)
                    self._reap()
                elif number == self._said:
                    self._read_sshd()
                elif number in self._lines:  # its client goes
                    self._poll.unregister(number)
                    self._lines[number].look()
            if self._look_at and time.monotonic() >= self._look_at[0]:
                del self._look_at[0]
                for session in self._sessions.values():
                    session.look()
            self._watch.look_when_due()

    def _due_milliseconds(self) -> float:
        due = min([self._watch.due, *self._look_at[:1]])
        return max(0.0, due - time.monotonic()) * 1000 + 1

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
        for handle in handles:
            os.set_inheritable(handle, False)
        if record == b"ssh" and len(handles) == 1:
            self._begin_session(handles.pop())
        elif record == b"jupyter-start" and len(handles) == 1:
            self._start_jupyter(handles[0])
        elif record.startswith(b"say "):
            _show(record[4:])
        for handle in handles:
            os.close(handle)
        return True

    def _begin_session(self, line: int) -> None:
        if len(self._sessions) >= SESSIONS_MAX:
            os.close(line)
            return
        try:
            pid = _spawn(
                [*self._sshd, "-i", "-e", "-f", self._config], line, (line, self._saying), self._of_sshd
            )
        except OSError as error:
            _log(f"sshd: {error.strerror}".encode())
            os.close(line)
            return
        session = Session(pid, line)
        self._sessions[pid] = self._lines[line] = session
        self._poll.register(line, _POLLRDHUP)

    def _start_jupyter(self, line: int) -> None:
        """In a process of its own, which reads the request from the connection and answers there."""
        python = os.environ.get("STARVERSE_PYTHON") or sys.executable  # which an image's loader may not start
        command = [python, "-I", "-S", f"{self._packages}/starverse/node/notebooks.py"]
        with Ignoring(OSError):
            _spawn(command, line, (line, 2))

    def _read_sshd(self) -> None:
        """What every sshd says: sessions that begin are evidence, some of it is for people."""
        with Ignoring(BlockingIOError):
            *lines, self._unfinished = (self._unfinished + os.read(self._said, 65536)).split(b"\n")
            for line in lines:
                if line.startswith(_SESSION):
                    self._look_at = [time.monotonic() + seconds for seconds in _LOOKS_SECONDS]
                    self._watch.tell(
                        "ssh",
                        time.time(),
                        line[len(_SESSION) :].partition(b" for ")[0].decode("utf-8", "replace"),
                    )
                if line.startswith(_TOLD_OF_SSHD):
                    _log(b"sshd: " + line.rstrip(b"\r"))

    def _reap(self) -> None:
        with Ignoring(ChildProcessError):
            while pid := os.waitpid(-1, os.WNOHANG)[0]:
                session = self._sessions.pop(pid, None)
                if session is not None:
                    self._end(session)

    def _end(self, session: Session) -> None:
        del self._lines[session.line]
        with Ignoring(KeyError):
            self._poll.unregister(session.line)
        os.close(session.line)
        for command, begun in session.commands.items():
            if _facts(command) == (os.getpid(), begun):  # its sshd ended before it: taken up by this process
                for number in (_signal.SIGHUP, _signal.SIGCONT):
                    with Ignoring(OSError):
                        os.killpg(command, number)

    def _tell(self, record: bytes) -> None:
        with Ignoring(BlockingIOError):
            self._launcher.send(record[:_RECORD_BYTES_MAX])


class Watch:
    """Looks for evidence of use every few seconds; what it costs to begin comes after the start."""

    def __init__(
        self,
        tell: Callable[[bytes], None],
        look_seconds: float,
        *,
        own_network: bool,
        start_thread: Callable[[Callable[[], None], tuple[()]], int] = _thread.start_new_thread,
    ) -> None:
        self._send = tell
        self._start_thread = start_thread
        self._look_seconds = look_seconds
        self._own_network = own_network
        self._ours = (1, os.getppid(), os.getpid())
        self._before: Sample | None = None
        self.due = time.monotonic() + _FIRST_LOOK_SECONDS
        self._asking = _thread.allocate_lock()

    def look_when_due(self) -> None:
        if time.monotonic() < self.due:
            return
        from starverse.node.activity import compare, next_look_seconds, take_sample

        now = take_sample(time.time(), self._ours, own_network=self._own_network)
        for found in compare(self._before, now) if self._before is not None else ():
            self.tell(found.source, found.at, found.detail)
        self._before = now
        self.due = time.monotonic() + next_look_seconds(now, self._look_seconds)
        if self._asking.acquire(blocking=False):
            try:
                self._start_thread(self._ask_jupyter, ())
            except RuntimeError:  # the workload has used up its processes
                self._asking.release()

    def tell(self, source: str, at: float, detail: str) -> None:
        """Say when a source last saw work."""
        self._send(f"seen {source} {max(0.0, time.time() - at):.1f} {detail}".encode())

    def _ask_jupyter(self) -> None:
        """In a thread, as a server may be slow to answer."""
        try:
            home = os.environ.get("HOME", "/root")
            if os.path.isdir(f"{home}/.local/share/jupyter/runtime"):  # noqa: PTH112
                from pathlib import Path

                from starverse.node.notebooks import last_activity

                found = last_activity(Path(home))
                if found is not None:
                    self.tell("jupyter", *found)
        finally:
            self._asking.release()


def _spawn(
    command: list[str], source: str | int, said: tuple[int, int], environment: Mapping[str, str] = os.environ
) -> int:
    """A process with standard input from ``source`` (an open connection, or a file by its name)."""
    first: tuple[int, ...] | tuple[int, int, str, int, int]
    if isinstance(source, str):
        first = (os.POSIX_SPAWN_OPEN, 0, source, os.O_RDONLY, 0)
    else:
        first = (os.POSIX_SPAWN_DUP2, source, 0)
    actions = [first, (os.POSIX_SPAWN_DUP2, said[0], 1), (os.POSIX_SPAWN_DUP2, said[1], 2)]
    return os.posix_spawn(command[0], command, environment, file_actions=actions, setsid=True)


def _log(line: bytes) -> None:
    """A line of the instance's log, unless its disk is full."""
    with Ignoring(OSError):
        os.write(2, line + b"\n")


def _show(text: bytes) -> None:
    """In every terminal, without waiting for one whose reader does not read."""
    for name in os.listdir("/dev/pts"):  # noqa: PTH208
        if name.isdigit():
            with Ignoring(OSError):
                terminal = os.open(f"/dev/pts/{name}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
                with Ignoring(OSError):
                    os.write(terminal, b"\r\nstarverse: " + text + b"\r\n")
                os.close(terminal)


def _children(pid: int) -> list[int]:
    with Ignoring(OSError), open(f"/proc/{pid}/task/{pid}/children", "rb") as file:  # noqa: PTH123
        return [int(word) for word in file.read().split()]
    return []


def _facts(pid: int) -> tuple[int, int]:
    """A process's parent, and when it began; zeros where it is gone."""
    with Ignoring(OSError, IndexError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
        words = file.read().rsplit(b") ", 1)[1].split()
        return int(words[1]), int(words[19])
    return 0, 0


def _take_up_orphans() -> None:
    """So that it is seen here whether a command outlived its sshd."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(run: str, packages: str, network: str, look_seconds: str, *sshd: str) -> int:
    agent = Agent(run, packages, float(look_seconds), sshd or (SSHD,), own_network=network != "host")
    if not agent.begin():
        return 1
    sys.path.append(packages)  # from here on what is needed now and then comes from our own package
    _take_up_orphans()
    agent.serve()
    return 0
