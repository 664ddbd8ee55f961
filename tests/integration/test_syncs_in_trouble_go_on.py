"""Syncs whose remote, rclone, sandbox or server goes away: they go on, or end and say why, and no name ever
has half a file."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Self

import pytest
from sqlalchemy import update

from starverse.app.disks import syncs as use_cases
from starverse.app.ports import Copier
from starverse.db import disks
from starverse.db.disk_tables import disk_syncs
from starverse.db.leases import clock
from starverse.domain.catalog.disks import DiskState, SyncDirection
from starverse.domain.catalog.syncs import CopyEnd, CopyOrder, Ending, Progress
from starverse.domain.disk_kind import DiskKind
from starverse.reconcilers.syncs import Runs
from starverse.testing.given_disks import folder_of, given_disk, given_sync
from starverse.testing.http_sites import PREFIX
from starverse.testing.rclone_remotes import ServedRemote
from starverse.testing.syncing_sites import (
    SyncingSite,
    kill_all,
    open_syncing_site,
    own_processes,
    put_secret,
)

needs_rclone = pytest.mark.skipif(shutil.which("rclone") is None, reason="rclone is not installed")
MIB = 1024**2
FILES = 8


@pytest.fixture
def site(tmp_path: Path) -> Iterator[SyncingSite]:
    with open_syncing_site("sqlite", tmp_path) as opened:
        yield opened


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[ServedRemote]:
    with ServedRemote("sftp", tmp_path / "remote") as served:
        yield served


def fill(folder: Path) -> dict[str, bytes]:
    folder.mkdir(exist_ok=True)
    made = {f"part-{number}": os.urandom(MIB // 4) for number in range(FILES)}
    for name, content in made.items():
        (folder / name).write_bytes(content)
    owner = folder.stat()
    for name in made:
        os.chown(folder / name, owner.st_uid, owner.st_gid)
    return made


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


class WatchedFolder:
    """Looks all the time whether a name in a folder ever has something else than the whole file."""

    def __init__(self, folder: Path, whole: dict[str, bytes]) -> None:
        self._folder, self._whole = folder, whole
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.wrong: list[str] = []
        self.looks = 0

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            for name, content in self._whole.items():
                try:
                    if (self._folder / name).read_bytes() != content:
                        self.wrong.append(name)
                except OSError:
                    continue
            self.looks += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        assert not self.wrong
        assert self.looks


@needs_rclone
@pytest.mark.parametrize("direction", ["pull", "push"])
def test_a_remote_that_goes_away_and_comes_back_is_waited_for(
    site: SyncingSite, remote: ServedRemote, direction: str
) -> None:
    person = site.register()
    put_secret(person, "conf", remote.config)
    disk = given_disk(site, person)
    source, target = folder_of(site, disk), remote.root / "there"
    target.mkdir()
    if direction == "pull":
        source, target = target, source
    made = fill(source)
    with WatchedFolder(target, made):
        asked = site.ask(
            person,
            disk.id,
            direction=direction,
            remote="lab:there",
            bytes_per_second_max=400_000,
            verify=True,
        )
        site.until(person, disk.id, asked["id"], lambda shown: shown["files_done"] > 0)
        remote.stop()
        shown = site.until(person, disk.id, asked["id"], lambda shown: shown["state"] != "running")
        assert shown["state"] == "queued"
        assert shown["message"].startswith("interrupted: ")
        assert shown["message"].endswith("; goes on in 5 s")
        remote.start()
        ended = site.until(person, disk.id, asked["id"], waits=True)
    assert ended["state"] == "succeeded", ended
    assert files(target) == made


@needs_rclone
def test_a_remote_that_stays_away_ends_it_after_so_many_tries(
    site: SyncingSite, remote: ServedRemote
) -> None:
    person = site.register()
    put_secret(person, "conf", remote.config)
    disk = given_disk(site, person)
    remote.stop()
    ended = site.until(person, disk.id, site.ask(person, disk.id)["id"], waits=True)
    assert (ended["state"], ended["attempts"]) == ("failed", 5)
    assert ended["message"].startswith("5 tries got nowhere: ")
    assert "connection refused" in ended["message"]


@needs_rclone
@pytest.mark.parametrize(
    ("direction", "words"),
    [
        ("pull", "rclone copy"),
        ("pull", "node/rclone/inside.py"),
        ("push", "rclone copy"),
        ("push", "node/rclone/inside.py"),
    ],
)
def test_whatever_of_it_is_killed_it_goes_on(
    site: SyncingSite, remote: ServedRemote, direction: str, words: str
) -> None:
    person = site.register()
    put_secret(person, "conf", remote.config)
    disk = given_disk(site, person)
    source, target = folder_of(site, disk), remote.root / "there"
    target.mkdir()
    if direction == "pull":
        source, target = target, source
    made = fill(source)
    with WatchedFolder(target, made):
        asked = site.ask(
            person, disk.id, direction=direction, remote="lab:there", bytes_per_second_max=400_000
        )
        site.until(person, disk.id, asked["id"], lambda shown: shown["files_done"] > 0)
        told = words.replace("rclone copy", "--config /run/rclone/rclone.conf")
        killed = own_processes(told)
        if words == "rclone copy":
            killed = [pid for pid in killed if "rclone" in Path(f"/proc/{pid}/comm").read_text()]
        assert killed
        kill_all(killed)
        shown = site.until(person, disk.id, asked["id"], lambda shown: shown["state"] != "running")
        assert (shown["state"], shown["attempts"]) == ("queued", 0), shown
        ended = site.until(person, disk.id, asked["id"], waits=True)
    assert ended["state"] == "succeeded"
    assert files(target) == made
    site.runs.join(10)
    assert sorted(path.name for path in folder_of(site, disk).parent.iterdir()) == ["data"]
    assert not own_processes("node/rclone/inside.py")


@needs_rclone
def test_a_copy_whose_server_says_nothing_any_more_ends_by_itself(
    site: SyncingSite, remote: ServedRemote
) -> None:
    """A server that hangs holds no lease; another one may run it: so the copy inside stops first."""
    person = site.register()
    put_secret(person, "conf", remote.config)
    disk = given_disk(site, person)
    (remote.root / "big").write_bytes(os.urandom(8 * MIB))
    asked = site.ask(person, disk.id, bytes_per_second_max=50_000)
    taken = use_cases.take_next(site.platform, "a server that hangs")
    assert taken is not None and taken.order is not None
    assert taken.sync.id == asked["id"]
    begun = time.monotonic()
    with site.platform.copier.start(taken.order) as copying:
        told: Progress | CopyEnd = Progress()
        while not isinstance(told, CopyEnd):
            told = copying.wait(1.0)
    assert (told.ending, told.message) == (Ending.INTERRUPTED, "its server does not answer")
    assert time.monotonic() - begun < use_cases.LEASE_SECONDS


class StandIn:
    """A copier whose copies do what a test says; it counts what was begun."""

    def __init__(self, end: CopyEnd | None = None) -> None:
        self.orders: list[CopyOrder] = []
        self.end = end
        self.may_end = threading.Event()
        self.kills = self.cancels = 0

    def missing(self) -> str:
        return ""

    def missing_for_block_disks(self) -> str:
        return ""

    def start(self, order: CopyOrder, *, last: bool = False) -> StandIn:
        del last
        self.orders.append(order)
        return self

    def go_on(self) -> None:
        return None

    def cancel(self) -> None:
        self.cancels += 1
        self.end = CopyEnd(Ending.CANCELLED, "cancelled", Progress())
        self.may_end.set()

    def kill(self) -> None:
        self.kills += 1
        self.end = CopyEnd(Ending.INTERRUPTED, "it was killed", Progress())
        self.may_end.set()

    def wait(self, seconds: float) -> Progress | CopyEnd:
        if self.may_end.wait(min(seconds, 0.05)):
            return self.end or CopyEnd(Ending.DONE, "", Progress(files_done=1))
        return Progress(bytes_done=5, bytes_total=10, files_done=0, files_total=2, bytes_per_second=2)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None


def stand_in(copier: StandIn) -> Copier:
    return copier


def test_of_several_servers_each_sync_is_run_by_one(kind: str, tmp_path: Path) -> None:
    copier = StandIn()
    with open_syncing_site(kind, tmp_path, stand_in(copier)) as site:
        person = site.register()
        given = [given_sync(site, given_disk(site, person, f"disk {number}")) for number in range(3)]
        servers = [Runs(site.platform) for _ in range(4)]
        threads = [threading.Thread(target=server.begin) for server in servers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for server in servers:
            server.begin()
        assert sorted(order.sync_id for order in copier.orders) == sorted(sync.id for sync in given)
        copier.may_end.set()
        assert all(server.join(10) for server in servers)
        for sync in given:
            shown = person.get(f"/disks/{sync.disk_id}/syncs/{sync.id}")
            assert (shown["state"], shown["files_done"]) == ("succeeded", 1)


def test_a_block_disk_has_one_copy_at_a_time_and_a_shared_one_both_directions(
    kind: str, tmp_path: Path
) -> None:
    copier = StandIn()
    with open_syncing_site(kind, tmp_path, stand_in(copier), drops_to_team_uid=True) as site:
        person = site.register()
        shared, block = given_disk(site, person, "home"), given_disk(site, person, "db", kind=DiskKind.BLOCK)
        both = {given_sync(site, shared).id, given_sync(site, shared, SyncDirection.PUSH).id}
        pull, push = given_sync(site, block), given_sync(site, block, SyncDirection.PUSH)
        for _ in range(3):
            site.round()
        assert {order.sync_id for order in copier.orders} == {*both, pull.id}
        copier.may_end.set()
        assert site.until(person, block.id, push.id)["state"] == "succeeded"
        assert [order.sync_id for order in copier.orders][-1] == push.id


def test_what_a_dead_server_left_running_is_taken_up_and_the_late_one_writes_nothing(
    kind: str, tmp_path: Path
) -> None:
    copier = StandIn()
    with open_syncing_site(kind, tmp_path, stand_in(copier)) as site:
        person = site.register()
        sync = given_sync(site, given_disk(site, person))
        late = Runs(site.platform)
        late.begin()
        path = f"/disks/{sync.disk_id}/syncs/{sync.id}"
        shown = person.get(path)
        assert shown["state"] == "running"
        site.round()
        assert person.get(path)["state"] == "running", "its lease stands"
        with site.platform.database.write() as connection:
            dead = {"lease_until": clock(connection) - timedelta(hours=1), "holder": "one that is dead"}
            connection.execute(update(disk_syncs).values(**dead))
        site.round()
        assert person.get(path)["message"] == "interrupted: its server ended; goes on in 5 s"
        assert late.join(15), "who finds its lease gone stops"
        assert copier.kills == 1
        assert person.get(path)["state"] == "queued"
        assert (
            use_cases.finish(site.platform, sync.id, "one that is dead", CopyEnd(Ending.DONE, "", Progress()))
            == ""
        )
        assert person.get(path)["state"] == "queued"


def test_counts_and_the_time_left_are_told_while_it_runs(tmp_path: Path) -> None:
    copier = StandIn()
    with open_syncing_site("sqlite", tmp_path, stand_in(copier)) as site:
        person = site.register()
        sync = given_sync(site, given_disk(site, person))
        shown = site.until(person, sync.disk_id, sync.id, lambda shown: shown["bytes_done"] > 0)
        assert (shown["bytes_done"], shown["bytes_total"], shown["bytes_per_second"]) == (5, 10, 2)
        assert (shown["files_done"], shown["files_total"], shown["seconds_left"]) == (0, 2, 3)
        copier.may_end.set()
        site.until(person, sync.disk_id, sync.id)


def test_a_disk_that_is_deleted_meanwhile_ends_its_sync(tmp_path: Path) -> None:
    copier = StandIn()
    with open_syncing_site("sqlite", tmp_path, stand_in(copier)) as site:
        person = site.register()
        disk = given_disk(site, person)
        sync, waits = given_sync(site, disk), given_sync(site, disk, SyncDirection.PUSH)
        later = given_sync(site, disk)
        site.round()
        with site.platform.database.write() as connection:
            current = disks.lock(connection, disk.id)
            assert current is not None
            disks.change(connection, current, state=DiskState.DELETED, deleted_at=site.clock.now())
        for one in (sync, waits):
            assert site.until(person, disk.id, one.id)["state"] == "cancelled"
        ended = site.until(person, disk.id, later.id, waits=True)
        assert (ended["state"], "deleted" in ended["message"]) == ("failed", True)
        assert len(copier.orders) == 2


def test_a_secret_that_went_is_named_and_waited_for(tmp_path: Path) -> None:
    copier = StandIn()
    copier.may_end.set()
    with open_syncing_site("sqlite", tmp_path, stand_in(copier)) as site:
        person = site.register()
        put_secret(person, "conf", "[lab]\ntype = sftp\nhost = 127.0.0.1\n")
        disk = given_disk(site, person)
        asked = site.ask(person, disk.id)
        assert person.client.delete(f"{PREFIX}/secrets/conf").status_code == 204
        shown = site.until(person, disk.id, asked["id"], lambda shown: "conf" in shown["message"])
        assert shown["state"] == "queued"
        put_secret(person, "conf", "[other]\ntype = sftp\n")
        ended = site.until(person, disk.id, asked["id"], waits=True)
        assert ended["state"] == "failed"
        assert ended["message"].startswith("the configuration in the secret conf has changed; expected ")
        assert copier.orders == []


def test_a_schedule_runs_at_its_times_and_skips_those_that_find_it_running(tmp_path: Path) -> None:
    copier = StandIn()
    with open_syncing_site("sqlite", tmp_path, stand_in(copier)) as site:
        person = site.register()
        put_secret(person, "conf", "[lab]\ntype = sftp\nhost = 127.0.0.1\n")
        disk = given_disk(site, person)
        asked = site.ask(person, disk.id, schedule="30 3 * * *")
        assert asked["due_at"] == "2026-03-10T19:30:00Z", "03:30 in Shanghai"
        path = f"/disks/{disk.id}/syncs"
        site.round()
        assert len(person.get(path)["items"]) == 1
        site.clock.at = site.clock.at.replace(hour=19, minute=30)
        site.round()
        site.round()
        run, schedule = person.get(path)["items"]
        assert (run["schedule_of"], run["schedule"], run["state"]) == (asked["id"], None, "running")
        assert (schedule["state"], schedule["due_at"]) == ("queued", "2026-03-11T19:30:00Z")

        site.clock.advance(days=1)
        site.round()
        assert len(person.get(path)["items"]) == 2
        assert "skipped 2026-03-11 19:30 UTC" in person.get(f"{path}/{asked['id']}")["message"]
        copier.may_end.set()
        site.until(person, disk.id, run["id"])
        site.clock.advance(days=3)
        site.round()
        assert len(person.get(path)["items"]) == 3, "days that nobody was there for are made up for once"
        newest = person.get(path)["items"][0]
        done = site.until(person, disk.id, newest["id"])
        assert done["started_at"] >= done["asked_at"], "not when the schedule had its run before"

        cancelled = person.client.delete(f"{PREFIX}{path}/{asked['id']}").json()
        assert (cancelled["state"], cancelled["due_at"]) == ("cancelled", None)
        site.clock.advance(days=3)
        site.round()
        assert len(person.get(path)["items"]) == 3


def test_without_rclone_it_is_said_at_once(tmp_path: Path) -> None:
    class Missing(StandIn):
        def missing(self) -> str:
            return "rclone is not installed: apt-get install rclone"

    with open_syncing_site("sqlite", tmp_path, stand_in(Missing())) as site:
        person = site.register()
        disk = given_disk(site, person)
        answer = person.post(
            f"/disks/{disk.id}/syncs", {"direction": "pull", "remote": ":http,url='http://h':"}, status=503
        )
        assert "apt-get install rclone" in answer["detail"]
        sync = given_sync(site, disk)
        site.round()
        assert person.get(f"/disks/{disk.id}/syncs/{sync.id}")["state"] == "queued"
