"""The one suite that every engine passes: the fake on its virtual clock, the local with real processes, and
that of a cluster on a real Slurm, by its commands and by slurmrestd."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from starverse.domain.workloads.launch import Desired, LauncherState, LaunchSpec, Plug
from starverse.engines.base import (
    CardReport,
    Engine,
    EngineUnavailable,
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
PATIENCE_SECONDS = 30.0


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

    def build(self, name: str, behaviour: Behaviour, **changes: Any) -> LaunchSpec: ...
    def now(self) -> float: ...
    def pass_time(self) -> None: ...
    def count_starts(self, spec: LaunchSpec) -> int: ...
    def kill_launcher(self, name: str) -> None: ...
    def server_goes(self) -> None: ...
    def server_comes(self) -> None: ...
    def left_of(self, name: str) -> list[str]: ...


class FakeTrial:
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


@pytest.fixture(scope="module")
def lab() -> Iterator[SlurmLab]:
    """A real Slurm of one node, named as the node of the other engines is."""
    if why := SlurmLab.missing():
        pytest.skip(why)
    with SlurmLab(names=("declared-1",)) as lab:
        yield lab


@pytest.fixture(params=["fake", "local-bwrap", "local-process", "slurm-commands", "slurm-rest"])
def trial(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trial]:
    if request.param == "fake":
        yield FakeTrial()
        return
    where, _, how = request.param.partition("-")
    driver = "bwrap" if where == "slurm" else how
    if driver == "bwrap" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    if where == "slurm":
        local: LocalTrial = SlurmTrial(tmp_path, driver, request.getfixturevalue("lab"), how)
    else:
        local = LocalTrial(tmp_path, driver)
    try:
        yield local
    finally:
        local.close()


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


def test_nodes_are_reported_with_their_cards(trial: Trial) -> None:
    nodes = trial.engine.nodes()
    assert [node.node_id for node in nodes] == ["declared-1"]
    assert all(card.declared and card.model == "rtx4090" for card in nodes[0].cards)


def test_what_was_never_submitted_is_unknown(trial: Trial) -> None:
    assert see(trial, "never") == Observation(Presence.UNKNOWN)
    assert trial.engine.running() == ()


def test_submitted_twice_runs_once(trial: Trial) -> None:
    spec = trial.build("twice", SHORT)
    trial.engine.submit(spec)
    trial.engine.submit(spec)
    until_running(trial, "twice")
    trial.engine.submit(spec)
    until_ended(trial, "twice")
    trial.engine.submit(spec)
    assert see(trial, "twice").presence is Presence.ENDED
    assert trial.count_starts(spec) == 1


def test_times_are_those_of_the_script(trial: Trial) -> None:
    before = trial.now()
    trial.engine.submit(trial.build("times", SHORT))
    state = until_ended(trial, "times")
    assert state.ready_at is not None
    assert state.ended_at is not None
    assert before - 0.1 <= state.ready_at
    assert 0.29 <= state.ended_at - state.ready_at < 10
    assert state.ended_at <= state.alive_at <= trial.now() + 0.1
    assert (state.phase, state.stopped_by, state.failure) == ("ended", "", "")


@pytest.mark.parametrize(
    ("script", "code", "number"),
    [
        ("exit 0", 0, None),
        ("exit 3", 3, None),
        ("exit 137", 137, None),
        ("kill -KILL $$", None, 9),
        ("kill -TERM $$", None, 15),
        ("kill -SEGV $$", None, 11),
    ],
    ids=["success", "code 3", "code 137 is a code", "killed", "terminated", "crashed"],
)
def test_exit_code_and_signal_are_told_apart(
    trial: Trial, script: str, code: int | None, number: int | None
) -> None:
    run = FakeRun(start_seconds=0.1, run_seconds=0.1, exit_code=code or 0, exit_signal=number)
    trial.engine.submit(trial.build("exits", Behaviour(script, run)))
    state = until_ended(trial, "exits")
    assert (state.exit_code, state.exit_signal) == (code, number)


def test_a_start_that_fails_says_why_and_was_never_ready(trial: Trial) -> None:
    trial.engine.submit(trial.build("fails", SHORT, driver="no such"))
    state = until_ended(trial, "fails")
    assert state.ready_at is None
    assert "no such" in state.failure.lower()


def test_a_notice_is_obeyed_with_exit_99(trial: Trial) -> None:
    trial.engine.submit(trial.build("noticed", OBEDIENT, grace_seconds=20))
    until_running(trial, "noticed")
    deadline = trial.now() + 20
    trial.engine.steer("noticed", Desired(notice_reason="reclaim", notice_deadline=deadline))
    state = until_ended(trial, "noticed")
    assert (state.exit_code, state.stopped_by, state.notice_reason) == (99, "notice", "reclaim")
    assert state.notice_deadline == pytest.approx(deadline)
    assert state.ended_at is not None
    assert state.ended_at < deadline


def test_a_notice_not_obeyed_ends_with_term_at_its_deadline(trial: Trial) -> None:
    trial.engine.submit(trial.build("deaf", LONG))
    until_running(trial, "deaf")
    deadline = trial.now() + 0.5
    trial.engine.steer("deaf", Desired(notice_reason="reclaim", notice_deadline=deadline))
    stopping = until(trial, "deaf", lambda o: o.state is not None and o.state.phase == "stopping")
    assert stopping.presence is Presence.ALIVE
    state = until_ended(trial, "deaf")
    assert (state.exit_code, state.exit_signal, state.stopped_by) == (None, 15, "notice")
    assert state.ended_at is not None
    assert state.ended_at >= deadline


def test_what_ignores_term_is_killed(trial: Trial) -> None:
    trial.engine.submit(trial.build("stubborn", STUBBORN, kill_after_seconds=1))
    ready = until_running(trial, "stubborn").ready_at
    asked = trial.now()
    trial.engine.steer("stubborn", Desired(stop=True))
    state = until_ended(trial, "stubborn")
    assert (state.exit_code, state.exit_signal, state.stopped_by) == (None, 9, "stop")
    assert ready is not None
    assert state.ended_at is not None
    assert state.ended_at >= asked + 0.9


def test_stop_ends_at_once(trial: Trial) -> None:
    trial.engine.submit(trial.build("stopped", LONG))
    until_running(trial, "stopped")
    trial.engine.steer("stopped", Desired(stop=True))
    state = until_ended(trial, "stopped")
    assert (state.exit_signal, state.stopped_by) == (15, "stop")


def test_without_money_it_stops_by_itself_while_the_server_is_away(trial: Trial) -> None:
    trial.engine.submit(trial.build("unfunded", LONG, funded_seconds=2, grace_seconds=1))
    ready = until_running(trial, "unfunded").ready_at
    assert ready is not None
    trial.server_goes()
    while trial.now() < ready + 2.5:
        trial.pass_time()
    trial.server_comes()
    state = until_ended(trial, "unfunded")
    assert (state.stopped_by, state.notice_reason, state.exit_signal) == ("unfunded", "funds", 15)
    assert state.ended_at is not None
    assert ready + 2 <= state.ended_at < ready + 8


def test_an_extension_keeps_it_running(trial: Trial) -> None:
    trial.engine.submit(trial.build("extended", LONG, funded_seconds=2, grace_seconds=1))
    ready = until_running(trial, "extended").ready_at
    assert ready is not None
    trial.engine.steer("extended", Desired(funded_until=ready + 3600))
    until(trial, "extended", lambda o: o.state is not None and o.state.funded_until == ready + 3600)
    while trial.now() < ready + 2.5:
        trial.pass_time()
    seen = see(trial, "extended")
    assert seen.presence is Presence.ALIVE
    assert seen.state is not None
    assert seen.state.phase == "running"


def test_the_time_limit_announces_itself_and_ends_it(trial: Trial) -> None:
    trial.engine.submit(trial.build("limited", LONG, time_limit_seconds=2, grace_seconds=1))
    state = until_ended(trial, "limited")
    assert (state.stopped_by, state.notice_reason, state.exit_signal) == ("time_limit", "time_limit", 15)
    assert state.ready_at is not None
    assert state.ended_at is not None
    assert state.ended_at - state.ready_at >= 2


def test_kill_9_of_the_launcher_is_seen_and_kills_the_workload(trial: Trial) -> None:
    trial.engine.submit(trial.build("orphan", LONG))
    until_running(trial, "orphan")
    trial.kill_launcher("orphan")
    seen = until(trial, "orphan", lambda o: o.presence is Presence.GONE)
    assert seen.state is not None
    assert seen.state.ready_at is not None
    assert "orphan" not in trial.engine.running()
    trial.engine.clean("orphan")
    assert trial.left_of("orphan") == []
    assert see(trial, "orphan").presence is Presence.GONE


def test_a_restarted_server_adopts_what_runs(trial: Trial) -> None:
    trial.engine.submit(trial.build("adopted", LONG))
    ready = until_running(trial, "adopted").ready_at
    trial.server_goes()
    trial.server_comes()
    assert trial.engine.running() == ("adopted",)
    seen = see(trial, "adopted")
    assert seen.presence is Presence.ALIVE
    assert seen.state is not None
    assert seen.state.ready_at == ready
    trial.engine.steer("adopted", Desired(stop=True))
    assert until_ended(trial, "adopted").stopped_by == "stop"


def test_an_orphan_is_found_and_cleaned_away(trial: Trial) -> None:
    trial.engine.submit(trial.build("nobodys", LONG))
    until_running(trial, "nobodys")
    assert trial.engine.running() == ("nobodys",)
    trial.engine.clean("nobodys")
    assert trial.engine.running() == ()
    assert trial.left_of("nobodys") == []


def test_clean_may_be_repeated_and_keeps_the_report(trial: Trial) -> None:
    trial.engine.submit(trial.build("tidy", SHORT))
    before = until_ended(trial, "tidy")
    for _ in range(2):
        trial.engine.clean("tidy")
        assert trial.left_of("tidy") == []
        assert see(trial, "tidy") == Observation(Presence.ENDED, before)
    trial.engine.clean("never-heard-of")


def test_a_submit_that_comes_after_the_clean_of_its_id_starts_nothing(trial: Trial) -> None:
    trial.engine.clean("late")
    trial.engine.submit(trial.build("late", SHORT))
    assert trial.engine.running() == ()
    assert see(trial, "late") == Observation(Presence.UNKNOWN)
    trial.engine.clean("late")
    assert see(trial, "late") == Observation(Presence.UNKNOWN)


def test_fifty_in_a_row_leave_nothing(trial: Trial) -> None:
    quick = Behaviour("true", FakeRun(start_seconds=0.1, run_seconds=0.0))
    names = [f"many-{number}" for number in range(50)]
    for batch in (names[start : start + 10] for start in range(0, 50, 10)):
        for name in batch:
            trial.engine.submit(trial.build(name, quick))
        for name in batch:
            assert until_ended(trial, name).exit_code == 0
            trial.engine.clean(name)
    assert trial.engine.running() == ()
    assert [left for name in names for left in trial.left_of(name)] == []


def test_disks_come_and_go_while_it_runs(trial: Trial, tmp_path: Path) -> None:
    disk = tmp_path / "disk" / "data"
    disk.mkdir(parents=True)
    wanted = Plug("p1", "/data/home", "shared", str(disk))
    trial.engine.submit(trial.build("plugged", LONG))
    until_running(trial, "plugged")

    def has(state: str) -> Callable[[Observation], bool]:
        return lambda seen: seen.state is not None and [one.state for one in seen.state.plugged] == [state]

    trial.engine.steer("plugged", Desired(plugs=(wanted,)))
    if getattr(trial, "driver", "") == "process":  # that isolates nothing, and says what it cannot show
        until(trial, "plugged", has("refused"))
    else:
        until(trial, "plugged", has("attached"))
        trial.engine.steer("plugged", Desired(plugs=()))
        until(trial, "plugged", has("detached"))
    trial.engine.steer("plugged", Desired(stop=True, plugs=(wanted,)))
    assert until_ended(trial, "plugged").stopped_by == "stop"


def test_a_start_without_its_disk_says_why(trial: Trial, tmp_path: Path) -> None:
    missing = Plug("p1", "/data/home", "shared", str(tmp_path / "nowhere" / "data"))
    behaviour = Behaviour("true", FakeRun(refuses_plugs="/data/home is not there"))
    trial.engine.submit(trial.build("bare", behaviour, plugs=(missing,)))
    state = until_ended(trial, "bare")
    assert state.ready_at is None
    assert "/data/home" in state.failure


def test_news_wakes_the_platform(trial: Trial) -> None:
    woken: list[bool] = []
    trial.engine.on_news(lambda: woken.append(True))
    trial.engine.submit(trial.build("news", SHORT))
    give_up = trial.now() + PATIENCE_SECONDS
    while not woken and trial.now() < give_up:
        trial.pass_time()
        trial.engine.running()
    assert woken


def test_an_instance_is_reached_while_it_runs_and_nothing_else_is(trial: Trial) -> None:
    """The other end speaks SSH; each call gives a connection of its own."""
    if isinstance(trial, LocalTrial) and trial.driver == "process":
        pytest.skip("driver process keeps no instance")
    if isinstance(trial, LocalTrial) and shutil.which("/usr/sbin/sshd") is None:
        pytest.skip("openssh-server is not installed: apt-get install openssh-server")
    with pytest.raises(EngineUnavailable):
        trial.engine.open_stream("instance")
    trial.engine.submit(trial.build("instance", LONG, interactive=True))
    trial.engine.submit(trial.build("job", LONG))
    for name in ("instance", "job"):
        until_running(trial, name)
    with trial.engine.open_stream("instance") as first, trial.engine.open_stream("instance") as second:
        for connection in (first, second):
            connection.settimeout(PATIENCE_SECONDS)
            assert connection.recv(4) == b"SSH-"
    with pytest.raises(EngineUnavailable, match="not an instance"):
        trial.engine.open_stream("job")
    trial.engine.steer("instance", Desired(stop=True))
    assert until_ended(trial, "instance").stopped_by == "stop"
    with pytest.raises(EngineUnavailable, match="does not run"):
        trial.engine.open_stream("instance")
    for name in ("instance", "job"):
        trial.engine.clean(name)
        assert trial.left_of(name) == []


def test_the_sessions_of_an_adopted_instance_are_taken_by_the_next_server(trial: Trial) -> None:
    if isinstance(trial, LocalTrial) and (trial.driver == "process" or not Path("/usr/sbin/sshd").exists()):
        pytest.skip("driver process keeps no instance; sshd comes with openssh-server")
    trial.engine.submit(trial.build("kept", LONG, interactive=True))
    ready = until_running(trial, "kept").ready_at
    trial.server_goes()
    trial.server_comes()
    give_up = trial.now() + PATIENCE_SECONDS
    while True:
        try:
            connection = trial.engine.open_stream("kept")
            break
        except EngineUnavailable:
            assert trial.now() < give_up
            trial.pass_time()
    with connection:
        connection.settimeout(PATIENCE_SECONDS)
        assert connection.recv(4) == b"SSH-"
    assert until_running(trial, "kept").ready_at == ready
