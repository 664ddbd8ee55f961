"""People of a live server: someone with a shell and a home of their own, and what they leave running in it.

:class:`Person` types commands, most of them in the test's own process; :class:`Follower` is a log that is
followed beside.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starverse.cli.remote.entry import run as run_command
from starverse.cli.remote.session import Session
from starverse.cli.slurm.shims import main as run_shim
from starverse.client.api import Client, connect
from starverse.testing.in_time import NotInTime, wait_for

if TYPE_CHECKING:
    from starverse.testing.live_server import LiveServer

PASSWORD = "correct-horse-battery"
SLURM_COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "sacct", "srun")
QUICK_COMMANDS = frozenset(
    {"register", "login", "topup", "whoami", "offers", "job", "ps", "show", "stop", "rm", "secret", "disk"}
    | {"ssh-key", "sbatch", "squeue", "scancel", "sinfo", "sacct"}
)
"""Those that ask the server and are done: a session holds all that they need, so that they run in the test's
own process. That they can be typed into a shell is what the tests of the pages prove."""


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


def clean_environment() -> dict[str, str]:
    """This process's environment without anything that is meant for us or for Slurm."""
    ours = ("STARVERSE_", "SLURM_", "SBATCH_", "XDG_", "PYTEST_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}
