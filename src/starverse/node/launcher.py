"""The launcher: starts one allocation, keeps it, reports on it, ends it. ``python -m ... FOLDER``.

Its first act is to claim its allocation id; a second launcher exits unused. It then needs nobody: it
reports into its folder and, while the platform answers, over its channel; it stops the workload when the
money held for it runs out, at the time limit, or when told. ``kill -9`` of the launcher kills the
workload. Everything it is told is whole and level-triggered, by channel or by ``desired.json``.

::

    claimed -> running -> stopping -> ended        (ended from any; without ready_at: the start failed)
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from starverse.domain.workloads.launch import FUNDS_END, Desired, LauncherState, LaunchSpec
from starverse.node import notice as notices
from starverse.node import processes
from starverse.node.api_proxy import ApiProxy
from starverse.node.channel import ChannelClient, hello_line
from starverse.node.deadlines import Notice, due_notice, funded_until, strengthen
from starverse.node.dialing import dial
from starverse.node.environment import job_environment
from starverse.node.folder import AllocationFolder, write_atomically
from starverse.node.host_setup import HostSetup, find_host_setup
from starverse.node.limits import Cgroups, remove_cgroups
from starverse.node.log_keeping import LogKeeper, open_logs
from starverse.node.preparation import make_folders
from starverse.node.sandbox import syscalls
from starverse.node.sandbox.bwrap import BwrapDriver
from starverse.node.sandbox.driver import StartRefused
from starverse.node.sandbox.drivers import DRIVERS
from starverse.node.steady_clock import SteadyClock, read_boot_id
from starverse.node.workload import Workload

HEARTBEAT_SECONDS = 1.0
WATCH_SECONDS = 0.25
"""How often resident memory is looked at where no cgroup limits it."""


class Launcher:
    """One allocation from its claim to its report. Every step is short; :meth:`run` waits between them."""

    def __init__(self, folder: AllocationFolder, spec: LaunchSpec) -> None:
        self.folder = folder
        self.spec = spec
        self.clock = SteadyClock()
        self.desired = folder.read_desired() or Desired()
        self.channel = ChannelClient(spec)
        self.state = LauncherState(
            spec.allocation_id, spec.attempt, "claimed", read_boot_id(), self.clock.now()
        )
        self.workload: Workload | None = None
        self.cgroups: Cgroups | None = None
        self.proxy: ApiProxy | None = None
        self.outputs: LogKeeper | None = None
        self.template_act: subprocess.Popen[str] | None = None
        self.template_at = float("inf")
        self.given: Notice | None = None
        self.term_at: float | None = None
        self.killed = False
        self.memory_killed = False
        self.told_to_end = False
        self.beat_at = 0.0
        self.desired_stamp: tuple[int, int] | None = None

    def run(self) -> int:
        """The allocation's whole life; answers the launcher's exit code."""
        signal.signal(signal.SIGTERM, self._be_told_to_end)
        self._change(phase="claimed")
        try:
            if not self._is_unwanted():
                self._start()
                self._keep()
        except (StartRefused, OSError, ValueError) as error:
            self._fail(str(error))
        except Exception as error:
            traceback.print_exc()
            self._fail(f"{type(error).__name__}: {error}")
        self._end()
        return 0

    # -- start

    def _start(self) -> None:
        host = self._read_host()
        driver = DRIVERS.get(self.spec.driver, BwrapDriver)()
        if self.spec.driver not in DRIVERS:
            raise StartRefused(f"driver {self.spec.driver!r}: expected one of {', '.join(DRIVERS)}")
        driver.check(self.spec, host)
        if driver.name == "process":
            syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        make_folders(self.spec, self.folder)
        outputs = self.outputs = open_logs(self.spec, self.folder)
        self._perform_template("restore")
        if self._is_unwanted():
            return
        self._limit(host)
        if self.spec.api_socket is not None:
            self.proxy = make_api_proxy(self.spec, self.folder.run, self.spec.api_socket)
            self.proxy.bind()
        places = driver.places(self.spec, self.folder)
        self.workload = Workload(self.spec, self.folder, driver)
        environment = job_environment(self.spec, places, host.python)
        assert self.cgroups is not None
        self.workload.start(host, environment, (outputs.logs[0], outputs.logs[-1]), self.cgroups)
        if self.proxy is not None:
            self.proxy.serve()
        if self.spec.template is not None:
            self.template_at = self.clock.now() + self.spec.template.interval_seconds

    def _read_host(self) -> HostSetup:
        try:
            return HostSetup.from_json((self.folder / "host.json").read_text())
        except FileNotFoundError:
            shims = os.environ.get("STARVERSE_SHIMS", "")  # a node of a cluster, known to nobody before
            return find_host_setup(self.folder.path, (self.spec.node,), shims)

    def _limit(self, host: HostSetup) -> None:
        self.cgroups = Cgroups(host.cgroups, f"starverse-{self.spec.allocation_id}")
        self.cgroups.create(self.spec.limits, self.spec.workspace)
        write_atomically(self.folder / "limits.json", self.cgroups.describe())

    # -- keep

    def _keep(self) -> None:
        """Until the sandbox is gone."""
        while self.workload is not None:
            self._wait(self.workload)
            self.workload.listen()
            if self.workload.ready and self.state.ready_at is None:
                self._became_ready()
            if self.workload.has_ended():
                return
            self._step(self.workload)

    def _wait(self, workload: Workload) -> None:
        now = self.clock.now()
        wake = [self.beat_at] if self.outputs is None else [self.beat_at, self.outputs.wake_at]
        if self.given is not None and self.term_at is None:
            wake.append(self.given.deadline)
        if self.term_at is not None and not self.killed:
            wake.append(self.term_at + self.spec.kill_after_seconds)
        if self._watches_memory():
            wake.append(now + WATCH_SECONDS)
        if workload.exit is not None or self.killed:
            wake.append(now + 0.02)
        poll = select.poll()
        if workload.exit is None:
            poll.register(workload.status_handle, select.POLLIN)
        poll.register(workload.child_handle, select.POLLIN)
        if (channel := self.channel.wait_on()) is not None:
            poll.register(*channel)
        ready = poll.poll(max(0.0, min(wake) - now) * 1000)
        if any(number == workload.status_handle and event & select.POLLHUP for number, event in ready):
            poll = select.poll()  # the supervisor is gone: only its child's end is left to wait for
            poll.register(workload.child_handle, select.POLLIN)
            poll.poll(20)

    def _step(self, workload: Workload) -> None:
        """One look at everything that may want something now."""
        now = self.clock.now()
        self._hear(now)
        if self.folder.is_revoked():
            self._stop(workload, "stop", kill=True)
        elif self.desired.stop or self.told_to_end:
            self._stop(workload, "stop")
        elif self.term_at is not None:  # once begun, it is seen through
            self._stop(workload, self.state.stopped_by)
        elif self.state.ready_at is not None:
            self._announce(workload, now)
            if self.given is not None and now >= self.given.deadline:
                self._stop(workload, self.given.stopped_by)
        self._watch_memory(workload)
        self._leave(workload, now)
        if self.outputs is not None:
            self.outputs.tend(now)
        if now >= self.beat_at:
            self._beat(now)

    def _became_ready(self) -> None:
        now = self.clock.now()
        self._change(phase="running", ready_at=now, funded_until=funded_until(self.spec, self.desired, now))

    def _announce(self, workload: Workload, now: float) -> None:
        """Give the notice that is due, once; again only where it is brought forward."""
        assert self.state.ready_at is not None
        due = strengthen(self.given, due_notice(self.spec, self.desired, self.state.ready_at, now))
        if due is None or due == self.given:
            return
        self.given = due
        notices.write_notice(self.folder.run, due)
        deadline = notices.format_instant(due.deadline)
        self._say(f"notice: {due.reason}; TERM follows at {deadline}")
        targets = notices.signal_targets(self.spec, workload.script(), workload.processes_inside())
        processes.send(targets, notices.notice_signal(self.spec))
        if self.spec.template is not None:
            self.template_at = now
        self._change(
            phase="stopping",
            stopped_by=due.stopped_by,
            notice_reason=due.reason,
            notice_deadline=due.deadline,
        )

    def _stop(self, workload: Workload, stopped_by: str, *, kill: bool = False) -> None:
        """TERM for all processes once; KILL when ``kill`` or when they had their time."""
        now = self.clock.now()
        if self.term_at is None:
            self.term_at = now
            if not workload.ready:
                kill = True
            elif not kill:
                why = FUNDS_END if stopped_by == "unfunded" else stopped_by
                self._say(f"TERM ({why}); KILL follows in {self.spec.kill_after_seconds} s")
                workload.terminate()
            self._change(phase="stopping", stopped_by=stopped_by)
        if kill or now >= self.term_at + self.spec.kill_after_seconds:
            if not self.killed and not kill:
                self._say("KILL")
            self.killed = True
            workload.kill()

    def _leave(self, workload: Workload, now: float) -> None:
        """The script is over: what it left behind ends too, at once unless it was just told to end."""
        if workload.exit is None:
            return
        told = self.term_at is not None and now < self.term_at + self.spec.kill_after_seconds
        if not told or not workload.processes_inside():
            workload.release()

    def _watches_memory(self) -> bool:
        return self.cgroups is not None and not self.cgroups.has_memory_limit()

    def _watch_memory(self, workload: Workload) -> None:
        if not self._watches_memory() or self.killed:
            return
        used = processes.read_resident_bytes(workload.processes_inside())
        if used > self.spec.limits.memory_bytes:
            self._say(f"out of memory: {used} bytes resident, the limit is {self.spec.limits.memory_bytes}")
            self.memory_killed = self.killed = True
            workload.kill()

    # -- news

    def _hear(self, now: float) -> None:
        if self.channel.listen(now) and self.channel.heard is not None:
            self._want(self.channel.heard)

    def _read_desired(self) -> None:
        """The file says the same as the channel, and more when the channel was silent."""
        with contextlib.suppress(OSError, ValueError, TypeError):
            facts = (self.folder / "desired.json").stat()
            stamp = (facts.st_mtime_ns, facts.st_ino)
            if stamp != self.desired_stamp:
                self.desired_stamp = stamp
                self._want(self.folder.read_desired() or self.desired)

    def _want(self, desired: Desired) -> None:
        self.desired = desired
        if self.state.ready_at is not None:
            until = funded_until(self.spec, desired, self.state.ready_at)
            self.state = replace(self.state, funded_until=until)

    def _be_told_to_end(self, *_: object) -> None:
        """SIGTERM: this machine is going down."""
        self.told_to_end = True

    def _is_unwanted(self) -> bool:
        """Stopped or revoked before anything was started."""
        self._read_desired()
        if self.desired.stop or self.told_to_end or self.folder.is_revoked():
            self.state = replace(self.state, stopped_by="stop")
            return True
        return False

    def _change(self, **news: Any) -> None:
        self.state = replace(self.state, **news)
        self._beat(self.clock.now())

    def _beat(self, now: float) -> None:
        """Heartbeat: state into the folder and over the channel, then the small housekeeping."""
        self.beat_at = now + HEARTBEAT_SECONDS
        self._read_desired()
        self.state = replace(self.state, alive_at=now)
        with contextlib.suppress(OSError):  # a full disk stops no workload
            self.folder.write_state(self.state)
        self.channel.tell(self.state, now)
        self._tend_template(now)

    def _say(self, line: str) -> None:
        """A line of ours in the workload's log."""
        if self.outputs is not None:
            self.outputs.say(line)

    # -- checkpoint template

    def _tend_template(self, now: float) -> None:
        if self.spec.template is None or self.state.ready_at is None:
            return
        if self.template_act is not None:
            if self.template_act.poll() is None:
                return
            self._finish_template()
        if now >= self.template_at:
            from starverse.node.template_runner import start_act

            self.template_act = start_act(self.folder.path, "periodic")
            self.template_at = now + self.spec.template.interval_seconds

    def _perform_template(self, act: str) -> None:
        """An act that has to be over before what comes next; heartbeats go on meanwhile."""
        if self.spec.template is None:
            return
        from starverse.node.template_runner import start_act

        while self.template_act is not None and self.template_act.poll() is None:
            self._breathe()
        self._finish_template()
        self.template_act = start_act(self.folder.path, act)
        while self.template_act.poll() is None and not self.folder.is_revoked():
            self._breathe()
        self._finish_template()

    def _breathe(self) -> None:
        time.sleep(0.02)
        now = self.clock.now()
        self._hear(now)
        if now >= self.beat_at:
            self.beat_at = now + HEARTBEAT_SECONDS
            self.state = replace(self.state, alive_at=now)
            with contextlib.suppress(OSError):
                self.folder.write_state(self.state)
            self.channel.tell(self.state, now)

    def _finish_template(self) -> None:
        if self.template_act is None:
            return
        if self.template_act.poll() is None:
            self.template_act.kill()
        line = (self.template_act.communicate()[0] or "").strip()
        if line:
            self._say(line.splitlines()[-1])
        self.template_act = None

    # -- end

    def _fail(self, text: str) -> None:
        if self.workload is not None and self.workload.child:
            self.workload.kill()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.workload.child, 0)
        self.state = replace(self.state, failure=text or "the start failed")

    def _end(self) -> None:
        """Take stock, then report; the report comes last, so that whoever reads it finds all in place."""
        ended_at = self.clock.now()
        self.state = replace(self.state, **self._outcome(), ended_at=ended_at)
        if self.state.ready_at is not None:
            self._perform_template("final")
        if self.outputs is not None:
            self.outputs.finish(self._breathe)
        if self.cgroups is not None:
            remove_cgroups(self.cgroups.all_folders())
        if self.proxy is not None:
            self.proxy.close()
        with contextlib.suppress(FileNotFoundError):
            (self.folder.run / "token").unlink()
        self.state = replace(self.state, phase="ended", alive_at=self.clock.now())
        self._report()
        self.channel.finish(self.state, self.clock.now())

    def _report(self) -> None:
        """Until it is written, however long the disk stays full; not where the folder is no more."""
        while self.folder.path.is_dir():
            try:
                self.folder.write_report(self.state)
                return
            except OSError:
                time.sleep(HEARTBEAT_SECONDS)
                self.channel.tell(self.state, self.clock.now())

    def _outcome(self) -> dict[str, Any]:
        if self.workload is None:
            return {}
        if not self.workload.ready:
            if self.state.failure or self.state.stopped_by:
                return {}
            return {"failure": self.workload.read_refusal() or "the sandbox ended before the script started"}
        found = self.workload.exit
        code = None if found is None else found.code
        number = signal.SIGKILL.value if found is None else found.signal
        kernel = self.cgroups is not None and self.cgroups.was_out_of_memory()
        return {
            "failure": self.state.failure or self.workload.broken,
            "exit_code": code,
            "exit_signal": number,
            "out_of_memory": self.memory_killed or (kernel and code != 0),
        }


def make_api_proxy(spec: LaunchSpec, run: Path, addresses: str) -> ApiProxy:
    """The socket inside through which shims reach the platform, wherever it is."""
    hello = hello_line(spec, "api")
    return ApiProxy(run / "api.sock", lambda: dial(addresses, spec.channel_ca, hello), spec.unix_uid)


def main(path: str) -> int:
    """Launch the allocation of the folder; 0 also where another launcher has it."""
    folder = AllocationFolder(Path(path))
    claim = folder.claim()
    if claim is None:
        return 0
    try:
        return Launcher(folder, folder.read_spec()).run()
    finally:
        os.close(claim)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
