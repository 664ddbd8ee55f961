"""A workload in its launcher's hands: limits, notice, TERM, KILL, and what the script leaves behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from collections.abc import Callable
from typing import Any

from starverse.domain.workloads.launch import FUNDS_END, NODE_DOWN, LaunchSpec
from starverse.node import notice as notices
from starverse.node import processes
from starverse.node.deadlines import Notice
from starverse.node.folder import AllocationFolder, write_atomically
from starverse.node.host_setup import HostSetup
from starverse.node.limits import Cgroups, remove_cgroups
from starverse.node.sandbox.driver import SandboxDriver
from starverse.node.steady_clock import SteadyClock
from starverse.node.workload import Workload

WATCH_SECONDS = 0.25
"""How often resident memory is looked at where no cgroup limits it."""
_WHY = {"unfunded": FUNDS_END, NODE_DOWN: "its node goes down", "": "the gang has ended"}


class Custody:
    """From :meth:`limit` and :meth:`start` until :meth:`has_ended`. ``say`` writes a line of ours for people.

    ``given`` is the notice that was given, ``term_at`` when TERM was sent, ``failure`` why the workload was
    killed from here.
    """

    def __init__(
        self, spec: LaunchSpec, folder: AllocationFolder, clock: SteadyClock, say: Callable[[str], None]
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._clock = clock
        self._say = say
        self._cgroups: Cgroups | None = None
        self._memory_killed = False
        self._memory_victim = 0

        self.workload: Workload | None = None
        self.given: Notice | None = None
        self.term_at: float | None = None
        self.killed = False

    # -- start

    def limit(self, host: HostSetup, name: str) -> None:
        """Make the control groups; ``limits.json`` says what holds."""
        self._cgroups = Cgroups(host.cgroups, name)
        self._cgroups.create(self._spec.limits, self._spec.workspace)
        write_atomically(self._folder / "limits.json", self._cgroups.describe())

    def start(
        self, driver: SandboxDriver, host: HostSetup, environment: dict[str, str], logs: tuple[int, int]
    ) -> Workload:
        """Fork the sandbox's first process, into the groups that :meth:`limit` made. Its script waits for
        ``go`` of what is answered."""
        assert self._cgroups is not None
        self.workload = Workload(self._spec, self._folder, driver)
        self.workload.start(host, environment, logs, self._cgroups)
        return self.workload

    # -- keep

    def wait(self, wake_at: list[float], others: list[tuple[int, int]]) -> None:
        """Until the workload or one of the ``others`` (number, events of ``poll``) has news, or it is
        time."""
        workload = self.workload
        assert workload is not None
        now = self._clock.now()
        wake = list(wake_at)
        if self.given is not None and self.term_at is None:
            wake.append(self.given.deadline)
        if self.term_at is not None and not self.killed:
            wake.append(self.term_at + self._spec.kill_after_seconds)
        if self._watches_memory():
            wake.append(now + WATCH_SECONDS)
        if workload.exit is not None or self.killed:
            wake.append(now + 0.02)
        poll = select.poll()
        if workload.exit is None:
            poll.register(workload.status_handle, select.POLLIN)
        poll.register(workload.child_handle, select.POLLIN)
        for number, events in others:
            poll.register(number, events)
        ready = poll.poll(max(0.0, min(wake) - now) * 1000)
        if any(number == workload.status_handle and event & select.POLLHUP for number, event in ready):
            poll = select.poll()  # the supervisor is gone: only its child's end is left to wait for
            poll.register(workload.child_handle, select.POLLIN)
            poll.poll(20)

    def announce(self, notice: Notice, *, signals: bool = True) -> None:
        """Give a notice: the file, and with ``signals`` the signal to those who handle it."""
        assert self.workload is not None
        self.given = notice
        notices.write_notice(self._folder.run, notice)
        deadline = notices.format_instant(notice.deadline)
        self._say(f"notice: {notice.reason}; TERM follows at {deadline}")
        if not signals:
            return
        targets = notices.signal_targets(self._spec, self.workload.script(), self.workload.processes_inside())
        processes.send(targets, notices.notice_signal(self._spec))

    def signal(self, name: str, to: str) -> None:
        """Send what people asked for, to processes inside and to no other; ``to`` as ``SignalTo`` has it."""
        workload = self.workload
        if workload is None:
            return
        script, inside = workload.script(), workload.processes_inside()
        chosen = [pid for pid in inside if to == "all" or (pid == script) == (to == "batch")]
        reached = processes.send(chosen, processes.signal_number(name))
        self._say(f"signal {name} to {reached} processes, as asked for")

    def stop(self, stopped_by: str, *, kill: bool = False) -> bool:
        """TERM for all processes once; KILL when ``kill`` or when they had their time.

        Answers whether this call began it.
        """
        assert self.workload is not None
        now = self._clock.now()
        begins = self.term_at is None
        if self.term_at is None:
            self.term_at = now
            if not self.workload.ready:
                kill = True
            elif not kill:
                why = _WHY.get(stopped_by, stopped_by)
                self._say(f"TERM ({why}); KILL follows in {self._spec.kill_after_seconds} s")
                self.workload.terminate()
        if kill or now >= self.term_at + self._spec.kill_after_seconds:
            if not self.killed and not kill:
                self._say("KILL")
            self.killed = True
            self.workload.kill()
        return begins

    def had_its_time(self) -> bool:
        """Whether it was told to end so long ago that KILL is due."""
        return self.term_at is not None and self._clock.now() >= self.term_at + self._spec.kill_after_seconds

    def leave(self) -> None:
        """The script is over: what it left behind ends too, at once unless it was just told to end."""
        workload = self.workload
        if workload is None or workload.exit is None:
            return
        told = self.term_at is not None and not self.had_its_time()
        if not told or not workload.processes_inside():
            workload.release()

    def watch_memory(self) -> None:
        """What a memory cgroup does, where there is none. Of an instance the largest process alone is
        killed, as the kernel does: it goes on for whoever else is at work in it."""
        if not self._watches_memory() or self.killed or self.workload is None:
            return
        resident = {pid: processes.read_resident_bytes([pid]) for pid in self.workload.processes_inside()}
        used, limit = sum(resident.values()), self._spec.limits.memory_bytes
        if used <= limit:
            return
        if self._spec.interactive:
            largest = max(resident, key=lambda pid: resident[pid])
            if largest != self._memory_victim and processes.send([largest], signal.SIGKILL):
                self._memory_victim = largest
                self._say(
                    f"out of memory: {used} bytes resident, the limit is {limit}; the largest was killed"
                )
            return
        self._say(f"out of memory: {used} bytes resident, the limit is {limit}")
        self._memory_killed = self.killed = True
        self.workload.kill()

    def has_ended(self) -> bool:
        """Whether the whole sandbox is gone."""
        return self.workload is None or self.workload.has_ended()

    # -- end

    def give_up(self) -> None:
        """Kill it, whatever state it is in."""
        if self.workload is not None and self.workload.child:
            self.workload.kill()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.workload.child, 0)

    def outcome(self, failure: str, stopped_by: str) -> dict[str, Any]:
        """How it ended, as fields of a ``LauncherState``; ``failure`` and ``stopped_by`` as they stand."""
        if self.workload is None:
            return {}
        if not self.workload.ready:
            if failure or stopped_by:
                return {}
            return {"failure": self.workload.read_refusal() or "the sandbox ended before the script started"}
        found = self.workload.exit
        code = None if found is None else found.code
        number = signal.SIGKILL.value if found is None else found.signal
        return {
            "failure": failure or self.workload.broken,
            "exit_code": code,
            "exit_signal": number,
            "out_of_memory": self._memory_killed or (self.was_out_of_memory() and code != 0),
        }

    def was_out_of_memory(self) -> bool:
        """Whether a process was killed for memory, by the kernel or from here."""
        return self._memory_killed or (self._cgroups is not None and self._cgroups.was_out_of_memory())

    def remove_limits(self) -> None:
        if self._cgroups is not None:
            remove_cgroups(self._cgroups.all_folders())

    def _watches_memory(self) -> bool:
        return self._cgroups is not None and not self._cgroups.has_memory_limit()
