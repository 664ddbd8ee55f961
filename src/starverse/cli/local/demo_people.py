"""The people of the demo, and what they need: commands, waiting, what is printed."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

PASSWORD = "correct-horse-battery"


class DemoFailed(Exception):
    """A step of the demo did not do what it claims; the text above says which."""

    code = "failure"

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(detail)


@dataclass(slots=True)
class Person:
    """Someone who types commands, with a configuration folder of their own."""

    name: str
    home: Path
    api: str
    extra: dict[str, str] = field(default_factory=dict)

    def run(self, *words: str, folder: Path | None = None, shown: bool = True) -> str:
        """Run one command; prints it and what it said. Raises :class:`DemoFailed` when it fails."""
        if shown:
            typed = words if words[0] == "sbatch" else ("starverse", *words)
            say(f"\n{self.name} $ {shlex.join(typed)}")
        done = subprocess.run(
            self._argv(words), cwd=folder, env=self.environment(), text=True, capture_output=True, check=False
        )
        if shown and (done.stdout or done.stderr):
            say(indented(done.stderr + done.stdout))
        if done.returncode != 0:
            if not shown:
                say(indented(done.stderr + done.stdout))
            raise DemoFailed(f"`{' '.join(words)}` ended with exit code {done.returncode}")
        return done.stdout

    def ask(self, *words: str) -> Any:
        """Run one command with ``--json``, quietly; its answer."""
        return json.loads(self.run("--json", *words, shown=False))

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start a command whose output is read while it runs."""
        return subprocess.Popen(
            self._argv(words),
            env=self.environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("STARVERSE_", "SLURM_", "SBATCH_"))}
        return (
            kept
            | {
                "STARVERSE_API": self.api,
                "STARVERSE_PASSWORD": PASSWORD,
                "XDG_CONFIG_HOME": str(self.home),
                "NO_COLOR": "1",
            }
            | self.extra
        )

    def _argv(self, words: tuple[str, ...]) -> list[str]:
        if words[0] == "sbatch":
            run = "import sys; from starverse.cli.slurm.shims import main; sys.exit(main('sbatch'))"
            return [sys.executable, "-c", run, *words[1:]]
        return [sys.executable, "-m", "starverse.cli.remote.entry", *words]


def wait_for(condition: Callable[[], bool], seconds: float, what: str, every: float = 0.2) -> None:
    """Ask until the condition holds; raises :class:`DemoFailed` when it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise DemoFailed(f"{what} did not come within {seconds:.0f} s")
        time.sleep(every)


def indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.rstrip().splitlines())


def say(text: str) -> None:
    click.echo(text)
