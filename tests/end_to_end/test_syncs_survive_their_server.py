"""Syncs as people type them, on a real server that is killed in the middle; secrets of batch jobs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starverse.testing.in_time import wait_for
from starverse.testing.live_person import Person
from starverse.testing.live_server import Ground, LiveServer
from starverse.testing.rclone_remotes import ServedRemote

pytestmark = [
    pytest.mark.skipif(shutil.which("rclone") is None, reason="apt-get install rclone"),
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="apt-get install bubblewrap"),
]
KIB = 1024
PARTS = 12
READS_ITS_SECRET = """#!/bin/bash
#SBATCH --gres=gpu:rtx4090:1
#SBATCH --secret=hf-token
cat /run/starverse/secrets/hf-token
echo
ls /run/starverse/secrets
env | grep -c "$(cat /run/starverse/secrets/hf-token)"
true
"""


@pytest.fixture(scope="module", params=["root", "ordinary"])
def server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    settings = {"policy.sync_network": "host"}
    if request.param == "ordinary":
        uid, python = request.getfixturevalue("python_of_an_ordinary_user")
        ground = Ground(uid=uid, python=python, settings=settings)
    else:
        ground = Ground(settings=settings)
    with LiveServer(ground) as running:
        yield running


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[ServedRemote]:
    with ServedRemote("sftp", tmp_path / "remote") as served:
        yield served


def shown(person: Person, sync_id: str) -> dict[str, Any]:
    return dict(person.ask("disk", "sync", "show", "home", sync_id))


def test_a_sync_whose_server_is_killed_goes_on_with_the_next_one(
    server: LiveServer, remote: ServedRemote
) -> None:
    made = {f"部分 {number}": os.urandom(100 * KIB) for number in range(PARTS)}
    for name, content in made.items():
        (remote.root / name).write_bytes(content)
    ann = server.person("ann")
    ann.run("secret", "set", "storage", stdin=remote.config)
    ann.run("disk", "create", "home", "--size", "1GiB", "--yes")
    words = ("disk", "sync", "start", "home", "pull", "lab:", "--secret", "storage", "--verify")
    sync_id = ann.run(*words, "--bandwidth", "200KB").strip()
    wait_for(lambda: shown(ann, sync_id)["files_done"] >= 1, "the first file")
    server.restart()
    wait_for(lambda: shown(ann, sync_id)["state"] == "succeeded", "the end of the sync", 90)
    (disk,) = (server.data / "disks").iterdir()
    assert {path.name: path.read_bytes() for path in (disk / "data").iterdir()} == made
    assert sorted(path.name for path in disk.iterdir()) == ["data"]
    done = ann.call(
        "disk", "sync", "start", "home", "pull", ":local:/etc", "--folder", "etc", "--secret", "storage"
    )
    assert (done.returncode, "local is none" in done.stderr) == (2, True)
    assert remote.secret not in server.read_log() + ann.run("disk", "sync", "ls", "home")


def test_a_job_reads_the_secret_that_it_names_and_nobody_else_does(server: LiveServer) -> None:
    bob = server.person("bob")
    bob.run("secret", "set", "hf-token", stdin="s3cret-value")
    bob.run("secret", "set", "other", stdin="not-asked-for")
    number = bob.sbatch(READS_ITS_SECRET)
    assert bob.wait_end(number)["state"] == "succeeded"
    lines = bob.log(number).splitlines()
    assert lines == ["s3cret-value", "hf-token", "0"], "a file of its own, in no environment"
    assert "s3cret-value" not in server.read_log() + bob.run("job", "show", number)
    place = server.data
    held = [path for path in place.rglob("*") if path.is_file() and b"s3cret-value" in path.read_bytes()]
    assert {path.parts[len(place.parts)] for path in held} <= {"logs", "workspaces"}, "only what it printed"
