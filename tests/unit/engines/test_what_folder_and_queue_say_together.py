"""The Slurm engine's word on an allocation, from its folder and the queue; the Slurm is a told one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from starverse.domain.errors import Invalid
from starverse.domain.workloads.launch import NODE_DOWN, LauncherState
from starverse.engines.base import EngineUnavailable, Presence
from starverse.engines.slurm import SlurmEngine, SlurmSettings
from starverse.engines.slurm.facts import JobRequest, SlurmCards, SlurmJob, SlurmNode, SlurmUnavailable
from starverse.node.channel_server import ChannelServer
from starverse.node.folder import AllocationFolder
from starverse.testing.launches import build_launch

PATIENCE_SECONDS = 10.0


class ToldSlurm:
    """A transport in memory. ``away``: nothing is answered; ``deaf``: a submit is done, its answer lost."""

    def __init__(self) -> None:
        self.known: list[SlurmJob] = []
        self.requests: list[JobRequest] = []
        self.away = self.deaf = False
        self.cancels: list[str] = []
        self.ignores_cancel = False
        self.node_states = frozenset({"IDLE"})

    def describe(self) -> str:
        return "told"

    def jobs(self, partitions: Sequence[str]) -> tuple[SlurmJob, ...]:
        return tuple(job for job in self._all() if not job.over)

    def find(self, name: str) -> tuple[SlurmJob, ...]:
        return tuple(job for job in self._all() if job.name == name)

    def nodes(self) -> tuple[SlurmNode, ...]:
        self._all()
        cards = (SlurmCards("rtx4090", 8),)
        return (SlurmNode("n1", self.node_states, ("all",), ("ib",), cards, 64, 512_000),)

    def submit(self, request: JobRequest) -> str:
        self._all()
        self.requests.append(request)
        job = SlurmJob(str(len(self.requests)), request.name, frozenset({"PENDING"}), comment=request.comment)
        self.known.append(replace(job, submitted_at=time.time()))
        if self.deaf:
            raise SlurmUnavailable("no answer")
        return job.job_id

    def cancel(self, name: str) -> None:
        self._all()
        self.cancels.append(name)
        if not self.ignores_cancel:
            self.become(name, "CANCELLED")

    def close(self) -> None:
        return

    def become(self, name: str, *states: str) -> None:
        self.known = [
            replace(job, states=frozenset(states)) if job.name == name else job for job in self.known
        ]

    def _all(self) -> list[SlurmJob]:
        if self.away:
            raise SlurmUnavailable("it is away")
        return self.known


class Site:
    def __init__(self, data: Path, **settings: Any) -> None:
        self.data, self.slurm = data, ToldSlurm()
        wanted = {"poll_seconds": 0.05, "absent_seconds": 0.2, "call_seconds_max": 1.0, **settings}
        self.engine = SlurmEngine(data, SlurmSettings(**wanted), transport=self.slurm)
        self.engine.start()

    def submit(self, name: str = "a-1") -> AllocationFolder:
        self.engine.submit(build_launch(self.data, name, node="n1"))
        return self.folder(name)

    def folder(self, name: str = "a-1") -> AllocationFolder:
        return AllocationFolder(self.data / "allocations" / name)

    def presence(self, name: str = "a-1") -> Presence:
        return self.engine.observe([name])[name].presence

    def until(self, presence: Presence, name: str = "a-1") -> None:
        until(lambda: self.presence(name) is presence, f"{name} {presence}; it is {self.presence(name)}")

    def stays(self, presence: Presence, seconds: float = 0.6) -> None:
        """All the time: longer than a job may be missing."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert self.presence() is presence


def until(look: Callable[[], Any], what: str) -> None:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not look():
        assert time.monotonic() < give_up, what


def state(phase: str) -> LauncherState:
    ready = None if phase == "claimed" else time.time()
    ended = time.time() if phase == "ended" else None
    return LauncherState("a-1", 1, phase, "boot", time.time(), ready, ended, 0 if ended else None)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.engine.close()


def test_from_submit_to_end_the_cards_are_free_last(site: Site) -> None:
    folder = site.submit()
    assert site.presence() is Presence.ACCEPTED
    site.slurm.become("a-1", "RUNNING")
    site.stays(Presence.ACCEPTED)
    folder.write_state(state("running"))
    assert site.presence() is Presence.ALIVE
    folder.write_report(state("ended"))
    site.slurm.become("a-1", "RUNNING", "COMPLETING")
    site.stays(Presence.ALIVE)
    site.slurm.become("a-1", "COMPLETED")
    site.until(Presence.ENDED)


def test_a_launcher_that_died_is_gone_once_its_job_is_missing_for_a_while(site: Site) -> None:
    folder = site.submit()
    site.slurm.become("a-1", "RUNNING")
    folder.write_state(state("running"))
    site.until(Presence.ALIVE)
    site.slurm.become("a-1", "NODE_FAIL")
    assert site.presence() is Presence.ALIVE
    site.until(Presence.GONE)
    assert site.engine.running() == ()


def test_a_node_that_was_set_down_is_known_as_down_as_soon_as_its_launcher_has_ended(tmp_path: Path) -> None:
    site = Site(tmp_path, poll_seconds=2.0)
    try:
        folder = site.submit()
        assert site.engine.nodes()[0].up
        site.slurm.node_states = frozenset({"DOWN"})
        folder.write_report(replace(state("ended"), stopped_by=NODE_DOWN))
        site.slurm.become("a-1", "NODE_FAIL")
        site.until(Presence.ENDED)
        assert not site.engine.nodes()[0].up
    finally:
        site.engine.close()


