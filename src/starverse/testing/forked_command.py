"""``starverse WORDS`` as a process that is forked instead of started: tests start hundreds of servers, and
importing one is four fifths of its start.

The processes come from :mod:`multiprocessing`'s fork server, which imports the server once in a test process
and does nothing else; each leads a session of its own, with the environment, folder and output asked for.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from multiprocessing.context import ForkServerContext
from pathlib import Path

from starverse.cli.remote.entry import run
from starverse.cli.remote.session import Session

IMPORTED_ONCE = ["starverse.main", "starverse.cli.local.up", __name__]


class ForkedCommand:
    """What :class:`subprocess.Popen` is for a program: to be waited for and signalled."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], folder: Path, output: Path
    ) -> None:
        self._words = list(words)
        self._process = _fork_server().Process(
            target=_become, args=(self._words, dict(environment), folder, output)
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid: int = self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; minus the signal's number after one. Raises ``subprocess.TimeoutExpired``."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            raise subprocess.TimeoutExpired(self._words, timeout or 0)
        return code

    def kill(self) -> None:
        self._process.kill()

    def terminate(self) -> None:
        self._process.terminate()


@cache
def _fork_server() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED_ONCE)
    return context


def _become(words: list[str], environment: dict[str, str], folder: Path, output: Path) -> None:
    """In the forked process."""
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    out = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for handle in (1, 2):
        os.dup2(out, handle)
    os.close(out)
    sys.exit(run(words, Session()))
