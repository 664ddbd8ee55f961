"""Block disks and remotes: mounted for one copy alone, by the one writer that they have."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from starverse.db.disks import Disk
from starverse.domain.disk_kind import DiskKind
from starverse.node.disk_files import make_block_file
from starverse.node.plugs.block_disks import loop_refusal
from starverse.testing.given_disks import block_file_of, given_disk
from starverse.testing.http_sites import Person
from starverse.testing.ordinary_users import ORDINARY_UID, ordinary_python
from starverse.testing.rclone_remotes import ServedRemote
from starverse.testing.syncing_sites import (
    SyncingSite,
    kill_all,
    open_syncing_site,
    own_processes,
    put_secret,
)

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a file"),
    pytest.mark.skipif(bool(loop_refusal()), reason=loop_refusal() or "there are loop devices"),
    pytest.mark.skipif(shutil.which("rclone") is None, reason="apt-get install rclone"),
    pytest.mark.skipif(shutil.which("mkfs.ext4") is None, reason="apt-get install e2fsprogs"),
]
MADE = {"数据/a b": b"one" * 1000, "plain": b"two", "deep/er/c": os.urandom(50_000)}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SyncingSite]:
    with open_syncing_site("sqlite", tmp_path) as opened:
        yield opened


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[ServedRemote]:
    with ServedRemote("sftp", tmp_path / "remote") as served:
        yield served


@pytest.fixture
def person(site: SyncingSite, remote: ServedRemote) -> Person:
    person = site.register()
    put_secret(person, "conf", remote.config)
    return person


@pytest.fixture
def disk(site: SyncingSite, person: Person) -> Disk:
    return given_disk(site, person, "blocks", kind=DiskKind.BLOCK)


def fill(folder: Path) -> None:
    for name, content in MADE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


@contextmanager
def mounted(site: SyncingSite, disk: Disk, place: Path) -> Iterator[Path]:
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop", str(block_file_of(site, disk)), str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def loops_of(site: SyncingSite, disk: Disk) -> str:
    told = subprocess.run(
        ["losetup", "-j", str(block_file_of(site, disk))], capture_output=True, text=True, check=True
    )
    return told.stdout


def is_free(site: SyncingSite, disk: Disk) -> bool:
    with block_file_of(site, disk).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def until_free(site: SyncingSite, person: Person, disk: Disk, sync_id: str) -> None:
    site.runs.join(10)
    site.until(person, disk.id, sync_id, lambda _: is_free(site, disk))
    assert loops_of(site, disk) == ""


def test_a_pull_and_a_push_of_a_block_disk(
    site: SyncingSite, remote: ServedRemote, person: Person, disk: Disk, tmp_path: Path
) -> None:
    fill(remote.root / "in")
    pull = site.ask(person, "blocks", remote="lab:in", verify=True)
    done = site.until(person, "blocks", pull["id"])
    assert (done["state"], done["message"], done["files_done"]) == ("succeeded", "", len(MADE))
    until_free(site, person, disk, pull["id"])
    with mounted(site, disk, tmp_path / "seen") as seen:
        assert files(seen) == MADE
        assert sorted(path.name for path in seen.iterdir() if path.name != "lost+found") == [
            "deep",
            "plain",
            "数据",
        ]
        owner = seen.stat().st_uid
        assert {path.stat().st_uid for path in seen.rglob("*") if path.name != "lost+found"} == {owner}
    push = site.ask(person, "blocks", direction="push", remote="lab:out", verify=True)
    done = site.until(person, "blocks", push["id"])
    assert (done["state"], done["message"]) == ("succeeded", "")
    assert files(remote.root / "out") == MADE
    assert sorted(path.name for path in block_file_of(site, disk).parent.iterdir()) == ["block.img"]


def test_while_somebody_has_it_a_copy_waits_and_changes_nothing(
    site: SyncingSite, remote: ServedRemote, person: Person, disk: Disk
) -> None:
    fill(remote.root)
    with block_file_of(site, disk).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        asked = site.ask(person, "blocks")
        shown = site.until(person, "blocks", asked["id"], lambda shown: shown["attempts"] == 1)
        assert (shown["state"], "the disk is in use" in shown["message"]) == ("queued", True)
    assert site.until(person, "blocks", asked["id"], waits=True)["state"] == "succeeded"


def test_killed_in_the_middle_it_goes_on_and_no_device_is_left(
    site: SyncingSite, remote: ServedRemote, person: Person, disk: Disk, tmp_path: Path
) -> None:
    made = {f"part {number}": os.urandom(100_000) for number in range(8)}
    for name, content in made.items():
        (remote.root / name).write_bytes(content)
    asked = site.ask(person, "blocks", bytes_per_second_max=200_000)
    site.until(person, "blocks", asked["id"], lambda shown: shown["files_done"] > 0)
    assert not is_free(site, disk)
    kill_all([*own_processes("node/rclone/inside.py"), *own_processes("/run/rclone/rclone.conf")])
    shown = site.until(person, "blocks", asked["id"], lambda shown: shown["state"] != "running")
    assert shown["state"] == "queued"
    done = site.until(person, "blocks", asked["id"], waits=True)
    assert done["state"] == "succeeded", done
    until_free(site, person, disk, asked["id"])
    with mounted(site, disk, tmp_path / "seen") as seen:
        assert files(seen) == made
        assert not list(seen.glob(".incoming-*"))


COPIED = """
import sys
from starverse.domain.catalog.disks import SyncDirection
from starverse.domain.catalog.syncs import CopyEnd, CopyOrder
from starverse.node.rclone.copier import RcloneCopier

