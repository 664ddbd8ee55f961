"""A server that is away while money ends, a second one, a clock that jumps back, a disk that is full."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

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
from starverse.testing.live_database import IN_THE_DATA_FOLDER
from starverse.testing.live_server import QUICK, Ground, LiveServer

MIB = 1024**2

SAVING = """#SBATCH --time=00:10:00
#SBATCH --checkpoint=state
mkdir -p state; i=$(cat state/count 2>/dev/null || echo 0)
while :; do i=$((i+1)); echo $i > state/count.new; mv state/count.new state/count; sleep 0.3; done
"""


def test_money_that_ends_while_the_server_is_away(server: LiveServer) -> None:
    """The launcher alone notices, saves and stops; the bill ends at the stop, within the limit."""
    who = server.person("away")
    cost_max = "0.0014"  # 10 s of one card at CNY 0.498 an hour
    number = who.sbatch(SAVING, "--gres=gpu:rtx4090:1", "--tariff=spot", f"--cost-max={cost_max}")
    (run,) = wait_for(lambda: [run for run in who.runs(number) if run["state"] == "running"], "its start")
    server.kill()
    launched = server.allocation(run["id"])
    report = wait_for(lambda: launched.has("report.json") and launched.read_state(), "the stop", 40)
    assert (report.stopped_by, report.notice_reason) == ("unfunded", "funds")
    assert report.ended_at <= report.funded_until + 1
    server.start()
    job = who.wait_end(number)
    assert (job["state"], job["reason"]) == ("failed", "cost_max")
    (ended,) = check_charges(who, number)
    assert abs(instant(ended["ended_at"]) - report.ended_at) < 0.01
    assert ended["charged_micro"] <= 1400
    assert wait_for(lambda: who.job(number)["checkpoint"], "its checkpoint")
    assert "starverse: notice: funds" in who.log(number)
    check_at_rest(server)


def test_a_second_server_on_the_same_folder_is_refused(server: LiveServer) -> None:
    if server.ground.settings.get("server.db"):
        pytest.skip("on a PostgreSQL several servers share one folder")
    second = server.spawn("--port", "0")
    assert second.wait(30) == 5
    assert f"another starverse server is running on {server.data}" in server.read_log()
    assert server.person("undisturbed").ask("whoami")["account"]["email"] == "undisturbed@example.org"


def test_a_clock_that_jumps_back(tmp_path: Path) -> None:
    """An hour back while a job runs: it is charged once, for no time that was not, and all goes on."""
    file = tmp_path / "seconds"
    file.write_text("0")
    with LiveServer(Ground(program=("-m", "starverse.testing.shifted_server", str(file)))) as server:
        who = server.person("early", yuan=10)
        number = who.sbatch(COUNTER, "--gres=gpu:rtx4090:1")
        who.wait_log(number, "0:10\n")
        file.write_text("-3600")
        later = who.sbatch(COUNTER, "--gres=gpu:rtx4090:1")
        who.wait_log(later, "0:10\n")
        for each in (number, later):
            let_finish(who, each)
            assert who.wait_end(each)["state"] == "succeeded"
            check_counted(who, each)
            (run,) = who.runs(each)
            seconds = instant(run["ended_at"]) - instant(run["ready_at"])
            assert 0 <= seconds < 60
            charges = who.client.money.bill(job=each)["charges"]
            assert sum(charge["total_micro"] for charge in charges) == run["charged_micro"]
            assert 0 < run["charged_micro"] < 60 * 1_660_000 / 3600
        check_at_rest(server)
        file.write_text("0")
        server.restart()
        check_at_rest(server)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 MiB; skips where none can be mounted."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    place = Path("/tmp") / f"starverse-small-{os.getpid()}"
    place.mkdir()
    try:
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256m", "starverse-test", str(place)],
            capture_output=True,
            text=True,
            check=False,
        )
        if mounted.returncode != 0:
            pytest.skip(f"no tmpfs can be mounted: {mounted.stderr.strip()}")
        try:
            yield place
        finally:
            subprocess.run(["umount", str(place)], check=True)
    finally:
        place.rmdir()


def test_a_full_disk(small_disk: Path) -> None:
    """Below the reserve nothing starts; at no byte left all survives; freed, it goes on."""
    ballast = small_disk / "ballast"
    settings = {**QUICK, **IN_THE_DATA_FOLDER, "policy.disk_reserve_mib": "100"}
    with LiveServer(Ground(settings=settings), data=small_disk / "data") as server:
        who = server.person("crowded", yuan=10)
        running, short = (who.sbatch(COUNTER, "--gres=gpu:rtx4090:1") for _ in range(2))
        waiting = who.sbatch(COUNTER, "--gres=gpu:rtx4090:1", f"--dependency=afterany:{short}")
        for number in (running, short):
            who.wait_log(number, "0:10\n")
        _fill(ballast, leave=60 * MIB)
        refused = who.call("sbatch", "--gres=gpu:rtx4090:1", "job.sh", folder=_new_folder(server))
        assert refused.returncode == 1
        assert "disk is nearly full" in refused.stderr
        who.run("scancel", short)
        who.wait_end(short)
        wait_for(lambda: who.ask("job", "why", waiting)["reason"] == "disk_reserve", "the reason of waiting")
        _fill(ballast, leave=0)
        wait_for(lambda: "disk is full" in server.read_log(), "a write that the disk has no room for")
        assert who.job(running)["state"] == "running"
        before = who.log(running)
        ballast.unlink()
        wait_for(lambda: len(who.log(running)) > len(before), "the running job to print again")
        who.wait_log(waiting, "0:10\n")
        for number in (running, waiting):
            let_finish(who, number)
            assert who.wait_end(number)["state"] == "succeeded"
        for number in (running, short, waiting):
            assert len(check_charges(who, number)) == 1
        check_counted(who, waiting)
        wait_for(lambda: _is_well(server), "all reconcilers to be well again", 40)
        check_at_rest(server)


def _is_well(server: LiveServer) -> bool:
    return all(loop["state"] == "ok" for loop in server.operator.client.admin.status()["reconcilers"])


def _new_folder(server: LiveServer) -> Path:
    folder = server.make_folder("another")
    (folder / "job.sh").write_text("#!/bin/bash\necho new\n")
    return folder


def _fill(file: Path, leave: int) -> None:
    """Take the disk's free bytes but for ``leave``."""
    with file.open("ab") as ballast:
        while True:
            free = os.statvfs(file.parent)
            more = free.f_bavail * free.f_frsize - leave
            if more <= 0:
                return
            try:
                ballast.write(b"x" * min(more, MIB))
                ballast.flush()
            except OSError:
                return
