"""The product as people run it: a real server on a data folder of its own, people with a shell, kills.

:class:`LiveServer` is ``starverse up`` as a process that can be killed and started again on the same folder;
its workloads outlive it, as they do for operators. Its people are in ``live_person``.
Only processes that were started here, or hold files of this data folder, are ever signalled.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from starverse.engines.folders.leftovers import LastCopies
from starverse.engines.local.cleaning import clean_up
from starverse.node import processes
from starverse.node.folder import AllocationFolder
from starverse.node.limits import find_cgroups
from starverse.testing.forked_command import ForkedCommand
from starverse.testing.in_time import NotInTime, wait_for
from starverse.testing.live_database import chosen_database
from starverse.testing.live_person import Person, clean_environment

PROGRAM = ("-m", "starverse.cli.remote.entry")
QUICK: Mapping[str, str] = {
    "policy.lease_seconds": "3",
    "policy.grace_seconds": "8",
    "policy.kill_after_seconds": "2",
    "policy.disk_reserve_mib": "64",
    "server.log_level": "warning",
}
"""Settings under which a lost launcher and a notice take seconds."""


@dataclass(frozen=True, slots=True)
class Ground:
    """How a server is run. ``uid`` ``None``: as whoever runs the tests; ``settings`` by ``section.key``."""

    driver: str = "bwrap"
    cards: str = "rtx4090:8"
    settings: Mapping[str, str] = field(default_factory=lambda: dict(QUICK))
    uid: int | None = None
    python: str = sys.executable
    program: tuple[str, ...] = PROGRAM

    def identity(self) -> dict[str, Any]:
        """What makes :mod:`subprocess` start something as this server's user."""
        return {} if self.uid is None else {"user": self.uid, "group": self.uid, "extra_groups": []}


