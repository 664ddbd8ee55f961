"""How launchers come to life: forked by a zygote, or else started as a process of their own."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

from starverse.engines.base import EngineUnavailable

_KEPT = ("PATH", "LANG", "LC_ALL", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")


def launcher_environment() -> dict[str, str]:
    """What a launcher needs of the server's environment: never its secrets."""
    return {name: os.environ[name] for name in _KEPT if name in os.environ}


class LauncherStarter:
    """Starts launchers that outlive this process. Safe to call from any thread."""

    def __init__(self, log: Path, *, use_zygote: bool = True) -> None:
        self._log = log
        self._use_zygote = use_zygote
        self._zygote: subprocess.Popen[bytes] | None = None
        self._children: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def warm_up(self) -> None:
        """Have the zygote ready; a start without it is slower and just as good."""
        with self._lock:
            if self._use_zygote:
                self._have_zygote()

    def start(self, folder: Path) -> None:
        """Start a launcher for the folder; raises :class:`EngineUnavailable` where no process can be made."""
        with self._lock:
            self._reap()
            if self._use_zygote and self._ask_zygote(folder):
                return
            self._start_apart(folder)

    def close(self) -> None:
        with self._lock:
            self._end_zygote()
            self._reap()
            for child in self._children:
                child.returncode = 0  # it goes on without us: nothing to wait for, nothing to warn about

    def _ask_zygote(self, folder: Path) -> bool:
        try:
            zygote = self._have_zygote()
            assert zygote.stdin is not None
            zygote.stdin.write(os.fsencode(folder) + b"\n")
            zygote.stdin.flush()
        except OSError:
            self._end_zygote()
            return False
        return True

    def _have_zygote(self) -> subprocess.Popen[bytes]:
        if self._zygote is not None and self._zygote.poll() is not None:
            self._end_zygote()
        if self._zygote is None:
            with self._log.open("ab") as log:
                self._zygote = subprocess.Popen(
                    [sys.executable, "-m", "starverse.node.zygote"],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=launcher_environment(),
                    start_new_session=True,
                )
        return self._zygote

    def _end_zygote(self) -> None:
        if self._zygote is not None:
            with contextlib.suppress(OSError):
                if self._zygote.stdin is not None:
                    self._zygote.stdin.close()
            self._zygote.wait()
            self._zygote = None

    def _start_apart(self, folder: Path) -> None:
        try:
            with (folder / "launcher.log").open("ab") as log:
                child = subprocess.Popen(
                    [sys.executable, "-m", "starverse.node.launcher", str(folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=launcher_environment(),
                    start_new_session=True,
                )
        except OSError as error:
            raise EngineUnavailable(f"no launcher can be started: {error.strerror}") from error
        self._children.append(child)

    def _reap(self) -> None:
        self._children = [child for child in self._children if child.poll() is None]
