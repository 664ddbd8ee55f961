"""Idleness by evidence, time to live, what follows a reclaim or a lost node, the release date."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from starverse.app.etags import Changed, version_of
from starverse.app.identity import Identity
from starverse.app.instances import changing, starting, stopping, views
from starverse.app.instances.changing import InstanceChange, settings_of
from starverse.app.instances.launching import LaunchRequest, launch
from starverse.app.instances.starting import StartRequest
from starverse.db import events, instances
from starverse.domain.errors import Conflict, Invalid, NotFound
from starverse.domain.money import Money
from starverse.domain.workloads.states import InstanceState
from starverse.engines.fake import FakeRun
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

FOR_EVER = FakeRun(run_seconds=float("inf"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with fresh_database("sqlite", tmp_path) as database:
        yield World(database, tmp_path / "data", instance_idle_seconds=1800)


def told(world: World, subject: str, kind: str, reason: str) -> list[str]:
    with world.platform.database.read() as connection:
        found = events.newest(connection, 500, subject_id=subject)
    return [one.event.message for one in found if (one.event.kind, one.event.reason) == (kind, reason)]


@pytest.mark.parametrize(
    ("idle_stop", "stops_after_seconds"),
    [("unset", None), ("off", None), ("default", 1800), (0, 60), (600, 600)],
)
def test_four_values_of_idle_stop_are_four_things(
    world: World, idle_stop: str | int, stops_after_seconds: int | None
) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    made = launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box", idle_stop=idle_stop))
    assert made.policy.idle_stop == idle_stop
    world.run(20)
    if stops_after_seconds is None:
        world.run(2 * 3600, step=300)
        shown = views.get(world.platform, lab, "box")
        assert shown.state is InstanceState.RUNNING
        assert shown.idle is not None and (shown.idle.verdict, shown.idle.stops_at) == ("idle", None)
        return
    world.run(stops_after_seconds * 0.7, step=30)
    assert views.get(world.platform, lab, "box").state is InstanceState.RUNNING
    world.run(stops_after_seconds * 0.3 + 90, step=30)
    stopped = views.get(world.platform, lab, "box")
    assert (stopped.state, stopped.reason) == (InstanceState.STOPPED, "idle")
    assert "no source showed any activity" in stopped.message
    assert len(told(world, made.id, "warning", "idle")) == 1


def test_activity_of_any_one_source_keeps_it_running_and_is_listed(world: World) -> None:
    """Scenario 11: a copy of files is busy; what is quiet everywhere is idle, and the evidence says so."""
    lab = world.team("lab")
    world.plan("box", FOR_EVER, active=(("disk", 0, 1500), ("ssh", 0, 5)))
    made = launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box", idle_stop=600))
    world.run(1500, step=20)
    busy = views.get(world.platform, lab, "box")
    assert busy.state is InstanceState.RUNNING
    assert busy.idle is not None and busy.idle.verdict == "active"
    world.run(500, step=20)
    warned = views.get(world.platform, lab, "box")
    assert warned.idle is not None and (warned.idle.verdict, warned.idle.warned) == ("warned", True)
    assert [one.source for one in views.activity(world.platform, lab, "box")] == ["disk", "ssh"]
    (warning,) = told(world, made.id, "warning", "idle")
    assert "disk last active" in warning and "ssh last active" in warning
    world.run(200, step=20)
    assert views.get(world.platform, lab, "box").reason == "idle"


def test_activity_after_a_warning_takes_it_back(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER, active=(("cards", 550, 560),))
    made = launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box", idle_stop=600))
    world.run(700, step=20)
    shown = views.get(world.platform, lab, "box")
    assert shown.state is InstanceState.RUNNING
    assert shown.idle is not None and not shown.idle.warned
    world.run(600, step=20)
    assert views.get(world.platform, lab, "box").state is InstanceState.STOPPED
    assert len(told(world, made.id, "warning", "idle")) == 2


def test_the_idle_clock_begins_anew_with_every_start(world: World) -> None:
    """Scenario 13: an idle timer of a run before never stops the next one."""
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box", idle_stop=600))
    world.run(500, step=20)
    stopping.stop(world.platform, lab, "box")
    world.run(5)
    starting.start(world.platform, lab, "box", StartRequest())
    world.run(400, step=20)
    shown = views.get(world.platform, lab, "box")
    assert shown.state is InstanceState.RUNNING
    with world.platform.database.read() as connection:
        clock = instances.idle_clocks(connection, [shown.id])[shown.id]
    assert clock.allocation_id == next(
        r.spec.allocation_id for r in world.engine.launchers.values() if not r.ended
    )


def test_a_launcher_that_cannot_be_heard_is_not_called_idle(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER, silent=(100, 3000))
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box", idle_stop=150))
    world.run(240, step=5)
    shown = views.get(world.platform, lab, "box")
    assert shown.reason != "idle"


def test_its_time_to_live_counts_from_ready_and_can_be_changed_while_it_runs(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box", ttl_seconds=7200))
    world.run(60)
    shown = views.get(world.platform, lab, "box")
    assert shown.ready_at is not None and shown.stops_at == shown.ready_at + timedelta(hours=2)
    version = version_of(settings_of(shown))
    changed = changing.change(world.platform, lab, "box", InstanceChange(ttl_seconds=600), version)
    assert changed.stops_at == shown.ready_at + timedelta(minutes=10)
    with pytest.raises(Changed):
        changing.change(world.platform, lab, "box", InstanceChange(ttl_seconds=900), version)
    world.run(600, step=20)
    stopped = views.get(world.platform, lab, "box")
    assert (stopped.state, stopped.reason) == (InstanceState.STOPPED, "ttl")


def test_its_time_to_live_ends_it_while_no_server_is_there(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box", ttl_seconds=1200))
    world.run(20)
    version = version_of(settings_of(views.get(world.platform, lab, "box")))
    changing.change(world.platform, lab, "box", InstanceChange(ttl_seconds=600), version)
    world.run(5)
    world.clock.advance(seconds=3000)
    world.engine.advance()
    world.restart()
    world.run(5)
    stopped = views.get(world.platform, lab, "box")
    assert (stopped.state, stopped.reason) == (InstanceState.STOPPED, "ttl")
    assert stopped.message == "its time to live of 600 s is over"
    (run,) = world.engine.launchers.values()
    assert run.state.ready_at is not None and run.state.ended_at == run.state.ready_at + 600
    world.assert_sound()


def reclaim(world: World, lab: Identity, rival: Identity) -> None:
    """Somebody else's need of all cards takes those of ``box``, and is over; ``box`` runs again."""
    launch(world.platform, rival, LaunchRequest("rtx4090", 8, name="urgent"))
    world.run(60, step=10)
    assert views.get(world.platform, lab, "box").state is InstanceState.QUEUED
    stopping.stop(world.platform, rival, "urgent")
    world.run(20, step=5)
    stopping.remove(world.platform, rival, "urgent")
    assert views.get(world.platform, lab, "box").state is InstanceState.RUNNING