class LiveServer:
    """``starverse up`` on a free port and a data folder of its own; :meth:`close` leaves nothing behind."""

    def __init__(self, ground: Ground | None = None, data: Path | None = None) -> None:
        self._around = contextlib.ExitStack()
        ground = ground or Ground()
        chosen = chosen_database(self._around) if "server.db" not in ground.settings else {}
        free = {"gateway.port": "0"}  # several run at once, and those that are started again keep their port
        self.ground = replace(ground, settings={**free, **ground.settings, **chosen})
        self.root = Path(tempfile.mkdtemp(prefix="starverse-live-"))
        self.root.chmod(0o755)
        self._own(self.root)
        self.data = data or self.root / "data"
        self.api = ""
        self._port = "0"
        self._process: subprocess.Popen[bytes] | ForkedCommand | None = None
        self._people: list[Person] = []
        self._operator: Person | None = None

    # -- the server's process

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is down"
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers; a later start takes the same port again."""
        self._process = self.spawn("--port", self._port)
        try:
            wait_for(self._answers, "the server's start", 60)
        except NotInTime as late:
            raise NotInTime(f"{late}\n{self.read_log()}") from None
        self._port = str(urlsplit(self.api).port)

    def spawn(self, *flags: str) -> subprocess.Popen[bytes] | ForkedCommand:
        """``starverse up`` on this data folder, without waiting for it."""
        words = ["up", "--data", str(self.data), "--declare-cards", self.ground.cards]
        words += ["--driver", self.ground.driver, *flags]
        output = self.root / "server.log"
        if (self.ground.uid, self.ground.python, self.ground.program) == (None, sys.executable, PROGRAM):
            return ForkedCommand(words, self.environment(), self.root, output)
        with output.open("ab") as log:
            return subprocess.Popen(
                [self.ground.python, *self.ground.program, *words],
                env=self.environment(),
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                **self.ground.identity(),
            )

    def environment(self) -> dict[str, str]:
        settings = {
            f"STARVERSE_{key.replace('.', '__').upper()}": value
            for key, value in self.ground.settings.items()
        }
        return clean_environment() | {"HOME": str(self.root), "XDG_CONFIG_HOME": str(self.root)} | settings

    def kill(self) -> None:
        """``kill -9``."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        self._process = None

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.terminate()
        try:
            code = self._process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise NotInTime("the server did not end after SIGTERM") from None
        self._process = None
        return code

    def restart(self) -> None:
        """``kill -9``, then a new one on the same folder and port."""
        self.kill()
        self.start()

    def read_log(self) -> str:
        """What the server printed."""
        return (self.root / "server.log").read_text("utf-8", "replace")

    def _answers(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the server ended with {self._process.returncode}:\n{self.read_log()}")
        file = self.data / "api-url"
        if not file.exists():
            return False
        self.api = file.read_text().strip()
        address = urlsplit(self.api)
        line = http.client.HTTPConnection(str(address.hostname), address.port, timeout=5)
        try:
            line.request("GET", "/readyz")
            return line.getresponse().status == 200
        except OSError:
            return False
        finally:
            line.close()

    # -- people and folders

    def person(self, name: str, *, yuan: int = 0) -> Person:
        """Someone newly registered, with the sign-up credit and ``yuan`` more."""
        person = Person(self, name)
        self._people.append(person)
        person.run("register", f"{name}@example.org")
        if yuan:
            person.run("topup", str(yuan), "--yes")
        return person

    @property
    def operator(self) -> Person:
        """Who holds the operator's token of the data folder."""
        if self._operator is None:
            token = self.root / "operator-token"
            token.write_text((self.data / "operator-token").read_text())
            self._own(token)
            token.chmod(0o600)
            self._operator = Person(self, "operator", STARVERSE_TOKEN_FILE=str(token))
            self._people.append(self._operator)
        return self._operator

    def make_folder(self, name: str) -> Path:
        """A new folder that this server's people may write."""
        folder = self.root / name
        folder.mkdir()
        self._own(folder)
        return folder

    def _own(self, path: Path) -> None:
        if self.ground.uid is not None:
            os.chown(path, self.ground.uid, self.ground.uid)

    # -- what runs

    def allocation(self, allocation_id: str) -> AllocationFolder:
        return AllocationFolder(self.data / "allocations" / allocation_id)

    def allocations(self) -> list[str]:
        """Every allocation that has a folder."""
        place = self.data / "allocations"
        return sorted(entry.name for entry in place.iterdir()) if place.is_dir() else []

    def launcher(self, allocation_id: str) -> int | None:
        """The process that holds the allocation's claim."""
        try:
            facts = (self.allocation(allocation_id) / "claim.lock").stat()
        except FileNotFoundError:
            return None
        return processes.find_lock_holder(facts.st_dev, facts.st_ino)

    def launchers(self) -> dict[str, int]:
        """Living launchers by allocation."""
        found = {name: self.launcher(name) for name in self.allocations()}
        return {name: pid for name, pid in found.items() if pid is not None}

    def script(self, allocation_id: str) -> int | None:
        """The batch shell of an allocation, as this machine numbers it."""
        for pid in processes.find_tagged(allocation_id):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if len(words) > 1 and words[0].endswith(b"bash") and words[1].endswith(b"/script"):
                    return pid
        return None

    def leftovers(self) -> list[str]:
        """Processes, control groups and mounts that belong to this data folder, in words."""
        found = [f"process {pid}: {_command_of(pid)}" for pid in self._processes()]
        support = find_cgroups()
        for parent in {support.memory, support.cpu, support.pids, support.blkio} - {""}:
            found += [
                str(Path(parent, f"starverse-{name}"))
                for name in self.allocations()
                if Path(parent, f"starverse-{name}").exists()
            ]
        mounts = Path("/proc/self/mounts").read_text().splitlines()
        return found + [f"mount {line}" for line in mounts if f"{self.root}/data/" in line]

    def _processes(self) -> list[int]:
        """Whoever has a file of the data folder open, names it, or carries an allocation of it."""
        tags = {f"STARVERSE_ALLOCATION_ID={name}".encode() for name in self.allocations()}
        place = os.fsencode(self.data)
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                tagged = tags & set((entry / "environ").read_bytes().split(b"\0"))
                if tagged or place in (entry / "cmdline").read_bytes() or _holds(entry, self.data):
                    found.append(int(entry.name))
        return found

    # -- the end

    def close(self) -> None:
        """End everything that runs on the data folder, remove it, and insist that nothing is left."""
        try:
            self._end()
            wait_for(lambda: not self._processes(), "the end of all processes", 10)
            left = self.leftovers()
        except NotInTime:
            left = self.leftovers()
            processes.send(self._processes(), signal.SIGKILL)
        finally:
            for person in self._people:
                person.close()
            for folder, _, _ in os.walk(self.root):  # those of datasets are read-only
                Path(folder).chmod(0o700)
            shutil.rmtree(self.root, ignore_errors=True)
            self._around.close()
        assert not left, left
        assert not self.root.exists(), f"{self.root} cannot be removed"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self) -> None:
        if self._process is not None:
            self.stop()
        for name, pid in self.launchers().items():
            processes.send([pid], signal.SIGKILL)
            wait_for(lambda name=name: self.launcher(name) is None, f"the end of launcher {name}", 5)  # type: ignore[misc]
        for name in self.allocations():
            if not self.allocation(name).has("cleaned"):
                clean_up(self.allocation(name), lambda: None, LastCopies(patience_seconds=60))


def _holds(entry: Path, data: Path) -> bool:
    for handle in (entry / "fd").iterdir():
        with contextlib.suppress(OSError):
            if handle.readlink().is_relative_to(data):
                return True
    return False


def _command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    return "gone"
