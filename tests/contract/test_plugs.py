"""Disks plugged into running sandboxes and out again, as a root platform and without root."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.domain.workloads.launch import LaunchSpec, Plug
from starverse.testing.launcher_platforms import (
    OBEYING,
    PLATFORM_KINDS,
    NotHere,
    Platform,
    ask,
    open_platform,
    wait_for,
)


@pytest.fixture(params=PLATFORM_KINDS)
def platform(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Platform]:
    try:
        with open_platform(request.param, tmp_path) as opened:
            yield opened
    except NotHere as reason:
        pytest.skip(str(reason))


def make_folder(platform: Platform, name: str) -> Path:
    """A shared disk's folder, with a file in it that says its name."""
    folder = platform.data / "disks" / name / "data"
    folder.mkdir(parents=True)
    (folder / "name").write_text(name)
    for path in (folder, folder / "name"):
        os.chown(path, platform.workload_uid, platform.workload_uid)
    return folder


def plug(folder: Path, target: str, plug_id: str = "p1", **more: bool) -> Plug:
    return Plug(plug_id, target, "shared", str(folder), **more)


def states(platform: Platform, spec: LaunchSpec) -> dict[str, str]:
    return {entry.id: entry.state for entry in platform.state(spec).plugged}


def message(platform: Platform, spec: LaunchSpec, plug_id: str = "p1") -> str:
    return next(entry.message for entry in platform.state(spec).plugged if entry.id == plug_id)


def wait_plug(
    platform: Platform, spec: LaunchSpec, state: str, plug_id: str = "p1", seconds: float = 20
) -> None:
    wait_for(
        lambda: states(platform, spec).get(plug_id) == state,
        what=f"{plug_id} is not {state}",
    )


@pytest.fixture
def running(platform: Platform) -> LaunchSpec:
    spec = platform.build("plugs", script=OBEYING)
    platform.begin(spec)
    platform.wait(spec, "running")
    return spec


def test_a_folder_comes_into_a_running_sandbox_and_goes(platform: Platform, running: LaunchSpec) -> None:
    folder = make_folder(platform, "home")
    assert ask(running, "ls /data") == "exit 0"
    platform.want(running, plugs=(plug(folder, "/data/home"),))
    wait_plug(platform, running, "attached")
    assert ask(running, "cat /data/home/name; echo more > /data/home/made") == "homeexit 0"
    assert (folder / "made").read_text() == "more\n"
    assert (folder / "made").stat().st_uid == platform.workload_uid
    platform.want(running, plugs=())
    wait_plug(platform, running, "detached")
    assert ask(running, "ls /data") == "exit 0"
    assert (folder / "made").exists()


READ_ONLY_TRIES = """
cd /
touch /data/home/made
echo x > /data/home/name
rm -f /data/home/name
mount -o remount,rw /data/home
mount -o remount,bind,rw /data/home
unshare -Ur mount -o remount,bind,rw /data/home
mkdir /data/other
touch /data/made
mv /data/home /data/moved
umount /data/home
cat /data/home/name
"""


def test_read_only_is_read_only(platform: Platform, running: LaunchSpec) -> None:
    folder = make_folder(platform, "home")
    platform.want(running, plugs=(plug(folder, "/data/home", read_only=True),))
    wait_plug(platform, running, "attached")
    said = ask(running, READ_ONLY_TRIES)
    assert said.count("Read-only file system") >= 5, said
    assert said.endswith("homeexit 0")
    assert sorted(path.name for path in folder.iterdir()) == ["name"]
    assert (folder / "name").read_text() == "home"
