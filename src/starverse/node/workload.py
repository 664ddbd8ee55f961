"""The running workload as its launcher handles it: pipes, signals, the end."""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass

from starverse.domain.workloads.launch import LaunchSpec
from starverse.node import processes
from starverse.node.folder import AllocationFolder
from starverse.node.host_setup import HostSetup
from starverse.node.limits import Cgroups
from starverse.node.sandbox import inside
from starverse.node.sandbox.driver import SandboxDriver, Start


@dataclass(frozen=True, slots=True)
class Exit:
    """How the script ended: exactly one of the two is set."""

    code: int | None
    signal: int | None


class Workload:
    """One started sandbox. ``ready`` once the script was executed; ``exit`` once it ended.

    ``entered`` once its namespaces stand: the path there of the folder in which mounts may appear, ``""``
    where there can be none.

    ``broken`` is why the script could not be executed by its own fault.
    """

    def __init__(self, spec: LaunchSpec, folder: AllocationFolder, driver: SandboxDriver) -> None:
        self._spec = spec
        self._folder = folder
        self._driver = driver
        self._received = b""
        self._first = 0
        self._supervisor = 0
        self._script = 0
        self._inside_ids = (0, 0)
        self._control = -1
        self.child = 0
        self.child_handle = -1
        self.status_handle = -1
        self.entered: str | None = None
        self.ready = False
        self.refusal = ""
        self.broken = ""
        self.exit: Exit | None = None

    def start(
        self, host: HostSetup, environment: dict[str, str], logs: tuple[int, int], cgroups: Cgroups
    ) -> None:
        """Fork the sandbox's first process; from the launcher's main thread only. The script waits for
        :meth:`go`."""
        self.status_handle, status = os.pipe()
        control, self._control = os.pipe()
        given = os.memfd_create("environment")
        os.write(
            given, b"".join(os.fsencode(f"{name}={value}") + b"\0" for name, value in environment.items())
        )
        os.lseek(given, 0, os.SEEK_SET)
        errors = os.open(
            self._folder / "start.err", os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
        )
        start = Start(
            spec=self._spec,
            folder=self._folder,
            host=host,
            pipes=(status, control, *logs, given),
            cgroup_files=cgroups.process_files(),
            processes=0 if cgroups.has_process_limit() else self._spec.limits.processes,
            start_errors=errors,
        )
        self.child = self._driver.start(start)
        self.child_handle = os.pidfd_open(self.child)
        for handle in (status, control, given, errors):
            os.close(handle)
        os.set_blocking(self.status_handle, False)

    def go(self) -> None:
        """Let the script begin."""
        if self._control >= 0:
            with contextlib.suppress(BrokenPipeError):  # its end is noticed elsewhere
                os.write(self._control, b"g")

    def listen(self) -> None:
        """Take in what the supervisor reported."""
        with contextlib.suppress(BlockingIOError):
            while part := os.read(self.status_handle, 65536):
                self._received += part
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            self._hear(line.decode(errors="replace"))

    def has_ended(self) -> bool:
        """Whether the whole sandbox is gone; then ``exit`` is set if the script was ever executed."""
        pid, raw = os.waitpid(self.child, os.WNOHANG)
        if pid == 0:
            return False
        self.listen()
        self.release()
        if self._driver.name == "process":
            inside.kill_below(os.getpid())
        if self.ready and self.exit is None:  # the supervisor had no time to report: all was killed
            code = os.waitstatus_to_exitcode(raw)
            killed = -code if code < 0 else code - 128
            self.exit = Exit(None, killed if 0 < killed < 65 else signal.SIGKILL.value)
        return True

    def processes_inside(self) -> list[int]:
        """All processes of the script, orphans too, as host ids; the sandbox's own are not among them."""
        if not self._find_script():
            return []
        found = processes.find_descendants(self.child)
        return [pid for pid in found if pid not in (self._first, self._supervisor)]

    def script(self) -> int:
        """The batch shell's host id; 0 before it is known."""
        return self._script if self._find_script() else 0

    def terminate(self) -> None:
        processes.send(self.processes_inside(), signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL for everything; may be called again until :meth:`has_ended`."""
        below = processes.find_descendants(self.child)
        if self._driver.name != "process":  # there the supervisor goes on to kill what is new
            below.append(self.child)
        processes.send(below, signal.SIGKILL)
        self.release()

    def release(self) -> None:
        """Let the supervisor go: what is left inside ends with it."""
        if self._control >= 0:
            os.close(self._control)
            self._control = -1

    def read_refusal(self) -> str:
        """Why the script was never executed."""
        if self.refusal:
            return self.refusal
        with contextlib.suppress(OSError):
            lines = (self._folder / "start.err").read_text(errors="replace").strip().splitlines()
            return "; ".join(lines[-3:])[:1000]
        return ""

    def _hear(self, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "entered":
            self.entered = rest
        elif word == "ready":
            supervisor, script = rest.split()
            self._inside_ids = (int(supervisor), int(script))
            self.ready = True
        elif word == "broken":
            self.broken = rest
        elif word == "failed":
            self.refusal = rest
        elif word == "exit":
            self.exit = Exit(int(rest), None)
        elif word == "signal":
            self.exit = Exit(None, int(rest))

    def _find_script(self) -> bool:
        """Host ids of supervisor and script, by the ids that they have inside."""
        if not self.ready:
            return False
        if self._supervisor == 0:
            candidates = [self.child, *processes.find_descendants(self.child)]
            by_inside = {processes.read_inside_pid(pid): pid for pid in candidates}
            self._first = by_inside.get(1, 0)  # bubblewrap's init, which takes up orphans
            self._supervisor = by_inside.get(self._inside_ids[0], 0)
            self._script = by_inside.get(self._inside_ids[1], 0)
        return self._supervisor != 0
