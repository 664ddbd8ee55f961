"""Disks and remotes, with real rclone on both sides: what is copied, how far it is, who may see it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from starverse.db import events
from starverse.domain.disk_kind import DiskKind
from starverse.node.rclone.copier import RcloneCopier
from starverse.testing.given_disks import folder_of, given_disk
from starverse.testing.http_sites import PREFIX
from starverse.testing.rclone_remotes import PASSWORD, ServedRemote
from starverse.testing.syncing_sites import SyncingSite, open_syncing_site, put_secret

pytestmark = pytest.mark.skipif(shutil.which("rclone") is None, reason="rclone is not installed")

LONG = "长" * 85
NAMES = (
    "plain.txt",
    "with spaces/and more",
    "数据/第 1 天.csv",
    LONG,
    "a/b/c/d/e",
    'it\'s "quoted" & $HOME;',
)
MIB = 1024**2


@pytest.fixture
def site(kind: str, tmp_path: Path) -> Iterator[SyncingSite]:
    with open_syncing_site(kind, tmp_path) as opened:
        yield opened


@pytest.fixture(params=["sftp", "webdav"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServedRemote]:
    with ServedRemote(request.param, tmp_path / "remote") as served:
        yield served


def fill(folder: Path, size: int = 1000) -> dict[str, bytes]:
    """Files of every name; what they hold by name."""
    made = {}
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        made[name] = os.urandom(size)
        (folder / name).write_bytes(made[name])
    return made


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def give_to_team(folder: Path) -> None:
    owner = folder.stat()
    for path in folder.rglob("*"):
        os.chown(path, owner.st_uid, owner.st_gid)


def test_a_pull_brings_every_file_and_a_push_takes_it_back(site: SyncingSite, remote: ServedRemote) -> None:
    person = site.register()
    put_secret(person, "conf", remote.config)
    disk = given_disk(site, person, "我的 disk")
    folder = folder_of(site, disk)
    made = fill(remote.root / "in")
    (remote.root / "in" / "empty").mkdir()

    asked = site.ask(person, "我的 disk", remote="lab:in", folder="got/here", verify=True)
    assert (asked["state"], asked["disk"], asked["secret"]) == ("queued", "我的 disk", "conf")
    done = site.until(person, disk.id, asked["id"])
    assert (done["state"], done["message"]) == ("succeeded", "")
    assert done["verified_at"] and done["ended_at"]
    total = sum(map(len, made.values()))
    assert (done["files_done"], done["files_total"]) == (len(made), len(made))
    assert (done["bytes_done"], done["bytes_total"]) == (total, total)
    assert files(folder / "got" / "here") == made
    assert (folder / "got" / "here" / "empty").is_dir()
    owner = folder.stat().st_uid
    assert {path.lstat().st_uid for path in folder.rglob("*")} == {owner}
    assert sorted(path.name for path in folder.parent.iterdir()) == ["data"]

    (remote.root / "in" / "plain.txt").write_bytes(b"newer and longer" * 100)
    again = site.until(person, disk.id, site.ask(person, disk.id, remote="lab:in", folder="got/here")["id"])
    assert (again["state"], again["files_done"]) == ("succeeded", 1), "what is the same is not copied again"
    assert (folder / "got/here/plain.txt").read_bytes() == b"newer and longer" * 100

    back = site.ask(person, disk.id, direction="push", remote="lab:back/up", folder="got/here", verify=True)
    done = site.until(person, disk.id, back["id"])
    assert (done["state"], done["message"]) == ("succeeded", "")
    assert files(remote.root / "back" / "up") == files(folder / "got" / "here")
    listed = person.get(f"/disks/{disk.id}/syncs")["items"]
    assert [one["direction"] for one in listed] == ["push", "pull", "pull"]


def test_the_whole_disk_goes_to_the_whole_remote(site: SyncingSite, remote: ServedRemote) -> None:
    person = site.register()
    put_secret(person, "conf", remote.config)
    disk = given_disk(site, person)
    made = fill(folder_of(site, disk))
    give_to_team(folder_of(site, disk))
    (remote.root / "plain.txt").write_bytes(b"older")
    (remote.root / "only there").write_bytes(b"stays: a sync never deletes")
    done = site.until(person, "home", site.ask(person, "home", direction="push", verify=True)["id"])
    assert (done["state"], done["message"]) == ("succeeded", "")
    assert files(remote.root) == made | {"only there": b"stays: a sync never deletes"}


@pytest.mark.parametrize("kind", ["sqlite"])
def test_folders_without_a_file_go_there_and_come_back(site: SyncingSite, remote: ServedRemote) -> None:
    person = site.register()
    put_secret(person, "conf", remote.config)
    disk = given_disk(site, person)
    (folder_of(site, disk) / "runs" / "空 empty").mkdir(parents=True)
    give_to_team(folder_of(site, disk))
    for folder in ("runs", "runs/空 empty"):
        asked = site.ask(person, "home", direction="push", remote="lab:out", folder=folder, verify=True)
        done = site.until(person, "home", asked["id"])
        assert (done["state"], done["message"], done["files_done"]) == ("succeeded", "", 0)
    assert [path.name for path in remote.root.rglob("*")] == ["out", "空 empty"]
    done = site.until(person, "home", site.ask(person, "home", remote="lab:out", folder="got")["id"])
    assert (done["state"], (folder_of(site, disk) / "got" / "空 empty").is_dir()) == ("succeeded", True)


@pytest.mark.parametrize("remote", ["sftp"], indirect=True)
@pytest.mark.parametrize("kind", ["sqlite"])
class TestOverSftp:
    def test_credentials_are_in_no_argument_environment_file_or_line(
        self, site: SyncingSite, remote: ServedRemote, capfd: pytest.CaptureFixture[str]
    ) -> None:
        person = site.register()
        put_secret(person, "conf", remote.config)
        disk = given_disk(site, person)
        (remote.root / "big").write_bytes(os.urandom(MIB))
        asked = site.ask(person, disk.id, bytes_per_second_max=200_000)
        running = site.until(person, disk.id, asked["id"], lambda shown: shown["bytes_done"] > 0)
        assert running["bytes_total"] == MIB
        seen = list(words_of_all_processes())
        assert any("rclone" in words and "copy" in words for words in seen)
        hidden = (PASSWORD, remote.secret)
        assert not [
            words for words in seen if any(secret in words for secret in hidden) and "serve" not in words
        ]
        data = site.platform.settings.data
        for path in (p for p in data.rglob("*") if p.is_file()):
            assert not any(secret.encode() in path.read_bytes() for secret in hidden), path
        cancelled = person.client.delete(f"{PREFIX}/disks/{disk.id}/syncs/{asked['id']}")
        assert cancelled.status_code == 200
        ended = site.until(person, disk.id, asked["id"])
        with site.platform.database.read() as connection:
            told = repr(events.newest(connection, 100))
        for secret in hidden:
            assert secret not in told + str(ended) + str(running) + "".join(capfd.readouterr())

    def test_it_is_cancelled_within_seconds_and_leaves_no_half_file(
        self, site: SyncingSite, remote: ServedRemote
    ) -> None:
        person = site.register()
        put_secret(person, "conf", remote.config)
        disk = given_disk(site, person)
        (remote.root / "big").write_bytes(os.urandom(4 * MIB))
        pull = site.ask(person, disk.id, bytes_per_second_max=100_000)
        site.until(person, disk.id, pull["id"], lambda shown: shown["bytes_done"] > 0)
        begun = time.monotonic()
        asked = person.client.delete(f"{PREFIX}/disks/{disk.id}/syncs/{pull['id']}").json()
        assert (asked["state"], bool(asked["cancel_requested_at"])) == ("running", True)
        ended = site.until(person, disk.id, pull["id"])
        assert (ended["state"], ended["message"]) == ("cancelled", "cancelled")
        assert time.monotonic() - begun < 8
        assert files(folder_of(site, disk)) == {}
        site.runs.join(10)
        assert sorted(path.name for path in folder_of(site, disk).parent.iterdir()) == ["data"]

        (folder_of(site, disk) / "big").write_bytes(os.urandom(4 * MIB))
        push = site.ask(person, disk.id, direction="push", remote="lab:up", bytes_per_second_max=100_000)
        site.until(person, disk.id, push["id"], lambda shown: shown["bytes_done"] > 0)
        person.client.delete(f"{PREFIX}/disks/{disk.id}/syncs/{push['id']}")
        assert site.until(person, disk.id, push["id"])["state"] == "cancelled"
        assert files(remote.root / "up") == {}, "what lay aside at the remote went, too"
        late = person.client.delete(f"{PREFIX}/disks/{disk.id}/syncs/{push['id']}")
        assert late.status_code == 409

    def test_what_is_not_as_it_was_copied_is_found_by_verifying(
        self, site: SyncingSite, remote: ServedRemote
    ) -> None:
        person = site.register()
        put_secret(person, "conf", remote.config)
        disk = given_disk(site, person)
        fill(remote.root)
        asked = site.ask(person, disk.id, verify=True)
        assert site.until(person, disk.id, asked["id"])["state"] == "succeeded"
        rotten = remote.root / "plain.txt"
        before = rotten.stat()
        rotten.write_bytes(b"\0" * before.st_size)
        os.utime(rotten, ns=(before.st_atime_ns, before.st_mtime_ns))
        plain = site.until(person, disk.id, site.ask(person, disk.id)["id"])
        assert plain["state"] == "succeeded", "by size and time it is the same"
        asked = site.ask(person, disk.id, verify=True)
        ended = site.until(person, disk.id, asked["id"], waits=True)
        assert ended["state"] == "failed"
        assert "plain.txt: md5 differ" in ended["message"]
        assert ended["verified_at"] is None

    def test_links_lead_nowhere(self, site: SyncingSite, remote: ServedRemote, tmp_path: Path) -> None:
        person = site.register()
        put_secret(person, "conf", remote.config)
        disk = given_disk(site, person)
        folder, outside = folder_of(site, disk), tmp_path / "outside"
        outside.mkdir(mode=0o777)
        (folder / "out").symlink_to(outside)
        (folder / "secret").symlink_to("/etc/shadow")
        (folder / "real").write_bytes(b"real")
        (remote.root / "out").mkdir()
        (remote.root / "out" / "escaped").write_bytes(b"escaped")

        ended = site.until(person, disk.id, site.ask(person, disk.id)["id"])
        assert ended["state"] == "failed"
        assert (
            ended["message"] == "out/escaped: a link or a file is in the way on the disk; no link is followed"
        )
        for direction in ("pull", "push"):
            asked = site.ask(person, disk.id, direction=direction, folder="out/deeper")
            ended = site.until(person, disk.id, asked["id"])
            assert (ended["state"], "no link is followed" in ended["message"]) == ("failed", True)
        assert list(outside.iterdir()) == []

        asked = site.ask(person, disk.id, direction="push", remote="lab:pushed")
        ended = site.until(person, disk.id, asked["id"])
        assert (ended["state"], ended["message"]) == ("succeeded", "2 links were left out")
        assert files(remote.root / "pushed") == {"real": b"real"}

    def test_a_folder_that_there_is_not_is_said_once(self, site: SyncingSite, remote: ServedRemote) -> None:
        person = site.register()
        put_secret(person, "conf", remote.config)
        disk = given_disk(site, person)
        pull = site.until(person, disk.id, site.ask(person, disk.id, remote="lab:nowhere")["id"])
        assert (pull["state"], pull["attempts"]) == ("failed", 1)
        assert pull["message"].startswith("there is no such folder at the remote")
        push = site.until(
            person, disk.id, site.ask(person, disk.id, direction="push", folder="no/where")["id"]
        )
        assert (push["state"], push["message"]) == ("failed", "there is no folder no/where on the disk")

    def test_a_wrong_password_is_said_once_and_not_repeated(
        self, site: SyncingSite, remote: ServedRemote
    ) -> None:
        person = site.register()
        put_secret(person, "conf", remote.config.replace("user = sync", "user = somebody-else"))
        disk = given_disk(site, person)
        ended = site.until(person, disk.id, site.ask(person, disk.id)["id"])
        assert (ended["state"], ended["attempts"]) == ("failed", 1)
        assert "unable to authenticate" in ended["message"]
        assert "somebody-else" not in ended["message"]

    def test_one_of_a_disk_and_direction_runs_at_once(self, site: SyncingSite, remote: ServedRemote) -> None:
        person = site.register()
        put_secret(person, "conf", remote.config)
        disk, other = given_disk(site, person), given_disk(site, person, "other")
        (remote.root / "in").mkdir()
        (remote.root / "in" / "big").write_bytes(os.urandom(MIB))
        (folder_of(site, disk) / "own").write_bytes(b"own")
        give_to_team(folder_of(site, disk))
        first = site.ask(person, disk.id, remote="lab:in", bytes_per_second_max=30_000)
        second = site.ask(person, disk.id, remote="lab:in")
        site.until(person, disk.id, first["id"], lambda shown: shown["bytes_done"] > 0)
        up = site.ask(person, disk.id, direction="push", remote="lab:up")
        elsewhere = site.ask(person, other.id, remote="lab:in")
        assert site.until(person, disk.id, up["id"])["state"] == "succeeded"
        assert site.until(person, other.id, elsewhere["id"])["state"] == "succeeded"
        waiting = person.get(f"/disks/{disk.id}/syncs/{second['id']}")
        assert (waiting["state"], waiting["message"]) == ("queued", "waits for its turn")
        person.client.delete(f"{PREFIX}/disks/{disk.id}/syncs/{first['id']}")
        assert site.until(person, disk.id, second["id"])["files_done"] == 1

    def test_a_full_disk_takes_no_more_and_says_so(self, site: SyncingSite, remote: ServedRemote) -> None:
        person = site.register()
        put_secret(person, "conf", remote.config)
        disk = given_disk(site, person)
        held = folder_of(site, disk) / "held"
        with held.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 1024 * MIB - 100_000)
        (remote.root / "more").write_bytes(os.urandom(MIB))
        (remote.root / "little").write_bytes(b"little")
        ended = site.until(person, disk.id, site.ask(person, disk.id)["id"], waits=True)
        assert ended["state"] == "failed"
        assert "the disk is full: of its 1 GiB" in ended["message"]
        assert not (folder_of(site, disk) / "more").exists()
        held.unlink()
        ended = site.until(person, disk.id, site.ask(person, disk.id)["id"])
        assert ended["state"] == "succeeded"
        assert set(files(folder_of(site, disk))) == {"more", "little"}


def words_of_all_processes() -> Iterator[str]:
    """Arguments and environment of every process that may be looked at."""
    for process in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                yield (process / name).read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue


BAD: list[tuple[dict[str, Any], str]] = [
    ({"remote": ""}, "remote"),
    ({"remote": "/etc"}, "remote"),
    ({"remote": "etc"}, "remote"),
    ({"remote": ":local:/etc"}, "remote"),
    ({"remote": ":alias,remote=/etc:"}, "remote"),
    ({"remote": ":union,upstreams=/etc:"}, "remote"),
    ({"remote": ":memory:"}, "remote"),
    ({"remote": ":nonsense:"}, "remote"),
    ({"remote": ":sftp,host=h,pass=hunter2:"}, "remote"),
    ({"remote": ":webdav,url='http://u:hunter2@h/':"}, "remote"),
    ({"remote": ":s3,secret_access_key=hunter2:b"}, "remote"),
    ({"remote": ":webdav,bearer_token_command='cat /etc/passwd':"}, "remote"),
    ({"remote": "lab:a\nb"}, "remote"),
    ({"remote": "nowhere:x"}, "remote"),
    ({"remote": "lab:x", "secret": None}, "secret"),
    ({"remote": "lab:x", "secret": "unknown"}, "secret"),
    ({"remote": "lab:x", "secret": "broken"}, "secret"),
    ({"remote": "here:x", "secret": "reaching"}, "remote"),
    ({"remote": "around:x", "secret": "reaching"}, "remote"),
    ({"remote": "wrapped:x", "secret": "reaching"}, "remote"),
    ({"remote": "runs:x", "secret": "reaching"}, "remote"),
    ({"folder": "../x"}, "folder"),
    ({"folder": "a/../../x"}, "folder"),
    ({"folder": "长" * 86}, "folder"),
    ({"bytes_per_second_max": 0}, "bytes_per_second_max"),
    ({"bytes_per_second_max": -1}, "bytes_per_second_max"),
    ({"schedule": "nonsense"}, "schedule"),
    ({"schedule": "* * * * *"}, "schedule"),
    ({"schedule": "0 0 31 2 *"}, "schedule"),
    ({"direction": "both"}, "direction"),
]
REACHING = """
[here]
type = local
[around]
type = alias
remote = /etc
[wrapped]
type = crypt
remote = /etc
password = hunter2
[runs]
type = webdav
url = http://h
bearer_token_command = cat /etc/passwd
"""


@pytest.mark.parametrize("kind", ["sqlite"])
def test_what_cannot_be_is_refused_at_once_by_name(site: SyncingSite) -> None:
    person = site.register()
    disk = given_disk(site, person)
    put_secret(person, "conf", "[lab]\ntype = sftp\nhost = 127.0.0.1\npass = hunter2\n")
    put_secret(person, "broken", "pass = hunter2 [lab")
    put_secret(person, "reaching", REACHING)
    for body, field in BAD:
        wanted = {"direction": "pull", "remote": "lab:", "secret": "conf"} | body
        answer = person.client.post(f"{PREFIX}/disks/{disk.id}/syncs", json=wanted)
        assert answer.status_code == 422, body
        assert [fault["field"] for fault in answer.json()["faults"]] == [field], body
        assert "hunter2" not in answer.text, body
    assert person.get(f"/disks/{disk.id}/syncs")["items"] == []


class WithoutBlockDisks(RcloneCopier):
    """On a machine that mounts none."""

    def missing_for_block_disks(self) -> str:
        return "no loop devices"


def test_a_disk_that_cannot_be_copied_says_why(tmp_path: Path) -> None:
    with open_syncing_site("sqlite", tmp_path, copier=WithoutBlockDisks()) as site:
        person, stranger = site.register(), site.register("stranger@example.org")
        given_disk(site, person, "blocks", kind=DiskKind.BLOCK)
        wanted = {"direction": "pull", "remote": ":http,url='http://127.0.0.1:9':"}
        refused = person.post("/disks/blocks/syncs", wanted, status=409)["detail"]
        assert refused.endswith("is a block disk, which cannot be mounted here: no loop devices.")
        assert person.post("/disks/nothing/syncs", wanted, status=404)["code"] == "not_found"
        assert stranger.post("/disks/blocks/syncs", wanted, status=404)["code"] == "not_found"
