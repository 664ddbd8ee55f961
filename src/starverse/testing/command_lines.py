"""Running a command line in process against an API, with streams that are kept."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TextIO

from starverse.cli.remote.entry import run
from starverse.cli.remote.session import Session
from starverse.cli.slurm.shims import main as run_shim

PROGRAM_EXIT_CODE = 3
"""Of programs that a command would go on as."""
NOW = datetime.fromisoformat("2026-03-10T20:00:00+08:00")


@dataclass(frozen=True, slots=True)
class Ran:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Terminal(io.StringIO):
    """A stream that someone sits at."""

    def isatty(self) -> bool:
        return True


@dataclass(slots=True)
class CommandLine:
    """Where commands run: the API's address, the current folder, variables; time stands at :data:`NOW`."""

    api: str
    folder: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    waited: list[float] = field(default_factory=list)
    became: list[list[str]] = field(default_factory=list)
    browsed: list[str] = field(default_factory=list)

    def run(self, *words: str, stdin: str = "", terminal: bool = False) -> Ran:
        """``starverse WORDS``."""
        return self._run(lambda session: run(words, session), stdin, terminal=terminal)

    def shim(self, name: str, *words: str, stdin: str = "") -> Ran:
        """``sbatch WORDS`` and its kin."""
        return self._run(lambda session: run_shim(name, words, session), stdin, terminal=False)

    def _run(self, command: Callable[[Session], int], stdin: str, *, terminal: bool) -> Ran:
        kind = Terminal if terminal else io.StringIO
        out, err = kind(), kind()
        environ = {
            "STARVERSE_API": self.api,
            "STARVERSE_TOKEN": "t",
            "XDG_CONFIG_HOME": str(self.folder / ".config"),
            "HOME": str(self.folder),
            **self.environ,
        }
        source = kind(stdin)

        def unseen(prompt: str, stderr: TextIO) -> str:
            stderr.write(prompt)
            return source.readline().rstrip("\n")

        session = Session(
            environ={name: value for name, value in environ.items() if value},
            stdin=source,
            stdout=out,
            stderr=err,
            folder=self.folder,
            now=lambda: NOW,
            pause=self.waited.append,
            become=self._become,
            browse=self._browse,
            unseen=unseen,
        )
        return Ran(command(session), out.getvalue(), err.getvalue())

    def _become(self, argv: Sequence[str]) -> int:
        """Keeps what would run, and answers as a program that ends with 3."""
        self.became.append(list(argv))
        return PROGRAM_EXIT_CODE

    def _browse(self, address: str) -> bool:
        self.browsed.append(address)
        return True