def test_its_time_to_live_goes_on_however_often_it_starts_elsewhere(world: World) -> None:
    """Reclaimed more often than its time to live would allow to run through, it still ends by it."""
    lab, rival = world.team("lab"), world.team("rival")
    for name in ("box", "urgent"):
        world.plan(name, FOR_EVER)
    wanted = LaunchRequest("rtx4090", 2, name="box", tariff="spot", restart="elsewhere", ttl_seconds=600)
    launch(world.platform, lab, wanted)
    world.run(10, step=5)
    first = views.get(world.platform, lab, "box")
    assert first.ready_at is not None
    ends = first.ready_at + timedelta(seconds=600)
    for _ in range(2):
        world.run(60, step=30)
        reclaim(world, lab, rival)
        again = views.get(world.platform, lab, "box")
        assert again.ready_at != first.ready_at and again.stops_at == ends
    newest = max(world.engine.launchers.values(), key=lambda run: run.spec.attempt)
    assert newest.state.ready_at is not None and newest.desired.ttl_seconds is not None
    assert newest.state.ready_at + newest.desired.ttl_seconds == pytest.approx(ends.timestamp(), abs=1)
    world.clock.advance(seconds=3000)  # its launcher ends it, no server being there
    world.engine.advance()
    world.restart()
    world.run(5)
    stopped = views.get(world.platform, lab, "box")
    assert (stopped.state, stopped.reason) == (InstanceState.STOPPED, "ttl")
    assert newest.state.ended_at == pytest.approx(ends.timestamp(), abs=1)
    world.assert_sound()


