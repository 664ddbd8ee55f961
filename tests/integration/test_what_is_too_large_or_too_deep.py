"""Limits of folders and scripts, told to clients and held at the door: what is taken in can be started."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from starverse.app.archives import DEPTH_MAX
from starverse.domain.sbatch.scripts import SCRIPT_BYTES_MAX
from starverse.testing.http_sites import PREFIX, Site, open_site, packed

SCRIPT = "#!/bin/bash\n#SBATCH --gres=gpu:rtx4090:1\n"


@pytest.mark.parametrize("levels", [DEPTH_MAX + 1, 1100, 3000])
def test_a_folder_too_deep_is_refused_with_what_is_right(site: Site, levels: int) -> None:
    person = site.register()
    folder_id, body = packed({"d/" * (levels - 1) + "f": b"x"})
    answer = person.client.put(f"{PREFIX}/folders/{folder_id}", content=body)
    assert answer.status_code == 422
    fault = answer.json()["faults"][0]
    assert f"{levels} levels" in fault["value"] or "header" in fault["expected"]
    assert person.client.head(f"{PREFIX}/folders/{folder_id}").status_code == 404


def test_the_deepest_folder_that_is_taken_in_is_started_listed_and_read(site: Site) -> None:
    person = site.register()
    name = "d/" * (DEPTH_MAX - 1) + "f"
    folder_id, body = packed({name: b"deep"})
    assert person.client.put(f"{PREFIX}/folders/{folder_id}", content=body).status_code == 201
    submitted = person.post("/jobs", {"script": SCRIPT, "folder_id": folder_id})
    number = submitted["job"]["number"]
    site.world.run(5)
    assert person.get(f"/jobs/{number}")["state"] == "running"
    assert person.client.get(f"{PREFIX}/jobs/{number}/files/{name}").content == b"deep"
    tar = person.client.get(f"{PREFIX}/jobs/{number}/files/d").content
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        assert archive.getnames()[-1] == name.removeprefix("d/")


def test_a_folder_is_measured_by_its_files_and_clients_are_told(tmp_path: Path) -> None:
    with open_site("sqlite", tmp_path, folder_bytes_max=2 * 1024**2) as site:
        person = site.register()
        assert person.get("/limits")["folder_bytes_max"] == 2 * 1024**2
        for size, status in ((2 * 1024**2, 201), (2 * 1024**2 + 1, 413)):
            folder_id, body = packed({"zeros": b"\0" * size})
            answer = person.client.put(f"{PREFIX}/folders/{folder_id}", content=body)
            assert answer.status_code == status
        assert "2 MiB" in answer.json()["detail"]


def test_nothing_is_stored_that_the_reserve_has_no_room_for(tmp_path: Path) -> None:
    with open_site("sqlite", tmp_path) as site:
        person = site.register()
        number = person.post("/jobs", {"script": SCRIPT})["job"]["number"]
        assert person.client.put(f"{PREFIX}/jobs/{number}/files/a", content=b"x").status_code == 204
        site.world.settings["disk_reserve_bytes"] = 2**62
        site.world.restart()
        full = open_again(site)
        folder_id, body = packed({"a": b"x"})
        for path in (f"folders/{folder_id}", f"jobs/{number}/files/a"):
            answer = full.client(person.token).put(f"{PREFIX}/{path}", content=body)
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
            assert "reserve" in answer.json()["hint"]
        left = [path.name for path in site.world.data.rglob("*") if path.name.startswith(".incoming")]
        assert left == []


def open_again(site: Site) -> Site:
    from starverse.http.app import make_app

    return Site(site.world, make_app(site.world.platform))


@pytest.mark.parametrize("filling", ["#", "中", "\t"], ids=["plain", "three bytes each", "escaped in JSON"])
def test_a_script_may_have_four_mebibytes_and_not_one_byte_more(site: Site, filling: str) -> None:
    person = site.register()
    room = SCRIPT_BYTES_MAX - len(SCRIPT.encode()) - 1
    script = SCRIPT + "#" + filling * (room // len(filling.encode()))
    script += "#" * (SCRIPT_BYTES_MAX - len(script.encode()))
    assert person.client.post(f"{PREFIX}/jobs", json={"script": script}).status_code == 201
    refused = person.client.post(f"{PREFIX}/jobs", json={"script": script + "#"})
    assert refused.status_code == 422
    assert "4 MiB" in refused.text or str(SCRIPT_BYTES_MAX) in refused.text
