"""Disks plugged into running sandboxes and out again, as a root platform and without root."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from starverse.domain.workloads.launch import Desired, LaunchSpec, Plug
from starverse.engines.folders.leftovers import LastCopies
from starverse.engines.local import LocalEngine
from starverse.engines.local.cleaning import clean_up
from starverse.node import processes
from starverse.node.cards.declared import DeclaredCards
from starverse.node.folder import AllocationFolder
from starverse.node.plugs import block_disks
from starverse.node.plugs.keeper import DETACH_SECONDS
from starverse.testing.launcher_platforms import (
    OBEYING,
    PLATFORM_KINDS,
    TEAM_UID,
    WITH_DEVICES,
    NotHere,
    Platform,
    ask,
    open_platform,
    wait_for,
)
from starverse.testing.launches import build_launch, own


@pytest.fixture(params=PLATFORM_KINDS)
def platform(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Platform]:
    try:
        with open_platform(request.param, tmp_path, WITH_DEVICES) as opened:
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


def wait_plug(platform: Platform, spec: LaunchSpec, state: str, plug_id: str = "p1") -> None:
    give_up = time.monotonic() + 20
    while states(platform, spec).get(plug_id) != state:
        assert time.monotonic() < give_up, platform.state(spec)
        time.sleep(0.01)


@pytest.fixture
def running(platform: Platform) -> LaunchSpec:
    spec = platform.build(own("plugs"), script=OBEYING)
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


def make_block(platform: Platform, name: str, mib: int = 64) -> Path:
    """A block disk's file, as the platform makes it."""
    file = platform.data / "disks" / name / "block.img"
    file.parent.mkdir(parents=True)
    owner = platform.workload_uid if platform.is_root else 0
    options = f"root_owner={owner}:{owner},lazy_itable_init=1,lazy_journal_init=1"
    with file.open("wb") as made:
        made.truncate(mib * 1024**2)
    subprocess.run(["/usr/sbin/mkfs.ext4", "-qF", "-m", "0", "-E", options, file], check=True)
    file.chmod(0o600)
    os.chown(file, platform.workload_uid, platform.workload_uid)
    return file


def block(file: Path, target: str = "/data/block", plug_id: str = "b1", **more: bool) -> Plug:
    return Plug(plug_id, target, "block", str(file), **more)


@pytest.fixture
def needs_block_disks(platform: Platform) -> None:
    if why := why_no_block_disks(platform.is_root):
        pytest.skip(why)


def why_no_block_disks(as_root: bool) -> str:
    if as_root:
        return block_disks.loop_refusal()
    return "" if shutil.which("fuse2fs") else "fuse2fs is not installed: apt-get install fuse2fs"


def loops(file: Path) -> list[str]:
    return [
        text
        for found in Path("/sys/block").glob("loop*/loop/backing_file")
        if (text := found.read_text().strip()).startswith(str(file))
    ]


def is_free(file: Path) -> bool:
    with file.open("rb+") as opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


@pytest.mark.usefixtures("needs_block_disks")
def test_a_block_disk_comes_and_goes_with_what_was_written(platform: Platform, running: LaunchSpec) -> None:
    file = make_block(platform, "block")
    platform.want(running, plugs=(block(file),))
    wait_plug(platform, running, "attached", "b1")
    assert not is_free(file)
    assert (
        ask(running, "echo kept > /data/block/file; mkdir /data/block/d; cat /data/block/file")
        == "kept\nexit 0"
    )
    assert "No space left" in ask(running, "head -c 100M /dev/zero > /data/block/d/full")
    platform.want(running, plugs=())
    wait_plug(platform, running, "detached", "b1")
    assert is_free(file)
    assert not loops(file)
    assert subprocess.run(["/usr/sbin/e2fsck", "-nf", file], capture_output=True, check=False).returncode == 0
    platform.want(running, plugs=(block(file, "/data/other", "b2", read_only=True),))
    wait_plug(platform, running, "attached", "b2")
    assert (
        ask(running, "cat /data/other/file; touch /data/other/new; echo x > /data/other/file").count(
            "Read-only"
        )
        == 2
    )


