"""One command of a build in a sandbox of its own, which shows the image to be and what installers read."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starverse.domain.catalog.images import MOUNT_POINT
from starverse.node.sandbox.staging import enter

POLL_SECONDS = 0.05


class BuildFailed(Exception):
    """The image cannot be built; the text says why to people."""


@dataclass(frozen=True, slots=True)
class Room:
    """Where and as whom commands of one build run. ``shown`` are host paths to be seen read-only at their own
    place; ``obstacle`` says in words what stands against going on (``""``: nothing)."""

    bwrap: str
    root: Path
    home: Path
    temporary: Path
    log: Path
    uid: int | None
    shown: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    obstacle: Callable[[], str] = lambda: ""


def run(room: Room, command: Sequence[str], *, network: bool = False) -> int:
    """Run it to its end; its exit code. Raises :class:`BuildFailed` when an obstacle comes up meanwhile."""
    builder = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            _become(room, command, network, builder)
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(125)
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        obstacle = room.obstacle()
        if obstacle:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise BuildFailed(obstacle)
        time.sleep(POLL_SECONDS)


def _become(room: Room, command: Sequence[str], network: bool, builder: int) -> None:
    log = os.open(room.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    null = os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)
    for handle, number in ((null, 0), (log, 1), (log, 2)):
        os.dup2(handle, number)
    binds = [(str(room.root), MOUNT_POINT, False), (str(room.home), "/root", False)]
    binds.append((str(room.temporary), "/tmp", False))
    binds += [(path, path, True) for path in ("/usr", "/etc", *room.shown)]
    binds += [(path, path, True) for path in _own_folders()]
    sources = enter([(source, read_only) for source, _, read_only in binds], room.uid, builder)
    os.umask(0o022)
    arguments = [room.bwrap, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    arguments += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    arguments += ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", "image"]
    if not network:
        arguments.append("--unshare-net")
    arguments += ["--proc", "/proc", "--dev", "/dev", "--clearenv"]
    for name, value in {**room.environment, **_FIXED}.items():
        arguments += ["--setenv", name, value]
    for name in _OUTER:
        if Path("/", name).is_symlink():
            arguments += ["--symlink", str(Path("/", name).readlink()), f"/{name}"]
    for (_, target, read_only), source in zip(binds, sources, strict=True):
        arguments += ["--ro-bind" if read_only else "--bind", source, target]
    os.execve(room.bwrap, [*arguments, "--chdir", "/tmp", "--", *command], {})


_OUTER = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_FIXED = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "HOME": "/root",
    "TMPDIR": "/tmp",
    "LANG": "C.UTF-8",
    "SOURCE_DATE_EPOCH": "315532800",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""Of every command. The date is the earliest that archives can hold: nothing may tell when it was built."""


def _own_folders() -> list[str]:
    return [f"/{name}" for name in _OUTER if Path("/", name).is_dir() and not Path("/", name).is_symlink()]


_SIDELINE = re.compile(r"\s*(?:WARNING|warning|\[notice\]|Looking in|Using |Resolved |Prepared |Collecting )")


def how_it_ended(code: int) -> str:
    """For what ended without a word; ``code`` as :func:`run` answers it."""
    return f"it was ended by signal {-code}" if code < 0 else f"it ended with {code} and said nothing"


def last_words(log: Path, count: int = 600) -> str:
    """The end of what a command said, without its colours and without passwords of addresses."""
    try:
        text = log.read_bytes()[-8192:].decode("utf-8", "replace")
    except OSError:
        return ""
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    text = re.sub(r"//[^/@\s]+@", "//***@", text)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not _SIDELINE.match(line)]
    return " ".join(lines)[-count:].strip()
