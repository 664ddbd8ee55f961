"""Files of a disk over HTTP: any name, whole or not at all, no link followed out, no more than fits."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from urllib.parse import quote

import pytest

from starverse.db import disks
from starverse.domain.catalog.disks import GIB
from starverse.domain.disk_kind import DiskKind
from starverse.testing.given_disks import folder_of, given_disk
from starverse.testing.http_sites import Person, Site

NAMES = ("plain", "two words", "数据.csv", "é#?&%", "x" * 255, "-rf", "a\tb", ".hidden")


@pytest.fixture
def owner(site: Site) -> Person:
    return site.register()


@pytest.fixture
def folder(site: Site, owner: Person) -> Path:
    return folder_of(site, given_disk(site, owner))


def url(path: str) -> str:
    return f"/api/v1/disks/home/files/{quote(path)}"


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_any_name_goes_in_comes_out_and_is_removed(owner: Person, folder: Path, name: str) -> None:
    path = f"new folder/{name}"
    assert owner.client.put(url(path), content=b"bytes of " + name.encode()).status_code == 204
    assert (folder / "new folder" / name).read_bytes() == b"bytes of " + name.encode()
    assert owner.client.get(url(path)).content == b"bytes of " + name.encode()
    ranged = owner.client.get(url(path), headers={"Range": "bytes=0-4"})
    assert (ranged.status_code, ranged.content) == (206, b"bytes")
    listed = owner.get("/disks/home/files", params={"path": "new folder"})["items"]
    assert [one["path"] for one in listed] == [path]
    assert owner.client.delete(url(path)).status_code == 204
    assert list((folder / "new folder").iterdir()) == []
    assert owner.client.delete(url(path)).status_code == 404


def test_a_folder_comes_as_a_tar_and_goes_with_all_in_it(owner: Person, folder: Path) -> None:
    (folder / "run" / "deep").mkdir(parents=True)
    (folder / "run" / "deep" / "log").write_text("line")
    with tarfile.open(fileobj=io.BytesIO(owner.client.get(url("run")).content)) as archive:
        assert sorted(archive.getnames()) == ["deep", "deep/log"]
    assert owner.client.delete(url("run")).status_code == 204
    assert list(folder.iterdir()) == []
    assert list(folder.parent.iterdir()) == [folder], "nothing is left aside"


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize(
    "path", ["../secret", "a/../../secret", "..", "out/secret", "absolute/passwd", "", "."]
)
def test_no_path_and_no_link_leads_out(owner: Person, folder: Path, method: str, path: str) -> None:
    outside = folder.parent / "secret"
    outside.write_text("kept")
    (folder / "out").symlink_to("..")
    (folder / "absolute").symlink_to("/etc")
    if method == "GET" and path in ("", "."):
        return  # the disk itself, as a tar
    url_ = f"/api/v1/disks/home/files/{quote(path).replace('..', '%2e%2e')}"
    answer = owner.client.request(method, url_, content=b"evil" if method == "PUT" else None)
    assert answer.status_code in (404, 405, 409, 422), answer.text
    assert outside.read_text() == "kept"
    assert b"kept" not in answer.content
    assert not (Path("/etc") / "passwd").read_bytes().startswith(b"evil")


def test_a_link_is_removed_and_not_what_it_leads_to(owner: Person, folder: Path) -> None:
    outside = folder.parent / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (folder / "link").symlink_to(outside)
    assert owner.client.delete(url("link")).status_code == 204
    assert (outside / "kept").read_text() == "kept"
    assert not os.path.lexists(folder / "link")


def test_a_link_as_workloads_see_it_is_followed(owner: Person, folder: Path) -> None:
    (folder / "real").write_text("content")
    (folder / "inside").symlink_to("/data/home/real")
    (folder / "other").symlink_to("/data/elsewhere/real")
    assert owner.client.get(url("inside")).text == "content"
    assert owner.client.get(url("other")).status_code == 404


def test_a_full_disk_takes_no_file(site: Site, owner: Person, folder: Path) -> None:
    disk_id = owner.get("/disks/home")["id"]
    with site.platform.database.write() as connection:
        disks.note_usage(connection, disk_id, GIB - 10, 1, site.clock.now())
    assert owner.client.put(url("small"), content=b"x" * 10).status_code == 204
    refused = owner.client.put(url("more"), content=b"x")
    assert refused.status_code == 413
    assert "resize" in refused.json()["hint"]
    with site.platform.database.write() as connection:
        disks.note_usage(connection, disk_id, GIB - 10, 1, site.clock.now())
    assert owner.client.put(url("large"), content=b"x" * 11).status_code == 413
    assert sorted(path.name for path in folder.iterdir()) == ["small"]
    assert list(folder.parent.iterdir()) == [folder], "what was refused leaves nothing"


def test_a_block_disk_and_a_deleted_one_show_no_files(site: Site, owner: Person) -> None:
    given_disk(site, owner, "block", kind=DiskKind.BLOCK)
    answer = owner.client.get("/api/v1/disks/block/files")
    assert (answer.status_code, "attached" in answer.json()["detail"]) == (409, True)
    home = given_disk(site, owner)
    assert owner.client.delete("/api/v1/disks/home").status_code == 200
    assert owner.client.get(f"/api/v1/disks/{home.id}/files").status_code == 409


def test_new_files_belong_to_the_teams_user(site: Site, owner: Person, folder: Path) -> None:
    assert owner.client.put(url("a/b"), content=b"x").status_code == 204
    assert (folder / "a" / "b").stat().st_uid == folder.stat().st_uid
    assert (folder / "a").stat().st_uid == folder.stat().st_uid
