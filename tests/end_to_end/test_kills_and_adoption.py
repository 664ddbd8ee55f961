"""``kill -9`` of the server, a launcher, a script, or all of them, at several moments of a job's life.

Workloads go on and are adopted, or stop and go on later; nothing runs that nobody owns, nothing is charged
twice or missed beyond the last heartbeat, cards come free, and every line that was printed is in the log.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field

import pytest

from starverse.testing.in_time import wait_for
from starverse.testing.live_checks import (
    COUNTER,
    check_at_rest,
    check_charges,
    check_counted,
    instant,
    let_finish,
)
from starverse.testing.live_person import Person
from starverse.testing.live_server import LiveServer

VICTIMS = ("nobody", "launcher", "script", "launcher and script")


@dataclass(slots=True)
class Case:
    """A job, its first allocation, and whose processes of it are killed."""

    victim: str
    number: str
    allocation: str
    launcher: int
    killed_at: float = 0.0
    last_heartbeat: float = field(default=0.0)


def submit_cases(person: Person, server: LiveServer, *options: str) -> list[Case]:
    """One counting job for each victim, all of them running."""
    numbers = [person.sbatch(COUNTER, *options) for _ in VICTIMS]
    cases = []
    for victim, number in zip(VICTIMS, numbers, strict=True):
        person.wait_log(number, "0:10\n")
        allocation = str(person.runs(number)[0]["id"])
        launcher = server.launcher(allocation)
        assert launcher is not None
        cases.append(Case(victim, number, allocation, launcher))
    return cases


def kill_victims(server: LiveServer, cases: list[Case]) -> None:
    """SIGKILL, all in one go."""
    for case in cases:
        script = server.script(case.allocation)
        if "launcher" in case.victim:
            os.kill(case.launcher, signal.SIGKILL)
        if "script" in case.victim and script is not None:
            with contextlib.suppress(ProcessLookupError):  # it may have died with its launcher
                os.kill(script, signal.SIGKILL)
        case.killed_at = time.time()
        state = server.allocation(case.allocation).read_state()
        case.last_heartbeat = state.alive_at if state is not None else 0.0


@pytest.mark.parametrize("server_too", [False, True], ids=["server alive", "server killed first"])
def test_kills_while_running(server: LiveServer, server_too: bool) -> None:
    who = server.person(f"running-{server_too}".lower(), yuan=20)
    cases = submit_cases(who, server, "--gres=gpu:rtx4090:2")
    followers = {case.number: who.follow(case.number) for case in cases}
    try:
        for follower in followers.values():
            follower.wait_text("0:10\n")
        if server_too:
            server.kill()
        kill_victims(server, cases)
        if server_too:
            server.start()
        for case in cases:
            check_case(who, server, case)
        printed = {number: follower.finish() for number, follower in followers.items()}
    finally:
        for follower in followers.values():
            follower.stop()
    for case in cases:
        assert printed[case.number] == check_counted(who, case.number)
    check_at_rest(server)


def check_case(who: Person, server: LiveServer, case: Case) -> None:
    """What became of one job, to its end."""
    if case.victim == "nobody":
        assert server.launcher(case.allocation) == case.launcher, "it was not left alone"
        assert who.job(case.number)["state"] == "running"
        let_finish(who, case.number)
        assert who.wait_end(case.number)["state"] == "succeeded"
        assert [run["cause"] for run in check_charges(who, case.number)] == ["completed"]
    elif case.victim == "script":
        assert who.wait_end(case.number)["exit_signal"] == signal.SIGKILL
        (run,) = check_charges(who, case.number)
        assert (run["cause"], run["exit_signal"]) == ("user_code", signal.SIGKILL)
    else:
        wait_for(lambda: len(who.runs(case.number)) == 2, f"a second run of {case.number}")
        who.wait_log(case.number, "1:5\n")
        let_finish(who, case.number)
        assert who.wait_end(case.number)["state"] == "succeeded"
        first, second = check_charges(who, case.number)
        assert (first["state"], first["cause"]) == ("lost", "node_lost")
        assert (second["cause"], second["exit_code"]) == ("completed", 0)
        assert abs(instant(first["ended_at"]) - case.last_heartbeat) < 0.01
        assert case.killed_at - instant(first["ended_at"]) < 2.5


@pytest.mark.parametrize("server_too", [False, True], ids=["server alive", "server killed first"])
def test_kills_under_notice(server: LiveServer, server_too: bool) -> None:
    who = server.person(f"spot-{server_too}".lower(), yuan=20)
    rival = server.person(f"rival-{server_too}".lower(), yuan=50)
    cases = submit_cases(who, server, "--gres=gpu:rtx4090:2", "--tariff=spot")
    claimant = rival.sbatch(COUNTER, "--gres=gpu:rtx4090:8")
    for case in cases:
        who.wait_log(case.number, "starverse: notice: reclaim")
    if server_too:
        server.kill()
    kill_victims(server, cases)
    if server_too:
        server.start()
    rival.wait_log(claimant, "0:5\n")
    for case in cases:
        assert who.job(case.number)["state"] == "queued"
    let_finish(rival, claimant)
    for case in cases:
        who.wait_log(case.number, "1:5\n")
        let_finish(who, case.number)
    for case in cases:
        assert who.wait_end(case.number)["state"] == "succeeded"
        first, second = check_charges(who, case.number)
        assert first["cause"] == ("node_lost" if "launcher" in case.victim else "reclaimed")
        assert second["cause"] == "completed"
        check_counted(who, case.number)
    assert rival.wait_end(claimant)["state"] == "succeeded"
    check_charges(rival, claimant)
    check_counted(rival, claimant)
    check_at_rest(server)


def test_a_server_killed_right_after_a_submit_forgets_nothing(server: LiveServer) -> None:
    who = server.person("forgotten", yuan=20)
    number = who.sbatch(COUNTER, "--gres=gpu:rtx4090:1")
    server.restart()
    who.wait_log(number, "0:3\n")
    let_finish(who, number)
    assert who.wait_end(number)["state"] == "succeeded"
    assert len(check_charges(who, number)) == 1
    check_counted(who, number)
    check_at_rest(server)


@pytest.mark.parametrize("launcher_too", [False, True], ids=["server", "server and launcher"])
def test_killed_before_the_claim_or_just_then(server: LiveServer, launcher_too: bool) -> None:
    """The moment at which the allocation's folder appears: no claim, or one that is not ready.

    On a busy machine the kill may come later, when the run is ready already: then that run is a lost one.
    """
    who = server.person(f"claim-{launcher_too}".lower(), yuan=20)
    place = who.server.make_folder(f"claim-{launcher_too}".lower())
    (place / "job.sh").write_text("#!/bin/bash\n" + COUNTER)
    before = set(server.allocations())
    typed = subprocess.Popen(
        who.argv("sbatch", "--gres=gpu:rtx4090:1", "job.sh"),
        cwd=place,
        env=who.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    give_up = time.monotonic() + 30
    while not (new := set(server.allocations()) - before):
        assert time.monotonic() < give_up, "no allocation was made"
    server.kill()
    (allocation,) = new
    if launcher_too and (pid := server.launcher(allocation)) is not None:
        os.kill(pid, signal.SIGKILL)
    typed.wait(30)
    server.start()
    (job,) = who.ask("job", "ls")["items"]
    number = job["number"]
    wait_for(lambda: any(run["state"] == "running" for run in who.runs(number)), "a run", 40)
    let_finish(who, number)
    assert who.wait_end(number)["state"] == "succeeded"
    runs = check_charges(who, number)
    *killed, last = [run["cause"] for run in runs if run["ready_at"]]
    assert last == "completed"
    assert killed == ["node_lost"] * (len(killed) if launcher_too else 0)
    assert len(runs) <= 2
    check_at_rest(server)
