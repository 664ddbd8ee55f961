"""Backups of a live platform, killed and not, and a disaster: all is lost but the newest backup."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from starverse.app.maintenance.content import open_backup
from starverse.testing.in_time import wait_for
from starverse.testing.live_checks import (
    COUNTER,
    check_at_rest,
    check_charges,
    check_counted,
    let_finish,
)
from starverse.testing.live_database import IN_THE_DATA_FOLDER
from starverse.testing.live_person import PASSWORD, Person
from starverse.testing.live_server import Ground, LiveServer
from starverse.testing.platforms import POSTGRES_VARIABLE, empty_database

KILLS = 3
SEED = 20261130
ONE = "--gres=gpu:rtx4090:1"
SAVING = """#SBATCH --checkpoint=state
mkdir -p state; i=$(cat state/count 2>/dev/null || echo 0); echo "from $i"
while [ ! -e finish ]; do i=$((i+1)); echo $i > state/new; mv state/new state/count; sleep 0.1; done
"""


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def grounds(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Ground, Ground]]:
    """What the platform runs on, and what it is restored onto."""
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    ground = replace(Ground(), settings={**Ground().settings, "policy.checkpoint_interval_seconds": "1"})
    if request.param == "sqlite":
        ground = replace(ground, settings={**ground.settings, **IN_THE_DATA_FOLDER})
        yield ground, ground
        return
    if not os.environ.get(POSTGRES_VARIABLE):
        pytest.skip(f"{POSTGRES_VARIABLE} names no PostgreSQL server")
    with ExitStack() as stack:
        urls = [stack.enter_context(empty_database("postgresql", tmp_path)).url for _ in range(2)]
        first, second = (replace(ground, settings={**ground.settings, "server.db": url}) for url in urls)
        yield first, second


def maintain(server: LiveServer, *words: str) -> subprocess.Popen[str]:
    """An operator's command on this server's data folder and database."""
    environment = server.environment() | {"STARVERSE_SERVER__DATA": str(server.data)}
    return subprocess.Popen(
        [server.ground.python, "-m", "starverse.cli.remote.entry", "admin", *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> dict[str, object]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err + out
    return dict(json.loads(out))


def kill_some_backups(server: LiveServer, place: Path) -> None:
    """SIGKILL at moments from a seed: none of them gets its name, or it is whole."""
    moments = random.Random(SEED)
    for turn in range(KILLS):
        backup = maintain(server, "backup", str(place / f"killed-{turn}"), "--with", "all")
        try:
            backup.communicate(timeout=moments.uniform(0.2, 3))
        except subprocess.TimeoutExpired:
            backup.kill()
            backup.communicate()
        if (place / f"killed-{turn}").exists():
            open_backup(place / f"killed-{turn}")


def test_all_is_lost_but_the_newest_backup(grounds: tuple[Ground, Ground], tmp_path: Path) -> None:
    with LiveServer(grounds[0]) as server:
        ann = server.person("ann", yuan=50)
        done = ann.sbatch("echo done\n", ONE)
        ann.wait_end(done)
        paid = ann.client.money.bill(job=done)["total_micro"]
        counting, saving = ann.sbatch(COUNTER, ONE), ann.sbatch(SAVING, ONE)
        waiting = ann.sbatch("echo later\n", ONE, f"--dependency=afterok:{counting}")
        ann.wait_log(counting, "0:10\n")
        wait_for(lambda: list(server.data.glob("checkpoints/*/step-*/manifest.json")), "a checkpoint")
        kill_some_backups(server, tmp_path)
        under_way = maintain(server, "backup", str(tmp_path / "while-killed"), "--with", "all", "--json")
        server.restart()
        assert finish(under_way)["ledger"] == []
        told = finish(maintain(server, "backup", str(tmp_path / "newest"), "--with", "all", "--json"))
        assert (told["ledger"], told["leaves_out"]) == ([], [])
        ann.wait_log(counting, "0:60\n")
        check_that_it_refuses(server, tmp_path / "newest")
        for number in (counting, saving):
            let_finish(ann, number)
            ann.wait_end(number)
        ann.wait_end(waiting)
        check_counted(ann, counting)
        check_at_rest(server)
    start_anew(grounds[1], tmp_path / "newest", (done, counting, saving, waiting), paid)


def check_that_it_refuses(server: LiveServer, backup: Path) -> None:
    """Nothing is restored, migrated or moved under a server."""
    target = f"sqlite:///{server.root / 'target.db'}"
    for words in (("restore", str(backup), "--replace"), ("move", "--to", target)):
        process = maintain(server, *words)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 5, err
        assert "server is running" in err
    assert not (server.root / "target.db").exists()


def start_anew(ground: Ground, backup: Path, numbers: tuple[str, ...], paid: int) -> None:
    """A new machine: the backup, a server, and people who sign in as before."""
    done, counting, saving, waiting = numbers
    server = LiveServer(ground)
    told = finish(maintain(server, "restore", str(backup), "--json"))
    assert (told["restored"], told["kept"], told["ledger"]) == (True, None, [])
    with server:
        ann = Person(server, "ann")
        ann.run("login", "ann@example.org", stdin=f"{PASSWORD}\n")
        assert ann.client.money.bill(job=done)["total_micro"] == paid
        assert ann.log(done) == "done\n"
        ann.wait_log(counting, "1:5\n", seconds=60)
        assert ann.job(waiting)["state"] == "queued"
        wait_for(lambda: len(starts(ann, saving)) == 2, f"the resumed run in\n{ann.log(saving)}")
        first, second = starts(ann, saving)
        assert (first, second > 0) == (0, True), "it went on from its checkpoint"
        for number in (counting, saving):
            let_finish(ann, number)
            assert ann.wait_end(number)["state"] == "succeeded"
            assert [run["state"] for run in check_charges(ann, number)] == ["lost", "ended"]
        check_counted(ann, counting)
        assert ann.wait_end(waiting)["state"] == "succeeded"
        check_at_rest(server)
        ann.close()


def starts(person: Person, number: str) -> list[int]:
    """Where each run of the saving job began to count."""
    return [int(count) for count in re.findall(r"^from (\d+)$", person.log(number), re.MULTILINE)]