def test_what_a_launch_names_is_there_before_its_script(platform: Platform) -> None:
    folder = make_folder(platform, "home")
    plugs = [plug(folder, "/data/a/b")]
    if not why_no_block_disks(platform.is_root):
        plugs.append(block(make_block(platform, "block")))
    script = f"cat /data/a/b/name && mountpoint {plugs[-1].target} && touch {plugs[-1].target}/new"
    spec = platform.build(own("first"), script=script, plugs=tuple(plugs))
    platform.begin(spec)
    platform.wait(spec, "ended")
    assert platform.state(spec).exit_code == 0, Path(spec.logs, "1.out").read_text()
    assert set(states(platform, spec).values()) == {"detached"}  # it is over


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("home", "/etc/home"),
        ("home", "/data"),
        ("home", "/data/../etc"),
        ("home", "/data//home"),
        ("home", "/data/" + "x" * 256),
        ("nothing", "/data/home"),
        ("link", "/data/home"),
        ("home/../home", "/data/home"),
    ],
)
def test_a_start_without_one_of_its_disks_fails_and_says_why(
    platform: Platform, name: str, target: str
) -> None:
    folder = make_folder(platform, "home")
    link = platform.data / "disks" / "link"
    link.mkdir()
    (link / "data").symlink_to("/etc")
    source = platform.data / "disks" / name / "data"
    spec = platform.build(
        own("first"), script="touch ran", plugs=(Plug("p1", target, "shared", str(source)),)
    )
    platform.begin(spec)
    platform.started[-1].wait(20)
    state = platform.state(spec)
    assert state.ready_at is None
    assert state.failure.startswith("disk at ")
    assert not Path(spec.workspace, "ran").exists()
    assert [entry.state for entry in state.plugged] == ["refused"]
    assert sorted(path.name for path in folder.iterdir()) == ["name"]


def test_names_of_any_kind_and_no_disk_within_another(platform: Platform, running: LaunchSpec) -> None:
    folder = make_folder(platform, "home")
    name = "\u6570\u636e " + "\u76d8" * 82  # 255 bytes
    assert len(name.encode()) <= 255
    wanted = [
        plug(folder, f"/data/{name}", "p1"),
        plug(folder, "/data/x", "p2"),
        plug(folder, "/data/x/y", "p3"),
    ]
    platform.want(running, plugs=tuple(wanted))
    for plug_id, state in (("p1", "attached"), ("p2", "attached"), ("p3", "refused")):
        wait_plug(platform, running, state, plug_id)
    assert "within each other" in message(platform, running, "p3")
    assert ask(running, f"cat '/data/{name}/name'") == "homeexit 0"
    platform.want(running, plugs=())
    for plug_id in ("p1", "p2"):
        wait_plug(platform, running, "detached", plug_id)
    assert ask(running, "ls -A /data") == "exit 0"


def test_a_disk_is_its_folder_whatever_lies_in_it(platform: Platform, running: LaunchSpec) -> None:
    """A link in it leads within the sandbox, and what is mounted on the host below it is not shown."""
    folder = make_folder(platform, "home")
    (folder / "out").symlink_to(platform.data)
    (folder / "up").symlink_to("../../..")
    platform.want(running, plugs=(plug(folder, "/data/home"),))
    wait_plug(platform, running, "attached")
    assert "No such file" in ask(running, "ls /data/home/out/")
    assert "allocations" not in ask(running, "ls -A /data/home/up/ /data/home/../..")


def test_what_is_held_inside_is_stuck_until_it_is_let_go(platform: Platform, running: LaunchSpec) -> None:
    folder = make_folder(platform, "home")
    platform.want(running, plugs=(plug(folder, "/data/home"),))
    wait_plug(platform, running, "attached")
    said = ask(running, "cd /data/home; exec 9>held; sleep 600 > /dev/null 2>&1 & echo $! > /workspace/pid")
    assert said == "exit 0"
    begun = time.monotonic()
    platform.want(running, plugs=())
    wait_plug(platform, running, "stuck")
    assert time.monotonic() - begun < DETACH_SECONDS + 4
    pid = Path(running.workspace, "pid").read_text().strip()
    assert f"sleep (process {pid} inside)" in message(platform, running)
    assert ask(running, "cat /data/home/name") == "homeexit 0"  # it is still there, and says so
    ask(running, f"kill {pid}")
    wait_plug(platform, running, "detached")
    assert ask(running, "ls -A /data") == "exit 0"


@pytest.mark.usefixtures("needs_block_disks")
def test_a_block_disk_has_one_writer(platform: Platform, running: LaunchSpec) -> None:
    file = make_block(platform, "block")
    platform.want(running, plugs=(block(file),))
    wait_plug(platform, running, "attached", "b1")
    other = platform.build(own("other"), script=OBEYING)
    platform.begin(other)
    platform.wait(other, "running")
    platform.want(other, plugs=(block(file, plug_id="b2"),))
    wait_plug(platform, other, "refused", "b2")
    assert "in use" in message(platform, other, "b2")
    assert len(loops(file)) == int(platform.is_root)
    assert ask(other, "ls -A /data") == "exit 0"
    assert ask(running, "echo still > /data/block/f; cat /data/block/f") == "still\nexit 0"
    platform.want(other, stop=True)
    platform.started[-1].wait(20)
    assert not is_free(file)
    assert states(platform, running) == {"b1": "attached"}
    platform.want(running, stop=True)
    platform.started[-2].wait(20)
    assert is_free(file)
    assert states(platform, running) == {"b1": "detached"}