def test_its_time_to_live_also_ends_while_it_waits_for_another_place(world: World) -> None:
    lab, rival = world.team("lab"), world.team("rival")
    for name in ("box", "urgent"):
        world.plan(name, FOR_EVER)
    wanted = LaunchRequest("rtx4090", 2, name="box", tariff="spot", restart="elsewhere", ttl_seconds=600)
    launch(world.platform, lab, wanted)
    world.run(10, step=5)
    launch(world.platform, rival, LaunchRequest("rtx4090", 8, name="urgent"))
    world.run(60, step=10)
    waiting = views.get(world.platform, lab, "box")
    assert waiting.state is InstanceState.QUEUED and waiting.stops_at is not None
    world.run(600, step=60)
    stopped = views.get(world.platform, lab, "box")
    assert (stopped.state, stopped.reason, stopped.stops_at) == (InstanceState.STOPPED, "ttl", None)
    stopping.stop(world.platform, rival, "urgent")
    world.run(20, step=5)
    starting.start(world.platform, lab, "box", StartRequest())
    world.run(20, step=5)
    anew = views.get(world.platform, lab, "box")  # what a person asks for has the whole time
    assert anew.ready_at is not None and anew.stops_at == anew.ready_at + timedelta(seconds=600)
    world.assert_sound()


def test_nothing_that_is_seen_changes_what_is_wanted(world: World) -> None:
    """Scenario 12: refreshes, stops, starts and restarts of the server leave the policy as it was."""
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    asked = LaunchRequest("rtx4090", 1, name="box", idle_stop=7200, ttl_seconds=80_000, restart="elsewhere")
    policy = launch(world.platform, lab, asked).policy
    for _ in range(3):
        world.run(10)
        world.restart()
        stopping.stop(world.platform, lab, "box")
        world.run(5)
        starting.start(world.platform, lab, "box", StartRequest())
    world.run(5)
    assert views.get(world.platform, lab, "box").policy == policy


@pytest.mark.parametrize("restart", ["elsewhere", "stay"])
def test_after_a_reclaim_it_starts_elsewhere_or_stays_stopped_as_asked(world: World, restart: str) -> None:
    lab, rival = world.team("lab"), world.team("rival")
    world.plan("box", FOR_EVER)
    world.plan("urgent", FOR_EVER)
    request = LaunchRequest("rtx4090", 2, name="box", tariff="spot", restart=restart)
    launch(world.platform, lab, request)
    world.run(10)
    launch(world.platform, rival, LaunchRequest("rtx4090", 8, name="urgent"))
    world.run(60)
    assert views.get(world.platform, rival, "urgent").state is InstanceState.RUNNING
    shown = views.get(world.platform, lab, "box")
    if restart == "stay":
        assert (shown.state, shown.reason) == (InstanceState.STOPPED, "reclaimed")
        assert "reclaimed" in shown.message
        return
    assert shown.state is InstanceState.QUEUED
    stopping.stop(world.platform, rival, "urgent")
    world.run(20)
    again = views.get(world.platform, lab, "box")
    assert (again.state, again.reason) == (InstanceState.RUNNING, "")
    homes = {
        run.spec.home
        for run in world.engine.launchers.values()
        if dict(run.spec.environment)["SLURM_JOB_NAME"] == "box"
    }
    assert len(homes) == 1, "the same files"
    world.assert_sound()


@pytest.mark.parametrize("restart", ["elsewhere", "stay"])
def test_after_the_loss_of_its_node_likewise(world: World, restart: str) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER, dies_at_seconds=30)
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box", restart=restart))
    world.run(25)
    world.plan("box", FOR_EVER)
    world.run(70)
    shown = views.get(world.platform, lab, "box")
    if restart == "elsewhere":
        assert shown.state is InstanceState.RUNNING
    else:
        assert (shown.state, shown.reason) == (InstanceState.STOPPED, "node_lost")


