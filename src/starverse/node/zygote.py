"""A small process with the launcher's modules loaded, which forks a launcher per line of its input.

A start would cost most of its time in importing; here it costs a fork. The server owns one and tells it
folders; when the server is gone its input ends and it goes too, while the launchers it made, each in a
session of its own, go on.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
import traceback

from starverse.node.interactive import HOST_KEYS
from starverse.node.launcher import main as launch

DRIVER = "/proc/driver/nvidia"


def serve(commands: int) -> None:
    """Read folders, one a line, until the input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # launchers are nobody's zombies
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if os.path.isdir(DRIVER):  # noqa: PTH112  (launchers will ask it for their cards)
        with contextlib.suppress(ImportError):
            import pynvml  # noqa: F401
    with contextlib.suppress(ImportError):
        importlib.import_module(HOST_KEYS)
    gc.collect()
    gc.freeze()
    received = b""
    while part := os.read(commands, 65536):
        *folders, received = (received + part).split(b"\n")
        for folder in folders:
            if os.fork() == 0:
                _launch(commands, os.fsdecode(folder))


def _launch(commands: int, folder: str) -> None:
    """In the forked child: become a launcher, never come back."""
    code = 1
    try:
        os.setsid()
        os.close(commands)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        redirect(folder)
        code = launch(folder)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def redirect(folder: str) -> None:
    """Input from nowhere, output into ``launcher.log``."""
    null = os.open("/dev/null", os.O_RDONLY)
    log = os.open(f"{folder}/launcher.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for handle, target in ((null, 0), (log, 1), (log, 2)):
        os.dup2(handle, target)
    os.close(null)
    os.close(log)


if __name__ == "__main__":
    commands = os.dup(0)
    os.set_inheritable(commands, False)
    serve(commands)
