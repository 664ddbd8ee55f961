"""A real PostgreSQL in a folder of its own, on a Unix socket only, for tests and the demo.

::

    with PostgresLab() as lab:
        lab.url     # postgresql+psycopg://...

Started and ended by process id; as root it runs as the system's user ``postgres``, since it refuses to be
root. It does not flush (``fsync=off``) unless asked to: its data dies with it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from starverse.testing import lab_folders

PREFIX = "starverse-pg-"
PLACES = "/usr/lib/postgresql/*/bin"
"""Where Debian and Ubuntu put each version's programs."""


class PostgresBroken(RuntimeError):
    """The server did not come up or did not go away."""


class PostgresLab:
    """``folder`` ``None``: a new one below the temporary folder, removed at the end."""

    def __init__(self, folder: Path | None = None, *, flushes: bool = False, connections: int = 200) -> None:
        self._own_folder = folder is None
        self._folder = folder
        self._owner: int | None = None
        self._options = f"-c listen_addresses='' -c max_connections={connections}"
        if not flushes:
            self._options += " -c fsync=off"

    @staticmethod
    def missing() -> str:
        """Why there can be none on this machine; ``""`` where there can."""
        if find_programs() is None:
            return "PostgreSQL's server is not installed: apt-get install postgresql"
        return ""

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise PostgresBroken("the server is not started")
        return self._folder

    @property
    def url(self) -> str:
        """Its address for SQLAlchemy."""
        return f"postgresql+psycopg://postgres@/postgres?host={self.folder}"

    def __enter__(self) -> PostgresLab:
        try:
            self.create()
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def create(self) -> None:
        """Make an empty cluster in the folder."""
        if why := self.missing():
            raise PostgresBroken(why)
        if self._folder is None:
            self.sweep_abandoned()
            self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._folder.mkdir(parents=True, exist_ok=True)
        self._owner = lab_folders.own(self._folder)
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres", "postgres")
        self._folder.chmod(0o755)
        self._run("initdb", "-D", "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8")

    def start(self) -> None:
        """Returns when it answers; after :meth:`stop` or :meth:`kill` as well."""
        options = f"-k {self.folder} {self._options}"
        self._run("pg_ctl", "-D", "data", "-w", "-t", "60", "-s", "-l", "log", "-o", options, "start")

    def stop(self) -> None:
        """A fast shutdown: connections are cut, nothing is lost."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """An immediate shutdown, as a crash would be: the next start recovers."""
        self._end(signal.SIGQUIT)

    def close(self) -> None:
        """End it; a folder of its own goes too."""
        if self._folder is None:
            return
        self.stop()
        if self._own_folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None

    @staticmethod
    def sweep_abandoned() -> None:
        """End and remove those below the temporary folder whose owners were killed."""
        for folder in lab_folders.abandoned(PREFIX):
            PostgresLab(folder).stop()
            shutil.rmtree(folder, ignore_errors=True)

    def _end(self, number: signal.Signals) -> None:
        pid = self._pid()
        if pid is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        deadline = time.monotonic() + 30
        while self._pid() is not None or _alive(pid):
            if time.monotonic() > deadline:
                raise PostgresBroken(f"process {pid} does not end; see {self.folder}/log")
            time.sleep(0.02)

    def _pid(self) -> int | None:
        """The postmaster of this folder, while it lives."""
        try:
            pid = int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
        except (OSError, ValueError, IndexError):
            return None
        return pid if _alive(pid) else None

    def _run(self, program: str, *words: str) -> None:
        programs = find_programs()
        assert programs is not None
        path = os.environ.get("PATH", "/usr/bin:/bin")
        done = subprocess.run(
            [str(programs / program), *words],
            cwd=self.folder,
            env={
                "PATH": path,
                "HOME": str(self.folder),
                "LC_ALL": "C.UTF-8",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            text=True,
            check=False,
            **_identity(),
        )
        if done.returncode != 0:
            raise PostgresBroken(f"{program} failed: {(done.stderr or '').strip()} see {self.folder}/log")


def find_programs() -> Path | None:
    """The folder of the newest version's programs."""
    found = [place for place in Path("/").glob(PLACES.lstrip("/")) if (place / "postgres").exists()]
    if found:
        return max(found, key=lambda place: [int(number) for number in re.findall(r"\d+", str(place))])
    beside = shutil.which("postgres")
    return Path(beside).resolve().parent if beside else None


def _identity() -> dict[str, Any]:
    """Whom to run as, for ``subprocess``."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("postgres")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
