"""A real Slurm that crashes, forgets, hangs or is not there: nothing runs twice, nothing is declared dead for
lack of news, and what was lost is found by our own names."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from starverse.domain.cluster import node_state
from starverse.domain.recovery.causes import EndFacts, end_cause
from starverse.domain.workloads.launch import Desired, GrantedCard, LaunchSpec
from starverse.domain.workloads.reasons import EndCause
from starverse.engines.base import EngineUnavailable, Observation, Presence
from starverse.engines.slurm import SlurmEngine
from starverse.engines.slurm.commands import Commands
from starverse.engines.slurm.facts import SlurmRefused, SlurmUnavailable
from starverse.engines.slurm.rest import Rest
from starverse.engines.slurm.settings import connect
from starverse.engines.slurm.tokens import Tokens
from starverse.node import processes
from starverse.testing.launches import build_launch, own
from starverse.testing.slurm_lab import SlurmLab
from starverse.testing.slurm_sites import StandingLabs, build_request, lab_settings

TEAM_UID = 200_001
PATIENCE_SECONDS = 40.0
LONG = "echo started >> starts; sleep 300"
SHORT = "echo started >> starts"


class Site:
    """A lab of two nodes and an engine on it."""

    def __init__(self, lab: SlurmLab, data: Path, **settings: Any) -> None:
        self.lab, self.data = lab, data
        self.engine = SlurmEngine(data, lab_settings(lab, **settings))
        self.engine.start()

    def submit(self, name: str, script: str = LONG, **changes: Any) -> LaunchSpec:
        spec = self.build(name, script, **changes)
        self.engine.submit(spec)
        return spec

    def build(self, name: str, script: str = LONG, **changes: Any) -> LaunchSpec:
        uid = TEAM_UID if os.geteuid() == 0 else None
        wanted = {"node": "gpu001", "unix_uid": uid, "script": f"{script}\n", **changes}
        return build_launch(self.data, name, **wanted)

    def see(self, name: str) -> Observation:
        return self.engine.observe([name])[name]

    def until(self, name: str, *wanted: Presence) -> Observation:
        until(lambda: self.see(name).presence in wanted, f"{name}: {wanted}")
        return self.see(name)

    def until_running(self, name: str) -> None:
        until(lambda: (state := self.see(name).state) and state.ready_at, f"{name} running")

    def clean(self, name: str) -> None:
        """As the platform does: again and again while something resists."""

        def done() -> bool:
            try:
                self.engine.clean(name)
            except EngineUnavailable:
                return False
            return True

        until(done, f"{name} clean")

    def count_starts(self, spec: LaunchSpec) -> int:
        file = Path(spec.workspace, "starts")
        return len(file.read_text().splitlines()) if file.exists() else 0

    def queue(self) -> list[str]:
        return self.lab.command("squeue", "-h", "-o", "%j").split()

    def close(self) -> None:
        for folder in (self.data / "allocations").iterdir():
            self.clean(folder.name)
        self.engine.close()


def until(look: Callable[[], Any], what: str) -> Any:
    give_up = time.monotonic() + PATIENCE_SECONDS
    while not (found := look()):
        assert time.monotonic() < give_up, f"not in time: {what}"
        time.sleep(0.02)
    return found


@pytest.fixture(scope="module")
def labs() -> Iterator[StandingLabs]:
    if why := SlurmLab.missing():
        pytest.skip(why)
    with closing(StandingLabs(nodes=2)) as made:
        yield made


@pytest.fixture
def extra() -> str:
    """Lines of slurm.conf."""
    return "JobRequeue=0"


@pytest.fixture
def lab(labs: StandingLabs, extra: str) -> Iterator[SlurmLab]:
    with labs.open(extra) as opened:
        yield opened


@pytest.fixture
def site(lab: SlurmLab, tmp_path: Path) -> Iterator[Site]:
    site = Site(lab, tmp_path, transport="commands")
    try:
        yield site
    finally:
        site.close()


def forget_jobs(lab: SlurmLab) -> None:
    """What a crash just after a submit does: the controller comes back and knows nothing of any job."""
    lab.kill_controller()
    for file in (lab.folder / "state").glob("job_state*"):
        file.unlink()
    lab.start_controller()
    until(lambda: "idle" in lab.command("sinfo", "-h", "-o", "%T", check=False), "the controller's return")


def test_a_controller_killed_right_after_the_submit_costs_no_second_run(site: Site) -> None:
    name = own("crashed")
    spec = site.submit(name, SHORT)
    site.lab.kill_controller()
    site.lab.start_controller()
    for _ in range(3):
        seen = site.until(name, Presence.ENDED, Presence.UNKNOWN, Presence.GONE)
        if seen.presence is not Presence.UNKNOWN:
            break
        site.engine.submit(spec)
        until(lambda: site.see(name).presence is not Presence.UNKNOWN, "the second submit")
    assert site.count_starts(spec) == 1


def test_a_job_that_the_controller_forgot_while_it_waited_is_submitted_again(site: Site) -> None:
    full = site.submit(own("full"), cards=all_cards("gpu001"))
    site.until_running(own("full"))
    spec = site.submit(own("waits"), SHORT)
    assert site.see(own("waits")).presence is Presence.ACCEPTED
    forget_jobs(site.lab)
    site.until(own("waits"), Presence.UNKNOWN)
    site.clean(own("full"))
    site.engine.submit(spec)
    site.until(own("waits"), Presence.ENDED)
    assert (site.count_starts(spec), site.count_starts(full)) == (1, 1)


def test_what_runs_and_was_forgotten_is_found_by_our_name_and_ended(site: Site) -> None:
    name = own("orphan")
    site.submit(name)
    site.until_running(name)
    forget_jobs(site.lab)
    site.until(name, Presence.GONE, Presence.ENDED)
    site.clean(name)
    assert processes.find_tagged(name) == []
    assert name not in site.engine.running()


def test_a_number_that_came_again_is_not_taken_for_ours(site: Site) -> None:
    """Slurm gives the numbers of jobs that it forgot to others: ours is ended by name, theirs lives."""
    site.submit(own("mine"))
    site.until_running(own("mine"))
    number = (site.data / "allocations" / own("mine") / "slurm.json").read_text().split('"')[3]
    forget_jobs(site.lab)
    theirs = ""
    while theirs != number:
        theirs = site.lab.command(
            "sbatch", "--parsable", "-J", "theirs", "-w", "gpu002", "-o", "/dev/null", "--wrap", "sleep 60"
        ).strip()
        assert int(theirs) <= int(number)
    site.clean(own("mine"))
    states = dict(line.split() for line in site.lab.command("squeue", "-h", "-o", "%A %T").splitlines())
    assert states[number] in ("RUNNING", "PENDING")
    site.lab.command("scancel", "-n", "theirs")


@pytest.mark.parametrize("extra", ["JobRequeue=0\nMessageTimeout=3"])  # else each command waits 10 s for it
def test_while_the_controller_is_away_nothing_is_concluded(site: Site) -> None:
    name = own("lasting")
    site.submit(name)
    site.until_running(name)
    site.lab.kill_controller()
    with pytest.raises(EngineUnavailable):
        site.engine.submit(site.build(own("later")))
    with pytest.raises(EngineUnavailable):
        site.engine.clean(name)
    with pytest.raises(EngineUnavailable):
        site.engine.running()
    assert not (site.data / "allocations" / name / "revoked").exists()
    assert site.see(name).presence is Presence.ALIVE
    site.engine.steer(name, Desired(stop=True))
    ended = until(lambda: (s := site.see(name)).state and s.state.phase == "ended" and s, "its end")
    assert ended.presence is Presence.ALIVE
    site.lab.start_controller()
    site.until(name, Presence.ENDED)


def test_a_squeue_that_hangs_holds_up_no_observation_and_no_stop(lab: SlurmLab, tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun"):
        (commands / name).symlink_to(f"/usr/bin/{name}")
    data = tmp_path / "data"
    data.mkdir()
    site = Site(lab, data, transport="commands", commands=str(commands), call_seconds_max=1.0)
    try:
        site.submit(own("hangs"))
        site.until_running(own("hangs"))
        (commands / "squeue").unlink()
        (commands / "squeue").write_text(f"#!/bin/sh\necho x >> {tmp_path}/asked\nexec sleep 60\n")
        (commands / "squeue").chmod(0o755)
        until(lambda: (tmp_path / "asked").exists(), "a squeue that hangs")
        began = time.monotonic()
        for _ in range(20):
            assert site.see(own("hangs")).presence is Presence.ALIVE
        assert time.monotonic() - began < 1
        with pytest.raises(EngineUnavailable):
            site.engine.running()
        with pytest.raises(EngineUnavailable):
            site.engine.clean(own("hangs"))
        while time.monotonic() < began + 8:
            assert site.see(own("hangs")).presence is Presence.ALIVE
            time.sleep(0.1)
        assert 1 <= len((tmp_path / "asked").read_text().splitlines()) <= 6
        (commands / "squeue").unlink()
        (commands / "squeue").symlink_to("/usr/bin/squeue")
        site.clean(own("hangs"))
    finally:
        site.close()


def test_commands_that_hang_are_given_up_in_time(tmp_path: Path) -> None:
    for name in ("sbatch", "scontrol"):
        (tmp_path / name).write_text("#!/bin/sh\nexec sleep 60\n")
        (tmp_path / name).chmod(0o755)
    slow = Commands(str(tmp_path), call_seconds_max=0.3)
    began = time.monotonic()
    with pytest.raises(SlurmUnavailable, match="did not answer within"):
        slow.nodes()
    assert time.monotonic() - began < 5


def test_slurmrestd_may_go_and_come_back(lab: SlurmLab, tmp_path: Path) -> None:
    site = Site(lab, tmp_path, transport="rest")
    try:
        site.submit(own("first"))
        site.until_running(own("first"))
        lab.stop_rest()
        with pytest.raises(EngineUnavailable):
            site.engine.submit(site.build(own("second"), SHORT))
        assert site.see(own("first")).presence is Presence.ALIVE
        lab.start_rest()
        spec = site.build(own("second"), SHORT)
        until(lambda: _submits(site, spec), "slurmrestd's return")
        site.until(own("second"), Presence.ENDED)
        assert site.count_starts(spec) == 1
    finally:
        site.close()


def test_a_token_that_ran_out_is_replaced_and_a_wrong_key_is_no_answer(lab: SlurmLab, tmp_path: Path) -> None:
    shift = [-7200.0]
    rest = Rest(lab.rest_url, Tokens(lab.jwt_key, "root", now=lambda: time.time() + shift[0]))
    try:
        with pytest.raises(SlurmUnavailable):
            rest.jobs(())
        shift[0] = 0.0
        assert rest.jobs(()) == ()
    finally:
        rest.close()
    (tmp_path / "wrong").write_bytes(b"not this one")
    stranger = Rest(lab.rest_url, Tokens(tmp_path / "wrong", "root"))
    try:
        with pytest.raises(SlurmUnavailable):
            stranger.nodes()
    finally:
        stranger.close()


def test_two_submits_at_two_servers_run_once(lab: SlurmLab, tmp_path: Path) -> None:
    """Both get a job: the second waits for the first, and its launcher finds the id claimed."""
    site = Site(lab, tmp_path, transport="commands")
    try:
        spec = site.submit(own("twice"), "echo started >> starts; sleep 1")
        for name in ("slurm.json", "submitting"):
            (tmp_path / "allocations" / own("twice") / name).unlink()
        site.engine.submit(spec)
        assert site.queue().count(own("twice")) in (1, 2)
        site.until(own("twice"), Presence.ENDED)
        until(lambda: own("twice") not in site.queue(), "the end of both jobs")
        assert site.count_starts(spec) == 1
    finally:
        site.close()


def test_a_node_without_our_python_fails_the_start_and_says_so(lab: SlurmLab, tmp_path: Path) -> None:
    name = own("hopeless")
    site = Site(lab, tmp_path, transport="commands", python="/no/such/python")
    try:
        site.submit(name)
        seen = site.until(name, Presence.ENDED)
        assert seen.state is not None
        assert seen.state.ready_at is None
        assert "failed" in seen.state.failure
        assert "/no/such/python" in seen.state.failure
    finally:
        site.close()


def test_a_submit_whose_answer_was_lost_is_not_submitted_again(site: Site) -> None:
    name = own("unsure")
    spec = site.submit(name)
    (site.data / "allocations" / name / "slurm.json").unlink()
    site.engine.submit(spec)
    assert site.queue().count(name) == 1
    assert (site.data / "allocations" / name / "slurm.json").exists()


def test_a_job_that_waits_is_cancelled_and_never_starts(site: Site) -> None:
    site.submit(own("full"), cards=all_cards("gpu001"))
    site.until_running(own("full"))
    spec = site.submit(own("cancelled"), SHORT)
    site.clean(own("cancelled"))
    assert site.queue() == [own("full")]
    assert site.see(own("cancelled")).presence is Presence.UNKNOWN
    site.clean(own("full"))
    site.engine.submit(spec)
    assert site.queue() == []
    assert site.count_starts(spec) == 0


def test_a_job_that_slurm_got_after_its_id_was_revoked_is_ended_as_an_orphan(site: Site) -> None:
    """The answer to its submit was lost, and the job came late."""
    site.submit(own("full"), cards=all_cards("gpu001"))
    site.until_running(own("full"))
    comment = site.lab.command("squeue", "-h", "-o", "%k", "-n", own("full")).strip()
    site.clean(own("late"))
    site.lab.command(
        *("sbatch", "-J", own("late"), f"--comment={comment}", "-w", "gpu001", "--gres=gpu:8"),
        *("-D", "/", "-o", "/dev/null", "--wrap", "true"),
    )
    assert site.engine.running() == (own("full"), own("late"))
    site.clean(own("late"))
    until(lambda: site.engine.running() == (own("full"),), "the end of the late job")


def test_the_state_of_a_node_is_seen_at_the_next_look(site: Site) -> None:
    def state() -> tuple[bool, str]:
        node = next(node for node in site.engine.nodes() if node.node_id == "gpu002")
        return node.up, node.message

    assert state() == (True, "")
    for word in ("drain", "down"):
        site.lab.set_node("gpu002", word, "fan is loud")
        until(lambda: not state()[0], f"{word} seen")
        assert node_state(*state()) == {"drain": "drained", "down": "down"}[word]
        assert word in state()[1]
        assert "fan is loud" in state()[1]
        site.lab.set_node("gpu002", "resume")
        until(lambda: state()[0], "resume seen")


def test_a_node_that_dies_takes_its_launcher_along(site: Site) -> None:
    name = own("doomed")
    site.submit(name, node="gpu002")
    site.until_running(name)
    site.lab.kill_node("gpu002")
    site.lab.set_node("gpu002", "down", "dead")
    seen = site.until(name, Presence.GONE)
    assert seen.state is not None
    assert seen.state.ready_at is not None
    site.clean(name)
    site.lab.start_node("gpu002")


def test_a_node_that_operators_set_down_is_a_lost_node(site: Site) -> None:
    name = own("setdown")
    site.submit(name, node="gpu002")
    site.until_running(name)
    site.lab.set_node("gpu002", "down", "to be moved")  # it comes back by itself: ReturnToService=2
    seen = site.until(name, Presence.ENDED)
    assert seen.state is not None and end_cause(EndFacts(seen.state))[0] is EndCause.NODE_LOST
    site.clean(name)


@pytest.mark.parametrize(
    ("transport", "job_requeue"), [("commands", 1), ("both", 1), ("both", 0), ("rest", 0)]
)
def test_slurm_starts_nothing_again_by_itself(
    labs: StandingLabs, tmp_path: Path, transport: str, job_requeue: int
) -> None:
    name = own("once")
    with labs.open(f"JobRequeue={job_requeue}") as lab:
        site = Site(lab, tmp_path, transport=transport)
        try:
            site.submit(name, node="gpu002")
            site.until_running(name)
            number = lab.command("squeue", "-h", "-o", "%A", "-n", name).strip()
            assert " Requeue=0 " in lab.command("scontrol", "show", "job", number)
            lab.kill_node("gpu002")
            lab.set_node("gpu002", "down", "dead")
            site.until(name, Presence.GONE)
            assert name not in site.queue()
            assert "JobState=NODE_FAIL" in lab.command("scontrol", "show", "job", number)
            lab.start_node("gpu002")
        finally:
            site.close()


def test_by_slurmrestd_alone_a_job_that_would_be_requeued_is_refused_and_does_not_stay(
    labs: StandingLabs, tmp_path: Path
) -> None:
    name = own("again")
    with labs.open("JobRequeue=1") as lab:
        site = Site(lab, tmp_path, transport="rest")
        try:
            with pytest.raises(SlurmRefused, match="cannot keep Slurm from requeueing") as refused:
                site.submit(name)
            assert "JobRequeue=0" in (refused.value.hint or "")
            until(lambda: name not in site.queue(), "its end")
        finally:
            site.close()


@pytest.mark.parametrize("transport", ["commands", "rest"])
def test_a_submit_for_a_node_that_is_away_waits_in_the_queue_and_is_no_refusal(
    lab: SlurmLab, tmp_path: Path, transport: str
) -> None:
    name = own("patient")
    site = Site(lab, tmp_path, transport=transport)
    try:
        site.engine.nodes()
        lab.set_node("gpu002", "drain")
        spec = site.build(name, SHORT, node="gpu002")
        until(lambda: _submits(site, spec), "the submit")
        assert site.queue() == [name]
        lab.set_node("gpu002", "resume")
        site.until(name, Presence.ENDED)
        assert site.count_starts(spec) == 1
    finally:
        site.close()


def test_a_controller_that_is_just_coming_back_refuses_nothing(lab: SlurmLab, tmp_path: Path) -> None:
    name = own("early")
    site = Site(lab, tmp_path, transport="rest")
    try:
        site.engine.nodes()
        lab.kill_controller()
        lab.start_controller()
        spec = site.build(name, SHORT)
        until(lambda: _submits(site, spec), "the submit")  # a refusal would be raised
        site.until(name, Presence.ENDED)
        assert site.count_starts(spec) == 1
    finally:
        site.close()


def test_a_job_that_somebody_requeues_is_gone_and_runs_no_second_time(site: Site) -> None:
    name = own("pushed")
    spec = site.submit(name, node="gpu002")
    site.until_running(name)
    number = site.lab.command("squeue", "-h", "-o", "%A", "-n", name).strip()
    site.lab.command("scontrol", "update", f"jobid={number}", "requeue=1")
    site.lab.kill_node("gpu002")
    site.lab.set_node("gpu002", "down", "dead")
    site.until(name, Presence.GONE)
    assert site.queue() == [name]
    site.clean(name)
    assert site.queue() == []
    site.lab.start_node("gpu002")
    assert site.count_starts(spec) == 1


def test_nodes_that_others_use_too_are_not_usable(lab: SlurmLab, tmp_path: Path) -> None:
    engine = SlurmEngine(tmp_path, lab_settings(lab, partitions=("ib",)))
    assert [(node.node_id, node.up) for node in engine.nodes()] == [("gpu001", False)]
    assert "partition all uses this node too" in engine.nodes()[0].message
    engine.close()


@pytest.mark.parametrize("transport", ["commands", "rest"])
def test_what_slurm_refuses_is_an_answer(lab: SlurmLab, transport: str) -> None:
    slurm = connect(lab_settings(lab, transport=transport))
    path = (("PATH", "/usr/bin:/bin"),)
    request = build_request(name="impossible", gres="gpu:rtx4090:9", pins_by_feature=True, environment=path)
    try:
        with pytest.raises(SlurmRefused, match="not available"):
            slurm.submit(request)
        assert all(job.over for job in slurm.find("impossible"))
    finally:
        slurm.close()


def test_what_cannot_fit_is_not_even_submitted(site: Site) -> None:
    name = own("too-many")
    with pytest.raises(SlurmRefused, match="9 are asked"):
        site.submit(name, cards=all_cards("gpu001", 9))
    assert site.queue() == []
    assert site.see(name).presence is Presence.UNKNOWN


def all_cards(node: str, count: int = 8) -> tuple[GrantedCard, ...]:
    return tuple(
        GrantedCard(f"{node}-{index}", index, f"{node}-{index}", "rtx4090", declared=True)
        for index in range(count)
    )


def _submits(site: Site, spec: LaunchSpec) -> bool:
    try:
        site.engine.submit(spec)
    except EngineUnavailable:
        return False
    return True
