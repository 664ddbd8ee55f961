"""The launcher: starts one allocation, keeps it, reports on it, ends it. ``python -m ... FOLDER``.

Its first act is to claim its allocation id; a second launcher exits unused. It then needs nobody: it
reports into its folder and, while the platform answers, over its channel; it stops the workload when the
money held for it runs out, at the time limit, or when told. ``kill -9`` of the launcher kills the
workload. Everything it is told is whole and level-triggered, by channel or by ``desired.json``.

::

    claimed -> running -> stopping -> ended        (ended from any; without ready_at: the start failed)
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from starverse.domain.workloads.launch import NODE_DOWN, Desired, LauncherState, LaunchSpec
from starverse.node.api_proxy import ApiProxy
from starverse.node.binding import bind_cards
from starverse.node.cards.hygiene import GrantedCards, granted_cards
from starverse.node.channel import ChannelClient
from starverse.node.custody import Custody
from starverse.node.deadlines import due_notice, funded_until, strengthen
from starverse.node.dialing import make_api_proxy
from starverse.node.environment import NodePlace, job_environment
from starverse.node.folder import AllocationFolder
from starverse.node.gang import part_of, write_hosts
from starverse.node.gang_head import GangHead, Trouble
from starverse.node.host_setup import read_host_setup
from starverse.node.interactive import READY_SECONDS_MAX, Interactive
from starverse.node.log_keeping import LogKeeper, open_logs
from starverse.node.preparation import make_folders
from starverse.node.sandbox import syscalls
from starverse.node.sandbox.driver import StartRefused
from starverse.node.sandbox.drivers import find_driver
from starverse.node.steady_clock import SteadyClock, read_boot_id
from starverse.node.surroundings import Surroundings, missing_network
from starverse.node.template_keeping import TemplateKeeper

HEARTBEAT_SECONDS = 1.0
PAUSE_SECONDS = 0.02


class Launcher:
    """One allocation from its claim to its report. Every step is short; :meth:`run` waits between them."""

    def __init__(self, folder: AllocationFolder, spec: LaunchSpec) -> None:
        self.folder = folder
        self.spec = spec = part_of(spec, 0)
        self.clock = SteadyClock()
        self.desired = folder.read_desired() or Desired()
        self.channel = ChannelClient(spec)
        self.state = LauncherState(
            spec.allocation_id, spec.attempt, "claimed", read_boot_id(), self.clock.now()
        )
        self.custody = Custody(spec, folder, self.clock, self._say)
        self.gang: GangHead | None = None
        self.proxy: ApiProxy | None = None
        self.interactive: Interactive | None = None
        self.outputs: LogKeeper | None = None
        self.cards: GrantedCards | None = None
        self.clean_seconds_max = 0.0
        self.surroundings = Surroundings(spec, folder.path, self._say)
        self.template = TemplateKeeper(spec, folder, self.clock, self._say, self._breathe)
        self.begun_at = self.clock.now()
        self.told_to_end = False
        self.signals_sent = 0
        self.beat_at = 0.0
        self.desired_stamp: tuple[int, int] | None = None

    def run(self) -> int:
        """The allocation's whole life; answers the launcher's exit code."""
        signal.signal(signal.SIGTERM, self._be_told_to_end)
        try:
            self._bind_cards()
            self._change(phase="claimed")
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

    def _bind_cards(self) -> None:
        self.spec, self.state = bind_cards(self.spec, self.state, os.environ, first_node=True)
        self.custody = Custody(self.spec, self.folder, self.clock, self._say)

    def _start(self) -> None:
        spec = self.spec
        host = read_host_setup(self.folder.path, self.folder.path, spec.node_names)
        no_network = missing_network(spec, host.pasta)
        if no_network:
            self.spec = spec = replace(spec, network="none")
            self.custody = Custody(spec, self.folder, self.clock, self._say)
            self.surroundings = Surroundings(spec, self.folder.path, self._say)
            self.surroundings.want(self.desired.plugs)
        driver = find_driver(spec.driver)
        driver.check(spec, host)
        if driver.name == "process":
            syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
        self.cards, self.clean_seconds_max = granted_cards(spec, host.card_file), host.clean_seconds_max
        self._require_clean_cards()
        make_folders(spec, self.folder)
        if spec.interactive and len(spec.node_names) > 1:
            raise StartRefused("an instance has one node")
        if spec.interactive:
            self.interactive = Interactive(spec, self.folder, self._say, self.clock.now, host.look_seconds)
            self.interactive.begin_keys()
        outputs = self.outputs = open_logs(spec, self.folder)
        if no_network:
            self._say(f"no network: {no_network}")
        if not_restored := self.template.perform("restore"):  # starting anew would lose the work
            raise StartRefused(not_restored)
        place = NodePlace() if len(spec.node_names) == 1 else self._gather()
        if place is None or self._is_unwanted():
            return
        self.custody.limit(host, f"starverse-{spec.allocation_id}")
        if spec.api_socket is not None:
            self.proxy = make_api_proxy(spec, self.folder.run, spec.api_socket)
            self.proxy.bind()
        environment = job_environment(spec, driver.places(spec, self.folder), host.python, place)
        if self.interactive is not None:
            self.interactive.prepare(host.sshd, environment)
        workload = self.custody.start(driver, host, environment, (outputs.logs[0], outputs.logs[-1]))
        self.surroundings.begin(workload, host.pasta)
        if self.interactive is not None:
            self.interactive.finish_keys()
        if self.proxy is not None:
            self.proxy.serve()
        if self.gang is not None:
            self.gang.serve()
        self.template.begin()

    def _require_clean_cards(self) -> None:
        """Before anything of this allocation uses them; raises :class:`StartRefused`."""
        self._look_at_cards()
        if self.state.unclean:
            raise StartRefused("; ".join(f"card {card.index}: {card.why}" for card in self.state.unclean))

    def _look_at_cards(self) -> None:
        """Wait until nobody is on them; those that do not come free are told with the end."""
        if self.cards is not None:
            unclean = self.cards.settle(self.clean_seconds_max, self._breathe)
            self.state = replace(self.state, unclean=unclean)

    def _gather(self) -> NodePlace | None:
        """Have the companions there; ``None``: the allocation is not wanted any more."""
        self._say(f"{len(self.spec.node_names)} nodes: ranks use the network of their hosts")
        self.gang = GangHead(self.spec, self.folder)

        def goes_on() -> bool:
            self._breathe()
            return not self._is_unwanted()

        hosts = self.gang.gather(goes_on)
        if not hosts:
            return None
        self._change(bound=self.gang.bound(self.state.bound))
        write_hosts(self.folder, hosts)
        return NodePlace(0, hosts)

    # -- keep

    def _keep(self) -> None:
        """Until the sandbox is gone."""
        workload = self.custody.workload
        while workload is not None:
            channel = self.channel.wait_on()
            others = [*([] if channel is None else [channel]), *self.surroundings.wait_on()]
            if self.interactive is not None:
                others += self.interactive.wait_on()
            self.custody.wait([self.beat_at, self._tend_outputs(), self.surroundings.wake_at()], others)
            workload.listen()
            self._tend_surroundings()
            if workload.ready and self._is_usable() and self.state.ready_at is None:
                self._became_ready()
            if self.custody.has_ended():
                return
            self._step()

    def _tend_surroundings(self) -> None:
        """Disks and network; raises :class:`StartRefused` where what the start needs cannot be had."""
        if refusal := self.surroundings.tend(self.clock.now()):
            raise StartRefused(refusal)
        if not self.surroundings.are_there:
            self.begun_at = self.clock.now()
        if (plugged := self.surroundings.plugged()) != self.state.plugged:
            self._change(plugged=plugged)

    def _is_usable(self) -> bool:
        """Whether all is there, and people can reach it, where they are to; raises :class:`StartRefused`
        where they never will."""
        if not self.surroundings.are_there:
            return False
        agent = self.interactive
        if agent is None:
            return True
        agent.listen(self.clock.now())
        if self.state.ready_at is None:
            if agent.failure:
                raise StartRefused(agent.failure)
            if self.clock.now() - self.begun_at > READY_SECONDS_MAX:
                raise StartRefused(f"the instance took no connection within {READY_SECONDS_MAX:g} s")
        return agent.ready

    def _tend_outputs(self) -> float:
        """What is due for the logs; answers when they are to be looked at next."""
        if self.outputs is None:
            return self.beat_at
        self.outputs.tend(self.clock.now())
        return self.outputs.wake_at

    def _step(self) -> None:
        """One look at everything that may want something now."""
        now = self.clock.now()
        self._hear(now)
        custody = self.custody
        if self.folder.is_revoked():
            self._stop("stop", kill=True)
        elif self.desired.stop:
            self._stop("stop")
        elif self.told_to_end:
            self._stop(NODE_DOWN if custody.given is None else "stop")  # what was announced stays the reason
        elif custody.term_at is not None:  # once begun, it is seen through
            self._stop(self.state.stopped_by)
        elif self.gang is not None and (trouble := self.gang.trouble()) is not None:
            self._end_gang(trouble)
        elif self.state.ready_at is not None:
            self._announce(self.state.ready_at, now)
            self._signal()
            if custody.given is not None and now >= custody.given.deadline:
                self._stop(custody.given.stopped_by)
        custody.watch_memory()
        custody.leave()
        if now >= self.beat_at:
            self._beat(now)

    def _signal(self) -> None:
        """Send the newest signal that was asked for, once."""
        wanted = self.desired
        if wanted.signal_count <= self.signals_sent:
            return
        self.signals_sent = wanted.signal_count
        self.custody.signal(wanted.signal_name, wanted.signal_to)
        if self.gang is not None and wanted.signal_to != "batch":
            self.gang.signal(wanted.signal_count, wanted.signal_name)

    def _became_ready(self) -> None:
        now = self.clock.now()
        if self.interactive is not None and self.cards is not None:
            self.interactive.watch_cards(self.cards)
        if self.spec.secrets and len(self.spec.node_names) == 1:  # nobody reads them there again
            self.folder.write_spec(replace(self.folder.read_spec(), secrets=()))
        self._change(phase="running", ready_at=now, funded_until=funded_until(self.spec, self.desired, now))

    def _announce(self, ready_at: float, now: float) -> None:
        """Give the notice that is due, once; again only where it is brought forward."""
        given = self.custody.given
        due = strengthen(given, due_notice(self.spec, self.desired, ready_at, now))
        if due is None or due == given:
            return
        self.custody.announce(due)
        if self.gang is not None:
            self.gang.announce(due)
        self.template.save_soon()
        self._change(
            phase="stopping",
            stopped_by=due.stopped_by,
            notice_reason=due.reason,
            notice_deadline=due.deadline,
        )

    def _stop(self, stopped_by: str, *, kill: bool = False) -> None:
        """TERM once for all processes of all nodes, KILL when ``kill`` or when they had their time."""
        begins = self.custody.stop(stopped_by, kill=kill)
        if self.gang is not None:
            self.gang.stop(kill=self.custody.killed)
        if begins:
            self._change(phase="stopping", stopped_by=stopped_by)

    def _end_gang(self, trouble: Trouble) -> None:
        self._say(trouble.text)
        self.state = replace(self.state, failure=trouble.text, out_of_memory=trouble.out_of_memory)
        self._stop(trouble.stopped_by)

    # -- news

    def _hear(self, now: float) -> None:
        if self.channel.listen(now) and self.channel.heard is not None:
            self._want(self.channel.heard)
        if self.channel.wishes and self.interactive is not None:
            self.interactive.open_streams(self.channel.wishes)

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
        self.surroundings.want(desired.plugs)
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
        if self.interactive is not None:
            self.state = replace(self.state, activity=self.interactive.activity)
        with contextlib.suppress(OSError):  # a full disk stops no workload
            self.folder.write_state(self.state)
        self.channel.tell(self.state, now)
        if self.state.ready_at is not None:
            self.template.tend(now)

    def _say(self, line: str) -> None:
        """A line of ours in the workload's log, and in the terminals of an instance."""
        if self.outputs is not None:
            self.outputs.say(line)
        if self.interactive is not None:
            self.interactive.tell_people(line)

    def _breathe(self) -> None:
        """Pass a moment in which nothing but the heart beats."""
        if self.gang is None:
            time.sleep(PAUSE_SECONDS)
        else:
            self.gang.turn(PAUSE_SECONDS)
        now = self.clock.now()
        self._hear(now)
        if now >= self.beat_at:
            self.beat_at = now + HEARTBEAT_SECONDS
            self.state = replace(self.state, alive_at=now)
            with contextlib.suppress(OSError):
                self.folder.write_state(self.state)
            self.channel.tell(self.state, now)

    # -- end

    def _fail(self, text: str) -> None:
        self.custody.give_up()
        self.state = replace(self.state, failure=text or "the start failed")

    def _end(self) -> None:
        """Take stock, then report; the report comes last, so that whoever reads it finds all in place."""
        if self.interactive is not None and self.state.ready_at is None and self.state.stopped_by == "":
            self.interactive.listen(self.clock.now())
            why = self.interactive.failure or self._why_it_ended()
            self.state = replace(self.state, failure=self.state.failure or why)
        outcome = self.custody.outcome(self.state.failure, self.state.stopped_by)
        outcome["out_of_memory"] = self.state.out_of_memory or outcome.get("out_of_memory", False)
        self.state = replace(self.state, **outcome)
        self.surroundings.end(self._breathe, self.clock.now)
        self.state = replace(self.state, plugged=self.surroundings.plugged())
        self._finish_gang()
        self._blame_the_machine()
        self.state = replace(self.state, ended_at=self.clock.now())
        if self.custody.workload is not None:
            self._look_at_cards()
            if self.gang is not None:
                self.state = replace(self.state, unclean=self.state.unclean + self.gang.unclean())
        if self.state.ready_at is not None:
            self.template.perform("final")
        if self.outputs is not None:
            self.outputs.finish(self._breathe)
        self.custody.remove_limits()
        if self.interactive is not None:
            self.interactive.close()
        if self.proxy is not None:
            self.proxy.close()
        with contextlib.suppress(FileNotFoundError):
            (self.folder.run / "token").unlink()
        self.state = replace(self.state, phase="ended", alive_at=self.clock.now())
        self._report()
        self.channel.finish(self.state, self.clock.now())

    def _blame_the_machine(self) -> None:
        """A machine that goes down tells all processes at once: the workload may have ended of it first."""
        alone = not self.state.stopped_by and not self.state.failure and self.custody.given is None
        if self.told_to_end and alone and self.state.exit_code != 0:
            self.state = replace(self.state, stopped_by=NODE_DOWN)

    def _why_it_ended(self) -> str:
        """Of an instance that took no connection yet."""
        refusal = "" if self.custody.workload is None else self.custody.workload.read_refusal()
        return refusal or "the instance ended before it took connections"

    def _finish_gang(self) -> None:
        """End the ranks of all nodes; a script that ended may have done so since one of them was lost."""
        if self.gang is None:
            return
        if not self.state.stopped_by and not self.state.failure:
            trouble = self.gang.trouble_at_end(self._breathe)
            if trouble is not None and (trouble.stopped_by or self.state.exit_code != 0):
                self._say(trouble.text)
                self.state = replace(
                    self.state,
                    failure=trouble.text,
                    stopped_by=trouble.stopped_by,
                    out_of_memory=self.state.out_of_memory or trouble.out_of_memory,
                )
        told = self.custody.term_at is not None and not self.custody.killed
        self.gang.finish(self._breathe, lambda: told and not self.custody.had_its_time())
        if self.state.exit_code != 0 and self.gang.was_out_of_memory():
            self.state = replace(self.state, out_of_memory=True)

    def _report(self) -> None:
        """Until it is written, however long the disk stays full; not where the folder is no more."""
        while self.folder.path.is_dir():
            try:
                self.folder.write_report(self.state)
                return
            except OSError:
                time.sleep(HEARTBEAT_SECONDS)
                self.channel.tell(self.state, self.clock.now())


def main(path: str, node_index: int = 0) -> int:
    """Launch the allocation of the folder; 0 also where another launcher has it.

    ``node_index`` above 0: keep that node's part of it, for the launcher on its first node.
    """
    if node_index:
        from starverse.node.companion import main as accompany

        return accompany(path, node_index)
    folder = AllocationFolder(Path(path))
    claim = folder.claim()
    if claim is None:
        return 0
    try:
        return Launcher(folder, folder.read_spec()).run()
    finally:
        os.close(claim)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="starverse.node.launcher")
    parser.add_argument("folder")
    parser.add_argument("--node-index", type=int, default=0, help="which of the allocation's nodes this is")
    given = parser.parse_args()
    sys.exit(main(given.folder, given.node_index))
