"""One process that stands in for the launchers of many allocations: ``stand_in_launchers DATA COUNT HEARD``.

For each allocation that appears in DATA it does what a launcher does towards the platform, with the product's
own parts: claims the folder, writes its state each second, dials the channel, tells and hears. It runs no
script and makes no sandbox: a thousand Python processes would measure the memory of this machine. Each thing
it is told is a line in HEARD, allocation and time. It ends with its standard input.
"""

from __future__ import annotations

import contextlib
import os
import resource
import select
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from starverse.domain.workloads.launch import Desired, LauncherState
from starverse.node.channel import ChannelClient
from starverse.node.deadlines import funded_until
from starverse.node.folder import AllocationFolder
from starverse.node.launcher import HEARTBEAT_SECONDS
from starverse.node.steady_clock import SteadyClock, read_boot_id

TICK_MS = 50
LOOK_SECONDS = 0.5
"""How often folders of new allocations are looked for, until there are as many as there have to be."""


class StandIn:
    """One allocation's launcher, as far as the platform can tell."""

    def __init__(self, folder: AllocationFolder, claim: int, clock: SteadyClock, heard: TextIO) -> None:
        self.folder, self.claim, self.clock, self.heard = folder, claim, clock, heard
        self.spec = spec = folder.read_spec()
        self.channel = ChannelClient(spec)
        self.desired_stamp: tuple[int, int] | None = None
        now = clock.now()
        self.state = LauncherState(
            spec.allocation_id,
            spec.attempt,
            "running",
            read_boot_id(),
            now,
            ready_at=now,
            funded_until=now + spec.funded_seconds,
        )
        self.ended = False
        self.beat()

    def listen(self) -> None:
        """Take what has come over the channel."""
        if self.channel.listen(self.clock.now()) and self.channel.heard is not None:
            self._want(self.channel.heard)

    def beat(self) -> None:
        """A heartbeat: what is wanted by the file, the state into the folder and over the channel."""
        now = self.clock.now()
        self.beat_at = now + HEARTBEAT_SECONDS
        self.listen()
        self._read_desired()
        if self.ended:
            return
        if self.folder.is_revoked():
            self._end("stop")
            return
        self.state = replace(self.state, alive_at=now)
        self.folder.write_state(self.state)
        self.channel.tell(self.state, now)

    def _read_desired(self) -> None:
        with contextlib.suppress(OSError, ValueError, TypeError):
            facts = (self.folder / "desired.json").stat()
            stamp = (facts.st_mtime_ns, facts.st_ino)
            if stamp != self.desired_stamp:
                self.desired_stamp = stamp
                desired = self.folder.read_desired()
                if desired is not None:
                    self._want(desired)

    def _want(self, desired: Desired) -> None:
        self.heard.write(f"{self.spec.allocation_id} {time.time():.6f}\n")
        if desired.stop:
            self._end("stop")
            return
        assert self.state.ready_at is not None
        self.state = replace(self.state, funded_until=funded_until(self.spec, desired, self.state.ready_at))

    def _end(self, stopped_by: str) -> None:
        """As a launcher whose script ended at TERM: whoever ends one of them finds that it ended."""
        if self.ended:
            return
        self.ended = True
        now = self.clock.now()
        self.state = replace(
            self.state, phase="ended", alive_at=now, ended_at=now, exit_code=0, stopped_by=stopped_by
        )
        self.folder.write_report(self.state)
        self.channel.finish(self.state, now)
        os.close(self.claim)


class StandIns:
    """All of them, kept by one thread."""

    def __init__(self, data: Path, count: int, heard: TextIO) -> None:
        self.allocations = data / "allocations"
        self.count, self.heard = count, heard
        self.clock = SteadyClock()
        self.kept: dict[str, StandIn] = {}
        self.look_at = 0.0

    def run(self) -> None:
        """Until standard input ends."""
        while True:
            if len(self.kept) < self.count and self.clock.now() >= self.look_at:
                self._look()
                self.look_at = self.clock.now() + LOOK_SECONDS
            if not self._turn():
                return

    def _look(self) -> None:
        """Claim what was launched since."""
        with os.scandir(self.allocations) as entries:
            new = [entry.name for entry in entries if entry.name not in self.kept]
        for name in new:
            folder = AllocationFolder(self.allocations / name)
            if folder.has("spec.json") and (claim := folder.claim()) is not None:
                self.kept[name] = StandIn(folder, claim, self.clock, self.heard)

    def _turn(self) -> bool:
        """One wait, and what is due after it; false once standard input has ended."""
        poll, owners = select.poll(), {}
        poll.register(0, select.POLLIN)
        for stand_in in self.kept.values():
            channel = None if stand_in.ended else stand_in.channel.wait_on()
            if channel is not None:
                poll.register(*channel)
                owners[channel[0]] = stand_in
        for number, _ in poll.poll(TICK_MS):
            if number == 0:
                return False
            owners[number].listen()
        now = self.clock.now()
        for stand_in in self.kept.values():
            if not stand_in.ended and now >= stand_in.beat_at:
                stand_in.beat()
        self.heard.flush()
        return True


def main(data: str, count: str, heard: str) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    with Path(heard).open("a") as file:
        StandIns(Path(data), int(count), file).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
