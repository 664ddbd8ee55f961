"""The product as people run it: a real server on a data folder of its own, people with a shell, kills.

:class:`LiveServer` is ``starverse up`` as a process that can be killed and started again on the same folder;
its workloads outlive it, as they do for operators. :class:`Person` types commands with a home of their own.
Only processes that were started here, or hold files of this data folder, are ever signalled.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from starverse.cli.remote.entry import run as run_command
from starverse.cli.remote.session import Session
from starverse.cli.slurm.shims import main as run_shim
from starverse.client.api import Client, connect
from starverse.engines.folders.leftovers import LastCopies
from starverse.engines.local.cleaning import clean_up
from starverse.node import processes
from starverse.node.folder import AllocationFolder
from starverse.node.limits import find_cgroups
from starverse.testing.forked_command import ForkedCommand
from starverse.testing.live_database import chosen_database

PASSWORD = "correct-horse-battery"
PROGRAM = ("-m", "starverse.cli.remote.entry")
SLURM_COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "sacct", "srun")
QUICK_COMMANDS = frozenset(
    {"register", "login", "topup", "whoami", "offers", "job", "ps", "show", "stop", "rm", "secret", "disk"}
    | {"ssh-key", "sbatch", "squeue", "scancel", "sinfo", "sacct"}
)
"""Those that ask the server and are done: a session holds all that they need, so that they run in the test's
own process. That they can be typed into a shell is what the tests of the pages prove."""
QUICK: Mapping[str, str] = {
    "policy.lease_seconds": "3",
    "policy.grace_seconds": "8",
    "policy.kill_after_seconds": "2",
    "policy.disk_reserve_mib": "64",
    "server.log_level": "warning",
}
"""Settings under which a lost launcher and a notice take seconds."""


class NotInTime(AssertionError):
    """Something that had to come did not; the text says what was waited for."""


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 30.0) -> Any:
    """Ask again and again until the answer is true; that answer. Raises :class:`NotInTime`."""
    give_up = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > give_up:
            raise NotInTime(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.1)


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


class Person:
    """Someone who types commands, signed in to one server, with a configuration folder of their own."""

    def __init__(self, server: LiveServer, name: str, **extra: str) -> None:
        self.server = server
        self.name = name
        self.home = server.make_folder(f"home-{name}")
        self._extra = extra
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The typed client under this person's sign-in: for looking often without starting processes."""
        if self._client is None:
            self._client = connect(self.environment())
        return self._client

    def environment(self) -> dict[str, str]:
        return clean_environment() | {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "STARVERSE_API": self.server.api,
            "STARVERSE_PASSWORD": PASSWORD,
            "NO_COLOR": "1",
            **self._extra,
        }

    def call(
        self, *words: str, folder: Path | None = None, stdin: str | None = None, seconds: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Type one command; how it ended, whatever its exit code."""
        named = words[1] if words[0] == "--json" else words[0]
        if named in QUICK_COMMANDS and "--wait" not in words and self.server.ground.uid is None:
            return self._call_here(words, folder or self.home, stdin or "")
        return subprocess.run(
            self.argv(*words),
            cwd=folder or self.home,
            env=self.environment(),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            text=True,
            capture_output=True,
            timeout=seconds,
            check=False,
            **self.server.ground.identity(),
        )

    def _call_here(
        self, words: tuple[str, ...], folder: Path, stdin: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in this process: most of what one costs is the start of its interpreter."""
        out, err = io.StringIO(), io.StringIO()
        session = Session(
            environ=self.environment(), stdin=io.StringIO(stdin), stdout=out, stderr=err, folder=folder
        )
        if words[0] in SLURM_COMMANDS:
            code = run_shim(words[0], words[1:], session)
        else:
            code = run_command(words, session)
        return subprocess.CompletedProcess(words, code, out.getvalue(), err.getvalue())

    def run(self, *words: str, folder: Path | None = None, stdin: str | None = None) -> str:
        """Type a command that has to succeed; its standard output."""
        done = self.call(*words, folder=folder, stdin=stdin)
        assert done.returncode == 0, f"{' '.join(words)}: exit {done.returncode}\n{done.stderr}{done.stdout}"
        return done.stdout

    def ask(self, *words: str) -> Any:
        """A command with ``--json``; its answer."""
        return json.loads(self.run("--json", *words))

    def sbatch(self, script: str, *options: str, folder: Path | None = None) -> str:
        """Write a script into a folder (a new one unless given) and submit it there; the job's number."""
        place = folder or self.server.make_folder(f"submit-{self.name}-{time.monotonic_ns()}")
        (place / "job.sh").write_text("#!/bin/bash\n" + script, "utf-8")
        return self.run("sbatch", "--parsable", *options, "job.sh", folder=place).strip()

    def follow(self, number: str) -> Follower:
        """``job logs -f`` beside."""
        return Follower(self, number)

    def job(self, number: str) -> dict[str, Any]:
        return dict(self.client.jobs.get(number))

    def runs(self, number: str) -> list[dict[str, Any]]:
        """The allocations of a job, oldest first."""
        found = self.job(number).get("allocations") or []
        return sorted(found, key=lambda run: int(run["attempt"]))

    def log(self, number: str) -> str:
        return "".join(self.client.jobs.log_text(number))

    def wait_state(self, number: str, *states: str, seconds: float = 30) -> dict[str, Any]:
        """Until the job is in one of the states; the job."""

        def look() -> dict[str, Any] | None:
            found = self.job(number)
            return found if found["state"] in states else None

        with self._explained(number):
            return dict(wait_for(look, f"job {number} to be {' or '.join(states)}", seconds))

    def wait_end(self, number: str, seconds: float = 30) -> dict[str, Any]:
        return self.wait_state(number, "succeeded", "failed", "cancelled", seconds=seconds)

    def wait_log(self, number: str, text: str, seconds: float = 30) -> str:
        """Until the job's log holds ``text``; the log."""
        what = f"{text!r} in the log of job {number}"
        with self._explained(number):
            return str(wait_for(lambda: text in (log := self.log(number)) and log, what, seconds))

    @contextlib.contextmanager
    def _explained(self, number: str) -> Iterator[None]:
        """Where something about a job does not come in time: the job, its log's end, the server's."""
        try:
            yield
        except NotInTime as late:
            lines = [
                str(late),
                str(self.job(number)),
                self.log(number)[-2000:],
                self.server.read_log()[-3000:],
            ]
            raise NotInTime("\n".join(lines)) from None

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def argv(self, *words: str) -> list[str]:
        """The process that a command is."""
        python = self.server.ground.python
        if words[0] in SLURM_COMMANDS:
            run = f"import sys; from starverse.cli.slurm.shims import main; sys.exit(main({words[0]!r}))"
            return [python, "-c", run, *words[1:]]
        return [python, "-m", "starverse.cli.remote.entry", *words]


class Follower:
    """A running ``starverse job logs -f``."""

    def __init__(self, person: Person, number: str) -> None:
        self._out = person.home / f"follow-{number}-{time.monotonic_ns()}"
        with self._out.open("wb") as out:
            self._process = subprocess.Popen(
                person.argv("job", "logs", "-f", number),
                env=person.environment(),
                cwd=person.home,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.DEVNULL,
                **person.server.ground.identity(),
            )

    def text(self) -> str:
        """What was printed so far."""
        return self._out.read_text("utf-8")

    def wait_text(self, text: str) -> None:
        """Until ``text`` was printed."""
        wait_for(lambda: text in self.text(), f"{text!r} in what is followed")

    def finish(self, seconds: float = 30) -> str:
        """Wait until it ends with its job; all it printed."""
        try:
            code = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            raise NotInTime(f"the log did not end; so far:\n{self.text()[-2000:]}") from None
        assert code == 0, f"following ended with exit code {code}"
        return self.text()

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


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


def clean_environment() -> dict[str, str]:
    """This process's environment without anything that is meant for us or for Slurm."""
    ours = ("STARVERSE_", "SLURM_", "SBATCH_", "XDG_", "PYTEST_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


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
