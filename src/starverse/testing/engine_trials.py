"""The engines of the one contract suite, each behind the same handle, and how their news is waited for."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from starverse.domain.workloads.launch import LauncherState, LaunchSpec
from starverse.engines.base import (
    CardReport,
    Engine,
    NodeReport,
    Observation,
    Presence,
)
from starverse.engines.fake import FakeEngine, FakeRun
from starverse.engines.local import LocalEngine
from starverse.engines.slurm import SlurmEngine
from starverse.node import processes
from starverse.node.cards.declared import DeclaredCards
from starverse.node.folder import AllocationFolder
from starverse.node.limits import Cgroups, find_cgroups
from starverse.testing.launches import build_launch
from starverse.testing.slurm_lab import SlurmLab
from starverse.testing.slurm_sites import lab_settings

TEAM_UID = 200_001
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Behaviour:
    """The same workload twice: as a bash script and as told to the fake."""

    script: str
    run: FakeRun


SHORT = Behaviour("echo started >> starts; sleep 0.3", FakeRun(start_seconds=0.1, run_seconds=0.3))
LONG = Behaviour("sleep 300", FakeRun(start_seconds=0.1, run_seconds=300, obeys_notice=False))
OBEDIENT = Behaviour(
    'trap "exit 99" USR1; while true; do sleep 0.05; done',
    FakeRun(start_seconds=0.1, run_seconds=300, notice_exit_seconds=0.05),
)
STUBBORN = Behaviour(
    'trap "" TERM; while true; do sleep 0.05; done',
    FakeRun(start_seconds=0.1, run_seconds=300, obeys_notice=False, ignores_term=True),
)


class Trial(Protocol):
    """One engine under test, and the world around it."""

    engine: Engine
    many: int
    """How many one after another show that nothing piles up."""

    def build(self, name: str, behaviour: Behaviour, **changes: Any) -> LaunchSpec: ...
    def now(self) -> float: ...
    def pass_time(self) -> None: ...
    def count_starts(self, spec: LaunchSpec) -> int: ...
    def kill_launcher(self, name: str) -> None: ...
    def server_goes(self) -> None: ...
    def server_comes(self) -> None: ...
    def left_of(self, name: str) -> list[str]: ...


class FakeTrial:
    many = 50

    def __init__(self) -> None:
        self._now = 1_000_000.0
        self._runs: dict[str, FakeRun] = {}
        self._fake = FakeEngine(
            (NODE,),
            self.now,
            plan=lambda launch: self._runs.get(launch.allocation_id, FakeRun()),
            open_stream=lambda _launch, _kind: self._connect(),
        )
        self.engine: Engine = self._fake

    def build(self, name: str, behaviour: Behaviour, **changes: Any) -> LaunchSpec:
        self._runs[name] = behaviour.run
        if "driver" in changes:
            self._runs[name] = FakeRun(failure="there is no such driver")
        return build_launch(Path("/nowhere"), name, **changes)

    def now(self) -> float:
        return self._now

    def _connect(self) -> socket.socket:
        here, there = socket.socketpair()
        with there:
            there.sendall(b"SSH-2.0-fake\r\n")
        return here

    def pass_time(self) -> None:
        self._now += 0.02

    def count_starts(self, spec: LaunchSpec) -> int:
        return self._fake.starts[spec.allocation_id]

    def kill_launcher(self, name: str) -> None:
        self._fake.kill_launcher(name)

    def server_goes(self) -> None:
        return

    def server_comes(self) -> None:
        return

    def left_of(self, name: str) -> list[str]:
        return [name] if name in self._fake.running() else []


class LocalTrial:
    many = 50

    def __init__(self, data: Path, driver: str) -> None:
        self._data = data
        self.driver = driver
        self.server_comes()

    def build(self, name: str, behaviour: Behaviour, **changes: Any) -> LaunchSpec:
        uid = TEAM_UID if os.geteuid() == 0 else None
        changes = {"script": behaviour.script + "\n", "driver": self.driver, "unix_uid": uid, **changes}
        return build_launch(self._data, name, **changes)

    def now(self) -> float:
        return time.time()

    def pass_time(self) -> None:
        time.sleep(0.01)  # real processes run meanwhile

    def count_starts(self, spec: LaunchSpec) -> int:
        return len(Path(spec.workspace, "starts").read_text().splitlines())

    def kill_launcher(self, name: str) -> None:
        facts = (self._data / "allocations" / name / "claim.lock").stat()
        holder = processes.find_lock_holder(facts.st_dev, facts.st_ino)
        assert holder is not None
        os.kill(holder, signal.SIGKILL)

    def server_goes(self) -> None:
        self._local.close()

    def server_comes(self) -> None:
        self._local = self.make_engine(self._data)
        self.engine: Engine = self._local
        self._local.start()

    def make_engine(self, data: Path) -> LocalEngine | SlurmEngine:
        return LocalEngine(data, DeclaredCards("rtx4090:8"))

    def left_of(self, name: str) -> list[str]:
        folder = AllocationFolder(self._data / "allocations" / name)
        left = [f"process {pid}" for pid in processes.find_tagged(name)]
        cgroups = Cgroups(find_cgroups(), f"starverse-{name}")
        left += [path for path in cgroups.all_folders() if Path(path).exists()]
        left += [str(path) for path in folder.path.rglob("*") if path.is_socket()]
        left += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if name in line]
        return left

    def close(self) -> None:
        for folder in (self._data / "allocations").iterdir():
            self._local.clean(folder.name)
        self._local.close()


class SlurmTrial(LocalTrial):
    """The lab's node is this machine, so that what is left of an allocation is seen here."""

    many = 20  # what launchers leave is the same as without Slurm; here its queue counts

    def __init__(self, data: Path, driver: str, lab: SlurmLab, transport: str) -> None:
        self._lab, self._transport = lab, transport
        super().__init__(data, driver)

    def make_engine(self, data: Path) -> LocalEngine | SlurmEngine:
        return SlurmEngine(data, lab_settings(self._lab, transport=self._transport))


NODE = NodeReport(
    "declared-1",
    "local",
    "eth",
    8,
    64 * 1024**3,
    (CardReport("card-0", 0, "GPU-0", "rtx4090", 24 * 1024**3, declared=True),),
)


def see(trial: Trial, name: str) -> Observation:
    return trial.engine.observe([name])[name]


def until(trial: Trial, name: str, condition: Callable[[Observation], bool]) -> Observation:
    """Let time pass until the observation is as wanted."""
    give_up = trial.now() + PATIENCE_SECONDS
    while True:
        seen = see(trial, name)
        if condition(seen):
            return seen
        assert trial.now() < give_up, f"{name} stayed {seen}"
        trial.pass_time()


def until_running(trial: Trial, name: str) -> LauncherState:
    seen = until(trial, name, lambda o: o.state is not None and o.state.ready_at is not None)
    assert seen.state is not None
    return seen.state


def until_ended(trial: Trial, name: str) -> LauncherState:
    seen = until(trial, name, lambda o: o.presence is Presence.ENDED)
    assert seen.state is not None
    return seen.state