@pytest.mark.usefixtures("needs_block_disks")
def test_a_broken_file_system_is_mended_or_refused(platform: Platform, running: LaunchSpec) -> None:
    file, broken = make_block(platform, "block"), make_block(platform, "broken")
    with broken.open("rb+") as opened:
        opened.write(b"x" * 8 * 1024**2)
    subprocess.run(
        ["/usr/sbin/debugfs", "-w", "-R", "set_super_value state 2", file], check=True, capture_output=True
    )
    platform.want(running, plugs=(block(broken, "/data/broken", "b1"), block(file, "/data/block", "b2")))
    wait_plug(platform, running, "refused", "b1")
    wait_plug(platform, running, "attached", "b2")
    assert "cannot be mended" in message(platform, running, "b1")
    assert is_free(broken)
    assert not loops(broken)


@pytest.mark.parametrize("kind", ["shared", "block"])
@pytest.mark.parametrize("after_milliseconds", [0, 8])
def test_a_launcher_killed_in_the_middle_leaves_nothing(
    platform: Platform, kind: str, after_milliseconds: int
) -> None:
    """In the middle of attaching and of detaching; then the disk comes into another sandbox at once."""
    if kind == "block" and (why := why_no_block_disks(platform.is_root)):
        pytest.skip(why)
    source = make_block(platform, "b") if kind == "block" else make_folder(platform, "b")
    wanted = Plug("p1", "/data/b", kind, str(source))
    for round_, detaching in enumerate((False, True)):
        spec = platform.build(own(f"killed-{round_}"), script=OBEYING)
        platform.begin(spec)
        platform.wait(spec, "running")
        platform.want(spec, plugs=(wanted,))
        if detaching:
            wait_plug(platform, spec, "attached")
            platform.want(spec, plugs=())
        wait_for(lambda: Path(f"/proc/{platform.started[-1].pid}/task").exists())
        threading.Event().wait(after_milliseconds / 1000)
        platform.started[-1].kill()
        platform.started[-1].wait()
        clean_up(AllocationFolder(spec.folder), lambda: None, LastCopies(patience_seconds=60))
        assert not processes.find_tagged(spec.allocation_id)
        assert not processes.find_tagged(spec.allocation_id, processes.DISK_TAG)
        if kind == "block":
            wait_for(lambda: is_free(source), 5, "the lock is kept")
            wait_for(lambda: not loops(source), 5, "a loop device is kept")
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    assert [line for line in mounts if str(platform.data) in line] == []
    spec = platform.build(own("next"), script="touch /data/b/new", plugs=(wanted,))
    platform.begin(spec)
    platform.wait(spec, "ended")
    assert platform.state(spec).exit_code == 0


def test_two_hundred_plugs_in_a_row_leave_nothing(tmp_path: Path) -> None:
    """Through an engine, by the channel; in turn read-only, and at seven places."""
    data, folder = tmp_path / "engine", tmp_path / "disk" / "data"
    folder.mkdir(parents=True)
    data.mkdir()
    uid = TEAM_UID if os.geteuid() == 0 else None
    engine = LocalEngine(data, DeclaredCards("rtx4090:2"))
    spec = build_launch(data, own("many"), script=OBEYING, unix_uid=uid)
    engine.start()

    def seen() -> dict[str, str]:
        state = engine.observe([spec.allocation_id])[spec.allocation_id].state
        return {} if state is None else {entry.id: entry.state for entry in state.plugged}

    try:
        engine.submit(spec)
        folder_of = AllocationFolder(spec.folder)
        wait_for(lambda: (state := folder_of.read_state()) is not None and state.ready_at is not None)
        facts = (folder_of / "claim.lock").stat()
        launcher = processes.find_lock_holder(facts.st_dev, facts.st_ino)
        assert launcher is not None
        before = launcher_holds(launcher)
        for number in range(200):
            name = f"p{number}"
            wanted = plug(folder, f"/data/d{number % 7}/x", name, read_only=number % 2 == 1)
            engine.steer(spec.allocation_id, Desired(plugs=(wanted,)))
            wait_for(lambda name=name: seen().get(name) == "attached", what=name)  # type: ignore[misc]
        engine.steer(spec.allocation_id, Desired(plugs=()))
        wait_for(lambda: seen().get("p199") == "detached")
        assert ask(spec, "ls -A /data; grep -c ' /data/' /proc/self/mountinfo") == "0\nexit 1"
        assert launcher_holds(launcher) == before
        assert len(seen()) <= 70
    finally:
        engine.clean(spec.allocation_id)
        engine.close()


def launcher_holds(pid: int) -> tuple[int, list[int]]:
    """How many descriptors, and which children but those that come and go inside."""
    children = [
        child
        for child in processes.find_descendants(pid)
        if Path(f"/proc/{child}/comm").exists() and "sleep" not in Path(f"/proc/{child}/comm").read_text()
    ]
    return len(list(Path(f"/proc/{pid}/fd").iterdir())), children
