"""Work that must not hold up a launcher: each piece in a process forked for it, which dies with it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable

from starverse.node.processes import close_all_but
from starverse.node.sandbox import syscalls

_TEXT_BYTES_MAX = 4000


class Act:
    """``work`` under way in a process of its own, which keeps the descriptors ``kept`` and no other.

    ``work`` returns when all is done; what it raises is how it failed. To be begun from the launcher's main
    thread, whose end is the end of the process.
    """

    def __init__(self, work: Callable[[], None], kept: tuple[int, ...] = ()) -> None:
        self._said = b""
        self.handle, tell = os.pipe()
        launcher = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            _perform(work, (tell, *kept), launcher)
        os.close(tell)
        os.set_blocking(self.handle, False)

    def outcome(self) -> str | None:
        """``None``: it goes on. ``""``: done. Else how it failed. To be asked until it is not ``None``."""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self.handle, 65536):
                self._said += part
            os.close(self.handle)
            os.waitpid(self._child, 0)
            text = self._said.decode(errors="replace")
            return "" if text == "done" else text or "its process was killed"
        return None

    def kill(self) -> None:
        """End it now; a process inside a system call that nothing interrupts ends later."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, signal.SIGKILL)

    def wait(self, seconds: float) -> str | None:
        """The outcome, waited for ``seconds`` at most."""
        poll = select.poll()
        poll.register(self.handle, select.POLLIN)
        poll.poll(seconds * 1000)
        return self.outcome()


def _perform(work: Callable[[], None], kept: tuple[int, ...], launcher: int) -> None:
    """In the forked child; never comes back."""
    text = "done"
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != launcher:
            os._exit(125)
        close_all_but((0, 1, 2, *kept))
        os.umask(0o022)
        work()
    except BaseException as error:
        text = str(error) or type(error).__name__
    finally:
        with contextlib.suppress(OSError):
            os.write(kept[0], text.encode(errors="replace")[:_TEXT_BYTES_MAX])
        os._exit(0)
