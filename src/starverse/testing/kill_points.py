"""``kill -9`` at a chosen change of the file system: what a power cut or an impatient operator does.

A child process runs an act and kills itself just before its n-th rename, link, removal or new folder, told by
the interpreter's audit events. So "at any point" is tried point by point, not by luck.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

CHANGES = frozenset({"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir"})


def killed_before(change: int, act: Callable[[], object], changes: frozenset[str] = CHANGES) -> bool:
    """Run ``act`` in a fork that dies before its ``change``-th (from 1) change; false: it ended before that.

    Whatever ``act`` needs it opens itself. Raises ``AssertionError`` when it failed otherwise.
    """
    child = os.fork()
    if child == 0:
        _run_and_leave(change, act, changes)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL, f"ended by signal {os.WTERMSIG(status)}"
        return True
    assert os.WEXITSTATUS(status) == 0, "it failed; see what it printed"
    return False


def _run_and_leave(change: int, act: Callable[[], object], changes: frozenset[str]) -> None:
    seen = 0

    def look(event: str, _arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in changes:
            seen += 1
            if seen == change:
                os.kill(os.getpid(), signal.SIGKILL)

    try:
        sys.addaudithook(look)
        act()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)