tree, path, direction, config = sys.argv[1:]
copier = RcloneCopier(network="host")
order = CopyOrder(
    sync_id="one", direction=SyncDirection(direction), tree=tree, block_file=f"{tree}/block.img", folder="",
    path=path, config=config, hidden=(), in_place=True, verify=True, bytes_per_second_max=None, gib=1,
    unix_uid=None,
)
print(copier.missing_for_block_disks())
with copier.start(order) as copying:
    while not isinstance(told := copying.wait(1.0), CopyEnd):
        copying.go_on()
print(told.ending.value, told.message, told.progress.files_done)
"""
AS_ORDINARY_USER = """
mount --bind "$1" /dev/fuse && exec setpriv --reuid "$2" --regid "$2" --clear-groups "${@:3}"
"""


@pytest.mark.skipif(shutil.which("fuse2fs") is None, reason="apt-get install fuse2fs")
def test_without_root_it_is_served_for_one_copy_alone(remote: ServedRemote, tmp_path: Path) -> None:
    place = Path(tempfile.mkdtemp(prefix="starverse-block-", dir="/tmp"))
    try:
        place.chmod(0o755)
        python = ordinary_python(place)
        fuse = place / "fuse"
        os.mknod(fuse, stat.S_IFCHR | 0o666, os.makedev(10, 229))
        fuse.chmod(0o666)
        tree = place / "disk"
        tree.mkdir()
        make_block_file(tree / "block.img", 1, 0)
        for path in (tree, tree / "block.img"):
            os.chown(path, ORDINARY_UID, ORDINARY_UID)
        if python is None or not opens(fuse):
            pytest.skip("no Python, or no device, that an ordinary user may use")
        fill(remote.root / "in")

        def copy(path: str, direction: str) -> str:
            config = remote.config.replace("[lab]", "[starverse-remote]")
            config += remote.config.replace("[lab]", "[starverse-aside]")
            words = (python, "-c", COPIED, str(tree), path, direction, config)
            ran = subprocess.run(
                ["unshare", "-m", "bash", "-c", AS_ORDINARY_USER, "-", fuse, str(ORDINARY_UID), *words],
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
                cwd="/",
            )
            assert ran.returncode == 0, ran.stderr
            return ran.stdout

        assert copy("in", "pull") == f"\ndone  {len(MADE)}\n"
        assert copy("out", "push") == f"\ndone  {len(MADE)}\n"
        assert files(remote.root / "out") == MADE
        with (tree / "block.img").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody has it any more
        assert [path.name for path in tree.iterdir()] == ["block.img"]
    finally:
        shutil.rmtree(place, ignore_errors=True)


def opens(device: Path) -> bool:
    try:
        os.close(os.open(device, os.O_RDWR))
    except OSError:
        return False
    return True


def test_a_full_block_disk_says_so(
    site: SyncingSite, remote: ServedRemote, person: Person, disk: Disk
) -> None:
    with (remote.root / "large").open("wb") as file:
        file.truncate(2 * 1024**3)
    done = site.until(person, "blocks", site.ask(person, "blocks")["id"], waits=True)
    assert done["state"] == "failed"
    assert "the disk is full" in done["message"]
