"""What one run of the command line carries: streams, environment, ``--json`` and ``--team``, the client.

Data goes to stdout, everything else to stderr. Tests make a session of their own; nothing here is global.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from starverse.client.api import Client

JSON_VERSION = 1
"""Version of everything that ``--json`` prints; fields are added without a new one."""


def local_now() -> datetime:
    """The present instant on the clocks of this machine's zone."""
    return datetime.now(UTC).astimezone()


def replace_process(argv: Sequence[str]) -> int:
    """Go on as another program, which has this process's streams and whose exit code is the command's.

    Python ignores two signals, and what is ignored stays so in the other program: they are given back first.
    """
    import signal

    sys.stdout.flush()
    sys.stderr.flush()
    for name in ("SIGPIPE", "SIGXFSZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.execvp(argv[0], list(argv))


def read_unseen(prompt: str, stderr: TextIO) -> str:
    """A line typed at the terminal without being shown."""
    import getpass

    return getpass.getpass(prompt, stream=stderr)


def open_browser(address: str) -> bool:
    """Whether a browser was opened; only where windows can be shown."""
    if sys.platform not in ("darwin", "win32") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return False
    import webbrowser

    return webbrowser.open(address)


@dataclass(slots=True)
class Session:
    """One run. ``team`` ``None``: the team of the token. ``now`` is an instant in the caller's zone.

    ``become`` goes on as another program (``ssh``), ``browse`` opens an address in a browser,
    ``unseen`` reads what is typed without showing it.
    """

    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    stdin: TextIO = field(default_factory=lambda: sys.stdin)
    stdout: TextIO = field(default_factory=lambda: sys.stdout)
    stderr: TextIO = field(default_factory=lambda: sys.stderr)
    folder: Path = field(default_factory=Path.cwd)
    json: bool = False
    team: str | None = None
    exit_code: int = 0
    now: Callable[[], datetime] = local_now
    pause: Callable[[float], None] = time.sleep
    become: Callable[[Sequence[str]], int] = replace_process
    browse: Callable[[str], bool] = open_browser
    unseen: Callable[[str, TextIO], str] = read_unseen
    _client: Client | None = None

    def client(self) -> Client:
        """The client, opened at its first use and closed by :meth:`close`."""
        if self._client is None:
            from starverse.client.api import connect

            self._client = connect(self.environ, team=self.team, pause=self.pause)
        return self._client

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def emit(self, data: Mapping[str, Any], text: Callable[[], str]) -> None:
        """The command's answer: as JSON with ``--json``, else as text."""
        answer = json.dumps(_versioned(data), ensure_ascii=False, indent=2) if self.json else text()
        if answer:
            self.write(answer + "\n")

    def write(self, text: str) -> None:
        """Raw text to stdout, as far as its encoding can show it."""
        encoding = self.stdout.encoding or "utf-8"
        self.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        self.stdout.flush()

    def write_bytes(self, data: bytes) -> None:
        """Bytes to stdout as they are."""
        binary = getattr(self.stdout, "buffer", None)
        if binary is None:
            self.write(data.decode("utf-8", "backslashreplace"))
            return
        binary.write(data)
        binary.flush()

    def note(self, text: str) -> None:
        """Something for people, on stderr."""
        encoding = self.stderr.encoding or "utf-8"
        self.stderr.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")
        self.stderr.flush()

    def asks(self) -> bool:
        """Whether someone is there to answer a question; it goes to stderr, so ``--json`` changes nothing."""
        return self.stdin.isatty() and self.stderr.isatty()

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something is destroyed or money is spent; a no ends the command."""
        if yes or not self.asks():
            return
        self.stderr.write(f"{question} [y/N] ")
        self.stderr.flush()
        if self.stdin.readline().strip().lower() not in ("y", "yes", "是"):
            raise Declined

    def insist(self, question: str, *, yes: bool) -> None:
        """As :meth:`confirm`; where nobody can be asked, ``--yes`` has to be given."""
        if yes or self.asks():
            self.confirm(question, yes=yes)
            return
        import click

        raise click.UsageError(f"{question} Nobody is there to answer: say yes with --yes")

    def secret(self, prompt: str, variable: str, *, again: str | None = None) -> str:
        """A password: from the environment, else typed unseen, else the first line of stdin. ``again``: the
        prompt of a second time, which must be the same."""
        configured = self.environ.get(variable)
        if configured:
            return configured
        if not self.asks():
            return self.stdin.readline().rstrip("\r\n")
        typed = self.unseen(prompt, self.stderr)
        if again is not None and self.unseen(again, self.stderr) != typed:
            import click

            raise click.UsageError("the two passwords differ; nothing was changed")
        return typed


def _versioned(data: Mapping[str, Any]) -> dict[str, Any]:
    """``version`` is always the one of what ``--json`` prints, whatever what is shown calls so."""
    return {"version": JSON_VERSION, **{name: value for name, value in data.items() if name != "version"}}


class Declined(Exception):
    """The question was answered with no; nothing was changed."""
