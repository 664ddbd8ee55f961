"""The essentials under both sandbox drivers, with the platform started as root and as an ordinary user."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace

import pytest

from starverse.testing.in_time import wait_for
from starverse.testing.live_checks import (
    COUNTER,
    check_at_rest,
    check_charges,
    check_counted,
    let_finish,
)
from starverse.testing.live_server import Ground, LiveServer

WHO = "whoever runs the tests"


@pytest.fixture(
    scope="module",
    params=[("bwrap", "an ordinary user"), ("process", "an ordinary user"), ("process", WHO)],
    ids=lambda param: f"{param[0]} as {param[1]}",
)
def other_server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    """The combinations that the other modules do not run on."""
    driver, who = request.param
    ground = Ground(driver=driver)
    if who != WHO:
        uid, python = request.getfixturevalue("python_of_an_ordinary_user")
        ground = replace(ground, uid=uid, python=python)
    if driver == "bwrap" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    with LiveServer(ground) as running:
        yield running


def test_a_job_runs_prints_and_is_charged(other_server: LiveServer) -> None:
    who = other_server.person("first")
    script = 'echo "$CUDA_VISIBLE_DEVICES on $SLURM_JOB_NODELIST as $(id -u)"; echo kept > result; exit 3\n'
    number = who.sbatch(script, "--gres=gpu:rtx4090:2")
    assert who.wait_end(number)["exit_code"] == 3
    inside_uid = {"bwrap": 1000, "process": other_server.ground.uid or os.geteuid() or 200_001}
    (line,) = who.log(number).splitlines()
    cards, uid = line.split(" on declared-1 as ")
    assert len(cards.split(",")) == 2
    assert int(uid) != 0
    assert int(uid) in (inside_uid[other_server.ground.driver], *range(200_001, 200_100))
    folder = other_server.make_folder("fetched")
    who.run("cp", f"{number}:result", ".", folder=folder)
    assert (folder / "result").read_text() == "kept\n"
    check_charges(who, number)


def test_kills_adoption_and_following(other_server: LiveServer) -> None:
    """The server dies under three jobs; a launcher and a script with it."""
    who = other_server.person("second", yuan=20)
    numbers = [who.sbatch(COUNTER, "--gres=gpu:rtx4090:1") for _ in range(3)]
    for number in numbers:
        who.wait_log(number, "0:5\n")
    alone, orphaned, shot = numbers
    first = {number: str(who.runs(number)[0]["id"]) for number in numbers}
    follower = who.follow(alone)
    try:
        follower.wait_text("0:5\n")
        other_server.kill()
        launcher, script = other_server.launcher(first[orphaned]), other_server.script(first[shot])
        assert launcher is not None
        assert script is not None
        os.kill(launcher, signal.SIGKILL)
        os.kill(script, signal.SIGKILL)
        other_server.start()
        assert len(who.runs(alone)) == 1
        let_finish(who, alone)
        assert who.wait_end(alone)["state"] == "succeeded"
        assert follower.finish() == check_counted(who, alone)
    finally:
        follower.stop()
    assert who.wait_end(shot)["exit_signal"] == signal.SIGKILL
    wait_for(lambda: len(who.runs(orphaned)) == 2, "a second run")
    who.wait_log(orphaned, "1:5\n")
    let_finish(who, orphaned)
    assert who.wait_end(orphaned)["state"] == "succeeded"
    for number in numbers:
        check_charges(who, number)
        check_counted(who, number)
    check_at_rest(other_server)


def test_notice_requeue_and_cancel(other_server: LiveServer) -> None:
    who, rival = other_server.person("third"), other_server.person("fourth", yuan=50)
    script = "trap 'echo saved; exit 99' USR1; while :; do sleep 0.1; done\n"
    number = who.sbatch(script, "--gres=gpu:rtx4090:1", "--tariff=spot", "--time=00:10:00")
    who.wait_state(number, "running")
    claimant = rival.sbatch("echo mine\n", "--gres=gpu:rtx4090:8", "--time=00:05:00")
    assert rival.wait_end(claimant, 40)["state"] == "succeeded"
    who.wait_state(number, "running")
    assert len(who.runs(number)) == 2
    who.run("scancel", number)
    assert who.wait_end(number)["state"] == "cancelled"
    first, second = check_charges(who, number)
    assert (first["cause"], first["exit_code"]) == ("reclaimed", 99)
    assert second["cause"] == "cancelled"
    assert "saved" in who.log(number)
    check_at_rest(other_server)
