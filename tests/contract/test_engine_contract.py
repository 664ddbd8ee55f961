"""The one suite that every engine passes: the fake on its virtual clock, the local with real processes, and
that of a cluster on a real Slurm, by its commands and by slurmrestd."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from starverse.domain.workloads.launch import Desired, Plug
from starverse.engines.base import (
    EngineUnavailable,
    Observation,
    Presence,
)
from starverse.engines.fake import FakeRun
from starverse.testing.engine_trials import (
    LONG,
    OBEDIENT,
    PATIENCE_SECONDS,
    SHORT,
    STUBBORN,
    Behaviour,
    FakeTrial,
    LocalTrial,
    SlurmTrial,
    Trial,
    see,
    until,
    until_ended,
    until_running,
)
from starverse.testing.launches import own
from starverse.testing.slurm_lab import SlurmLab


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


def test_nodes_are_reported_with_their_cards(trial: Trial) -> None:
    nodes = trial.engine.nodes()
    assert [node.node_id for node in nodes] == ["declared-1"]
    assert all(card.declared and card.model == "rtx4090" for card in nodes[0].cards)


def test_what_was_never_submitted_is_unknown(trial: Trial) -> None:
    assert see(trial, own("never")) == Observation(Presence.UNKNOWN)
    assert trial.engine.running() == ()


def test_submitted_twice_runs_once(trial: Trial) -> None:
    name = own("twice")
    spec = trial.build(name, SHORT)
    trial.engine.submit(spec)
    trial.engine.submit(spec)
    until_running(trial, name)
    trial.engine.submit(spec)
    until_ended(trial, name)
    trial.engine.submit(spec)
    assert see(trial, name).presence is Presence.ENDED
    assert trial.count_starts(spec) == 1


def test_times_are_those_of_the_script(trial: Trial) -> None:
    name = own("times")
    before = trial.now()
    trial.engine.submit(trial.build(name, SHORT))
    state = until_ended(trial, name)
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
    name = own("exits")
    run = FakeRun(start_seconds=0.1, run_seconds=0.1, exit_code=code or 0, exit_signal=number)
    trial.engine.submit(trial.build(name, Behaviour(script, run)))
    state = until_ended(trial, name)
    assert (state.exit_code, state.exit_signal) == (code, number)


def test_a_start_that_fails_says_why_and_was_never_ready(trial: Trial) -> None:
    name = own("fails")
    trial.engine.submit(trial.build(name, SHORT, driver="no such"))
    state = until_ended(trial, name)
    assert state.ready_at is None
    assert "no such" in state.failure.lower()


def test_a_notice_is_obeyed_with_exit_99(trial: Trial) -> None:
    name = own("noticed")
    trial.engine.submit(trial.build(name, OBEDIENT, grace_seconds=20))
    until_running(trial, name)
    deadline = trial.now() + 20
    trial.engine.steer(name, Desired(notice_reason="reclaim", notice_deadline=deadline))
    state = until_ended(trial, name)
    assert (state.exit_code, state.stopped_by, state.notice_reason) == (99, "notice", "reclaim")
    assert state.notice_deadline == pytest.approx(deadline)
    assert state.ended_at is not None
    assert state.ended_at < deadline


def test_a_notice_not_obeyed_ends_with_term_at_its_deadline(trial: Trial) -> None:
    name = own("deaf")
    trial.engine.submit(trial.build(name, LONG))
    until_running(trial, name)
    deadline = trial.now() + 0.5
    trial.engine.steer(name, Desired(notice_reason="reclaim", notice_deadline=deadline))
    stopping = until(trial, name, lambda o: o.state is not None and o.state.phase == "stopping")
    assert stopping.presence is Presence.ALIVE
    state = until_ended(trial, name)
    assert (state.exit_code, state.exit_signal, state.stopped_by) == (None, 15, "notice")
    assert state.ended_at is not None
    assert state.ended_at >= deadline


def test_what_ignores_term_is_killed(trial: Trial) -> None:
    name = own("stubborn")
    trial.engine.submit(trial.build(name, STUBBORN, kill_after_seconds=1))
    ready = until_running(trial, name).ready_at
    asked = trial.now()
    trial.engine.steer(name, Desired(stop=True))
    state = until_ended(trial, name)
    assert (state.exit_code, state.exit_signal, state.stopped_by) == (None, 9, "stop")
    assert ready is not None
    assert state.ended_at is not None
    assert state.ended_at >= asked + 0.9


def test_stop_ends_at_once(trial: Trial) -> None:
    name = own("stopped")
    trial.engine.submit(trial.build(name, LONG))
    until_running(trial, name)
    trial.engine.steer(name, Desired(stop=True))
    state = until_ended(trial, name)
    assert (state.exit_signal, state.stopped_by) == (15, "stop")


def test_without_money_it_stops_by_itself_while_the_server_is_away(trial: Trial) -> None:
    name = own("unfunded")
    trial.engine.submit(trial.build(name, LONG, funded_seconds=2, grace_seconds=1))
    ready = until_running(trial, name).ready_at
    assert ready is not None
    trial.server_goes()
    while trial.now() < ready + 2.5:
        trial.pass_time()
    trial.server_comes()
    state = until_ended(trial, name)
    assert (state.stopped_by, state.notice_reason, state.exit_signal) == ("unfunded", "funds", 15)
    assert state.ended_at is not None
    assert ready + 2 <= state.ended_at < ready + 8


def test_an_extension_keeps_it_running(trial: Trial) -> None:
    name = own("extended")
    trial.engine.submit(trial.build(name, LONG, funded_seconds=2, grace_seconds=1))
    ready = until_running(trial, name).ready_at
    assert ready is not None
    trial.engine.steer(name, Desired(funded_until=ready + 3600))
    until(trial, name, lambda o: o.state is not None and o.state.funded_until == ready + 3600)
    while trial.now() < ready + 2.5:
        trial.pass_time()
    seen = see(trial, name)
    assert seen.presence is Presence.ALIVE
    assert seen.state is not None
    assert seen.state.phase == "running"


def test_the_time_limit_announces_itself_and_ends_it(trial: Trial) -> None:
    name = own("limited")
    trial.engine.submit(trial.build(name, LONG, time_limit_seconds=2, grace_seconds=1))
    state = until_ended(trial, name)
    assert (state.stopped_by, state.notice_reason, state.exit_signal) == ("time_limit", "time_limit", 15)
    assert state.ready_at is not None
    assert state.ended_at is not None
    assert state.ended_at - state.ready_at >= 2


def test_a_time_to_live_ends_without_anybody_asking(trial: Trial) -> None:
    name = own("short")
    trial.engine.submit(trial.build(name, LONG, ttl_seconds=2))
    state = until_ended(trial, name)
    assert (state.stopped_by, state.exit_signal) == ("time_limit", 15)
    assert state.ready_at is not None and state.ended_at is not None
    assert state.ended_at - state.ready_at >= 2


def test_kill_9_of_the_launcher_is_seen_and_kills_the_workload(trial: Trial) -> None:
    name = own("orphan")
    trial.engine.submit(trial.build(name, LONG))
    until_running(trial, name)
    trial.kill_launcher(name)
    seen = until(trial, name, lambda o: o.presence is Presence.GONE)
    assert seen.state is not None
    assert seen.state.ready_at is not None
    assert name not in trial.engine.running()
    trial.engine.clean(name)
    assert trial.left_of(name) == []
    assert see(trial, name).presence is Presence.GONE


def test_a_restarted_server_adopts_what_runs(trial: Trial) -> None:
    name = own("adopted")
    trial.engine.submit(trial.build(name, LONG))
    ready = until_running(trial, name).ready_at
    trial.server_goes()
    trial.server_comes()
    assert trial.engine.running() == (name,)
    seen = see(trial, name)
    assert seen.presence is Presence.ALIVE
    assert seen.state is not None
    assert seen.state.ready_at == ready
    trial.engine.steer(name, Desired(stop=True))
    assert until_ended(trial, name).stopped_by == "stop"


def test_an_orphan_is_found_and_cleaned_away(trial: Trial) -> None:
    name = own("nobodys")
    trial.engine.submit(trial.build(name, LONG))
    until_running(trial, name)
    assert trial.engine.running() == (name,)
    trial.engine.clean(name)
    assert trial.engine.running() == ()
    assert trial.left_of(name) == []


def test_clean_may_be_repeated_and_keeps_the_report(trial: Trial) -> None:
    trial.engine.submit(trial.build(own("tidy"), SHORT))
    before = until_ended(trial, own("tidy"))
    for _ in range(2):
        trial.engine.clean(own("tidy"))
        assert trial.left_of(own("tidy")) == []
        assert see(trial, own("tidy")) == Observation(Presence.ENDED, before)
    trial.engine.clean(own("never-heard-of"))


def test_a_submit_that_comes_after_the_clean_of_its_id_starts_nothing(trial: Trial) -> None:
    name = own("late")
    trial.engine.clean(name)
    trial.engine.submit(trial.build(name, SHORT))
    assert trial.engine.running() == ()
    assert see(trial, name) == Observation(Presence.UNKNOWN)
    trial.engine.clean(name)
    assert see(trial, name) == Observation(Presence.UNKNOWN)


def test_many_in_a_row_leave_nothing(trial: Trial) -> None:
    quick = Behaviour("true", FakeRun(start_seconds=0.1, run_seconds=0.0))
    names = [own(f"many-{number}") for number in range(trial.many)]
    for batch in (names[start : start + 10] for start in range(0, trial.many, 10)):
        for name in batch:
            trial.engine.submit(trial.build(name, quick))
        for name in batch:
            assert until_ended(trial, name).exit_code == 0
            trial.engine.clean(name)
    assert trial.engine.running() == ()
    assert [left for name in names for left in trial.left_of(name)] == []


def test_disks_come_and_go_while_it_runs(trial: Trial, tmp_path: Path) -> None:
    name = own("plugged")
    disk = tmp_path / "disk" / "data"
    disk.mkdir(parents=True)
    wanted = Plug("p1", "/data/home", "shared", str(disk))
    trial.engine.submit(trial.build(name, LONG))
    until_running(trial, name)

    def has(state: str) -> Callable[[Observation], bool]:
        return lambda seen: seen.state is not None and [one.state for one in seen.state.plugged] == [state]

    trial.engine.steer(name, Desired(plugs=(wanted,)))
    if getattr(trial, "driver", "") == "process":  # that isolates nothing, and says what it cannot show
        until(trial, name, has("refused"))
    else:
        until(trial, name, has("attached"))
        trial.engine.steer(name, Desired(plugs=()))
        until(trial, name, has("detached"))
    trial.engine.steer(name, Desired(stop=True, plugs=(wanted,)))
    assert until_ended(trial, name).stopped_by == "stop"


def test_a_start_without_its_disk_says_why(trial: Trial, tmp_path: Path) -> None:
    name = own("bare")
    missing = Plug("p1", "/data/home", "shared", str(tmp_path / "nowhere" / "data"))
    behaviour = Behaviour("true", FakeRun(refuses_plugs="/data/home is not there"))
    trial.engine.submit(trial.build(name, behaviour, plugs=(missing,)))
    state = until_ended(trial, name)
    assert state.ready_at is None
    assert "/data/home" in state.failure


def test_news_wakes_the_platform(trial: Trial) -> None:
    woken: list[bool] = []
    trial.engine.on_news(lambda: woken.append(True))
    trial.engine.submit(trial.build(own("news"), SHORT))
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
    instance, job = own("instance"), own("job")
    with pytest.raises(EngineUnavailable):
        trial.engine.open_stream(instance)
    trial.engine.submit(trial.build(instance, LONG, interactive=True))
    trial.engine.submit(trial.build(job, LONG))
    for name in (instance, job):
        until_running(trial, name)
    with (
        trial.engine.open_stream(instance) as first,
        trial.engine.open_stream(instance) as second,
    ):
        for connection in (first, second):
            connection.settimeout(PATIENCE_SECONDS)
            assert connection.recv(4) == b"SSH-"
    with pytest.raises(EngineUnavailable, match="not an instance"):
        trial.engine.open_stream(job)
    trial.engine.steer(instance, Desired(stop=True))
    assert until_ended(trial, instance).stopped_by == "stop"
    with pytest.raises(EngineUnavailable, match="does not run"):
        trial.engine.open_stream(instance)
    for name in (instance, job):
        trial.engine.clean(name)
        assert trial.left_of(name) == []


def test_the_sessions_of_an_adopted_instance_are_taken_by_the_next_server(trial: Trial) -> None:
    name = own("kept")
    if isinstance(trial, LocalTrial) and (trial.driver == "process" or not Path("/usr/sbin/sshd").exists()):
        pytest.skip("driver process keeps no instance; sshd comes with openssh-server")
    trial.engine.submit(trial.build(name, LONG, interactive=True))
    ready = until_running(trial, name).ready_at
    trial.server_goes()
    trial.server_comes()
    give_up = trial.now() + PATIENCE_SECONDS
    while True:
        try:
            connection = trial.engine.open_stream(name)
            break
        except EngineUnavailable:
            assert trial.now() < give_up
            trial.pass_time()
    with connection:
        connection.settimeout(PATIENCE_SECONDS)
        assert connection.recv(4) == b"SSH-"
    assert until_running(trial, name).ready_at == ready