@pytest.mark.parametrize("phase", ["", "claimed", "running", "ended"])
def test_without_news_nothing_is_concluded(site: Site, phase: str) -> None:
    folder = site.submit()
    site.slurm.become("a-1", "RUNNING")
    if phase:
        folder.write_state(state(phase))
    if phase == "ended":
        folder.write_report(state(phase))
    site.slurm.away = True
    site.stays(Presence.ALIVE if phase else Presence.ACCEPTED, 1.0)
    for call in (site.engine.running, lambda: site.engine.clean("a-1"), lambda: site.submit("a-2")):
        with pytest.raises(EngineUnavailable, match="away"):
            call()
    assert not folder.has("revoked")


def test_a_submit_whose_answer_was_lost_finds_its_job_again(site: Site) -> None:
    site.slurm.deaf = True
    with pytest.raises(EngineUnavailable):
        site.submit()
    assert site.presence() is Presence.UNKNOWN
    site.slurm.deaf = False
    until(lambda: _submits(site), "a submit after the pause")
    assert len(site.slurm.requests) == 1
    assert site.presence() is Presence.ACCEPTED


def test_a_job_that_slurm_forgot_is_submitted_again_and_one_that_failed_is_not(site: Site) -> None:
    site.submit()
    site.slurm.known.clear()
    site.until(Presence.UNKNOWN)
    site.submit()
    assert len(site.slurm.requests) == 2
    (site.folder() / "launcher.log").write_text("sh: no such python\n\n")
    site.slurm.become("a-1", "FAILED")
    site.until(Presence.ENDED)
    seen = site.engine.observe(["a-1"])["a-1"].state
    assert seen is not None
    assert seen.failure == "Slurm ended its job before it started: failed; sh: no such python"
    site.submit()
    assert len(site.slurm.requests) == 2


def test_nothing_counts_as_clean_before_slurm_says_that_it_is_gone(site: Site) -> None:
    folder = site.submit()
    site.slurm.become("a-1", "RUNNING")
    site.slurm.ignores_cancel = True
    with pytest.raises(EngineUnavailable, match="is being cancelled"):
        site.engine.clean("a-1")
    assert folder.has("revoked")
    assert not folder.has("cleaned")
    assert site.engine.running() == ("a-1",)
    site.slurm.become("a-1", "CANCELLED")
    site.engine.clean("a-1")
    assert folder.has("cleaned")
    assert site.presence() is Presence.UNKNOWN
    site.submit()
    assert len(site.slurm.requests) == 1


@pytest.mark.parametrize("states", [("PENDING",), ("REQUEUED", "PENDING"), ("REQUEUE_HOLD",)])
def test_a_job_that_slurm_is_about_to_start_again_is_gone_and_cancelled_in_cleaning(
    site: Site, states: tuple[str, ...]
) -> None:
    site.submit().write_state(state("running"))
    site.slurm.become("a-1", "RUNNING")
    site.stays(Presence.ALIVE, 0.3)
    site.slurm.become("a-1", "COMPLETING", *states)
    site.stays(Presence.ALIVE, 0.4)
    site.slurm.become("a-1", *states)
    site.until(Presence.GONE)
    site.engine.clean("a-1")
    assert site.slurm.cancels == ["a-1"]
    assert site.folder().has("cleaned")


def test_a_second_job_of_the_name_that_waits_for_the_first_changes_nothing(site: Site) -> None:
    site.submit().write_state(state("running"))
    site.slurm.become("a-1", "RUNNING")
    site.slurm.known.append(replace(site.slurm.known[0], job_id="2", states=frozenset({"PENDING"})))
    site.stays(Presence.ALIVE)


def test_jobs_of_another_platform_on_the_cluster_are_not_ours(site: Site, tmp_path: Path) -> None:
    site.slurm.known.append(SlurmJob("9", "x-1", frozenset({"RUNNING"}), comment="starverse-of-somebody"))
    site.submit()
    assert site.engine.running() == ("a-1",)


def test_another_server_on_the_same_folder_knows_the_same(site: Site) -> None:
    site.submit().write_state(state("running"))
    other = SlurmEngine(
        site.data,
        SlurmSettings(poll_seconds=0.05),
        transport=site.slurm,
        open_channel=lambda answers: ChannelServer(site.data / "other.sock", answers),
    )
    other.start()
    try:
        assert other.running() == site.engine.running() == ("a-1",)
        assert other.observe(["a-1"])["a-1"].presence is Presence.ALIVE
    finally:
        other.close()


def test_unix_users_that_are_not_safe_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="other than root"):
        SlurmEngine(tmp_path, SlurmSettings(unix_users={"t": "root"}), transport=ToldSlurm())


def _submits(site: Site) -> bool:
    try:
        site.submit()
    except EngineUnavailable:
        return False
    return True


def test_what_the_nodes_run_is_told_where_the_shims_are(site: Site) -> None:
    site.submit()
    request = site.slurm.requests[0]
    assert f"STARVERSE_SHIMS={site.data}/sandbox/shims" in request.script
    assert os.access(site.data / "sandbox/shims/srun", os.X_OK)
    assert request.comment.startswith("starverse-")