def test_a_stopped_instance_is_released_on_its_date_after_a_warning_and_its_files_go(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    made = launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box"))
    world.run(5)
    home = world.platform.paths.instance_home(made.id)
    assert home.is_dir()
    with pytest.raises(Conflict, match="no release date"):
        changing.extend(world.platform, lab, "box", 5)
    stopping.stop(world.platform, lab, "box")
    world.run(5)
    world.clock.advance(days=12, hours=1)
    world.round()
    assert len(told(world, made.id, "warning", "release")) == 1
    extended = changing.extend(world.platform, lab, "box", 5)
    assert extended.release_at is not None and (extended.release_at - world.clock.now()).days == 8
    with pytest.raises(Invalid, match="from now"):
        changing.extend(world.platform, lab, "box", 365)
    world.clock.advance(days=5, hours=1)
    world.round()
    world.clock.advance(days=3)
    world.round()
    released = views.get(world.platform, lab, made.id)
    assert released.state is InstanceState.RELEASED
    assert len(told(world, made.id, "warning", "release")) == 2
    with pytest.raises(NotFound):
        views.get(world.platform, lab, "box")
    assert not home.exists()
    world.round()
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box"))


def test_what_was_not_warned_about_is_not_released(world: World) -> None:
    """The server was down for weeks: the date is over, and the owner is warned first."""
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box"))
    world.run(5)
    stopping.stop(world.platform, lab, "box")
    world.run(5)
    world.clock.advance(days=40)
    world.run_reconciler("release")
    kept = views.get(world.platform, lab, "box")
    assert kept.state is InstanceState.STOPPED
    assert kept.release_at == world.clock.now() + timedelta(days=3)


def test_rm_of_what_runs_stops_it_first_and_leaves_nothing(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    made = launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box"))
    world.run(5)
    stopping.remove(world.platform, lab, "box")
    world.restart()
    world.run(10)
    assert views.get(world.platform, lab, made.id).state is InstanceState.RELEASED
    world.run(10)
    assert not world.platform.paths.instance_home(made.id).parent.exists()
    assert world.engine.running() == ()
    with pytest.raises(Conflict, match="released already"):
        stopping.remove(world.platform, lab, made.id)
    assert world.bill(lab).total > Money(0)


def test_a_clone_has_a_copy_of_the_files_and_waits_for_it(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    world.plan("copy", FOR_EVER)
    made = launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box", idle_stop=900))
    world.run(5)
    home = world.platform.paths.instance_home(made.id)
    (home / "notes.txt").write_text("mine")
    with pytest.raises(Conflict, match=r"only what is stopped"):
        changing.clone(world.platform, lab, "box", "copy")
    stopping.stop(world.platform, lab, "box")
    world.run_reconciler("observe")
    world.engine.advance()
    world.run_reconciler("observe")
    clone = changing.clone(world.platform, lab, "box", "copy")
    assert (clone.state, clone.reason, clone.policy.idle_stop) == (InstanceState.STOPPED, "cloning", 900)
    for name in ("box", "copy"):
        with pytest.raises(Conflict, match=r"copied|cloned"):
            starting.start(world.platform, lab, name, StartRequest())
    world.run(5)
    starting.start(world.platform, lab, "copy", StartRequest())
    world.run(5)
    copied = world.platform.paths.instance_home(clone.id)
    assert (copied / "notes.txt").read_text() == "mine"
    (copied / "notes.txt").write_text("changed")
    assert (home / "notes.txt").read_text() == "mine"


def test_a_clone_whose_files_cannot_be_copied_is_given_up_and_its_source_is_free(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    made = launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box"))
    world.run(5)
    deep = world.platform.paths.instance_home(made.id).joinpath(*["d"] * 250)
    deep.mkdir(parents=True)
    stopping.stop(world.platform, lab, "box")
    world.run_reconciler("observe")
    world.engine.advance()
    world.run_reconciler("observe")
    clone = changing.clone(world.platform, lab, "box", "copy")
    world.run(30)
    seen = views.get(world.platform, lab, clone.id)
    assert (seen.state, "cannot be copied" in seen.message) == (InstanceState.RELEASED, True)
    assert not world.platform.paths.instance_home(clone.id).parent.exists()
    starting.start(world.platform, lab, "box", StartRequest())
    world.run(5)
    assert views.get(world.platform, lab, made.id).state is InstanceState.RUNNING
    assert deep.is_dir()


def test_a_workspace_of_an_instance_outlives_the_days_that_those_of_jobs_are_kept(world: World) -> None:
    lab = world.team("lab")
    world.plan("box", FOR_EVER)
    launch(world.platform, lab, LaunchRequest("rtx4090", 1, name="box"))
    world.run(5)
    workspace = Path(next(iter(world.engine.launchers.values())).spec.workspace)
    stopping.stop(world.platform, lab, "box")
    world.run(5)
    changing.extend(world.platform, lab, "box", 30)
    world.clock.advance(days=20)
    world.round()
    assert workspace.is_dir()
