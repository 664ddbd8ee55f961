"""What a running server has in the data folder: a folder of its own, and the names that everybody knows.

::

    DATA/starverse.lock        held by every server of the folder: by one alone, or shared
    DATA/servers/ID/           one server's lock, api.sock, channel.sock, api-url
    DATA/servers/first.lock    held by the first of them, which
    DATA/api.sock channel.sock api-url   lead to

When the first server ends, another one becomes the first within a second, so whoever uses the well-known
names (launchers, shims, commands on this machine) finds a living server there.
"""

from __future__ import annotations

import fcntl
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from starverse.domain.errors import Conflict

LOCK_NAME = "starverse.lock"
API_URL_NAME = "api-url"
LINKS = ("api.sock", "channel.sock", API_URL_NAME)
LOOK_SECONDS = 1.0


class RunFolder:
    """One server's place; :meth:`enter` before use, :meth:`leave` after."""

    def __init__(self, data: Path, server_id: str, *, alone: bool) -> None:
        self.data = data
        self.path = data / "servers" / server_id[-12:]
        self._alone = alone
        self._locks: list[IO[str]] = []
        self._first: IO[str] | None = None
        self._leaving = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def api_socket(self) -> Path:
        return self.path / "api.sock"

    @property
    def channel_socket(self) -> Path:
        return self.path / "channel.sock"

    def __enter__(self) -> Self:
        self.enter()
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def enter(self) -> None:
        """Have the data folder and a folder of one's own in it; remove those of servers that are dead.

        Raises ``Conflict`` while another server has the data folder and does not share it.
        """
        self._locks.append(hold_data(self.data, alone=self._alone))
        self.path.parent.mkdir(exist_ok=True, mode=0o700)
        with (self.path.parent / "start.lock").open("a+") as start:  # none is dead that is only being made
            fcntl.flock(start, fcntl.LOCK_EX)
            self.path.mkdir(exist_ok=True, mode=0o700)
            own = (self.path / "lock").open("a+")
            fcntl.flock(own, fcntl.LOCK_EX)
            self._locks.append(own)
            for other in sorted(self.path.parent.iterdir()):
                if other != self.path and other.is_dir():
                    _remove_if_dead(other)

    def announce(self, url: str) -> None:
        """This server answers there from now on; become the first one as soon as there is none."""
        write_aside(self.path / API_URL_NAME, f"{url}\n")
        if not self._become_first():
            self._thread = threading.Thread(target=self._wait_to_be_first, name="first", daemon=True)
            self._thread.start()

    def leave(self) -> None:
        """Take away what is this server's, the well-known names too where they lead to it."""
        self._leaving.set()
        if self._thread is not None:
            self._thread.join(LOOK_SECONDS + 5)
        if self._first is not None:
            for name in LINKS:
                with suppress(OSError):
                    (self.data / name).unlink()
            self._first.close()
        shutil.rmtree(self.path, ignore_errors=True)
        for handle in self._locks:
            handle.close()

    def _wait_to_be_first(self) -> None:
        while not self._leaving.wait(LOOK_SECONDS):
            with suppress(OSError):  # a full disk: it is tried again
                if self._become_first():
                    return

    def _become_first(self) -> bool:
        handle = (self.path.parent / "first.lock").open("a+")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            for name in LINKS:
                _link(self.data / name, Path("servers", self.path.name, name))
        except BlockingIOError:
            handle.close()
            return False
        except OSError:
            handle.close()
            raise
        self._first = handle
        return True


def hold_data(data: Path, *, alone: bool) -> IO[str]:
    """Hold the data folder for this process; raises ``Conflict`` when it is another's."""
    handle = (data / LOCK_NAME).open("a+")
    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError as error:
        handle.close()
        raise Conflict(
            f"another starverse server is running on {data}",
            hint="stop it first, or start this one with another --data folder",
        ) from error
    return handle


def write_aside(path: Path, text: str) -> None:
    """Write a file that is whole whenever somebody looks."""
    temporary = path.with_name(f".{path.name}")
    temporary.write_text(text)
    temporary.rename(path)


def _link(path: Path, target: Path) -> None:
    temporary = path.with_name(f".{path.name}.link")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(path)


def _remove_if_dead(folder: Path) -> None:
    try:
        handle = (folder / "lock").open("a+")
    except OSError:
        return
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        shutil.rmtree(folder, ignore_errors=True)
