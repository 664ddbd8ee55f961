"""Disks on the command line: what is sent, the price before, copies, snapshots and syncs to their end."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from starverse.cli.remote.disks import usage_text
from starverse.cli.remote.month_prices import Sized, charged_gib, month_price
from starverse.domain.pricing.price_book_yaml import shipped_price_book
from starverse.domain.pricing.storage import free_gib_shares
from starverse.testing import api_examples as examples
from starverse.testing.command_lines import CommandLine
from starverse.testing.fake_api import FakeApi, Reply


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as fake:
        fake.on("GET", "/disk-prices", examples.disk_prices())
        fake.on("GET", "/disks", {"items": [examples.disk(gib=30)], "next_cursor": None})
        fake.on("GET", "/disks/home", examples.disk(gib=30))
        yield fake


@pytest.fixture
def line(api: FakeApi, tmp_path: Path) -> CommandLine:
    return CommandLine(api.url, tmp_path)


MONTHS = {
    "all of it is free": ((20,), "0.00"),
    "some of it is free": ((30, 100), "16.00"),
    "what was made first has the free ones": ((10, 90, 5), "11.00"),
    "a whole team without any": ((), "0.00"),
}


@pytest.mark.parametrize(("sizes", "price"), MONTHS.values(), ids=MONTHS.keys())
def test_only_what_is_beyond_the_free_gib_costs(sizes: tuple[int, ...], price: str) -> None:
    disks = [Sized(f"d-{number}", "shared", gib) for number, gib in enumerate(sizes)]
    assert month_price(disks, {"shared": Decimal("0.20")}, 50) == Decimal(price)
    charged = charged_gib(disks, 50)
    free = {disk.id: disk.gib - charged[disk.id] for disk in disks}
    assert free == free_gib_shares(shipped_price_book(), [(disk.id, disk.gib) for disk in disks])


def test_the_price_of_a_resize_is_that_of_the_bill_and_says_what_others_lose(
    api: FakeApi, line: CommandLine
) -> None:
    both = [examples.disk(gib=10), examples.disk("z-later", gib=60)]
    api.on("GET", "/disks", {"items": both, "next_cursor": None})
    api.on("PATCH", "/disks/d-home", examples.disk(gib=50))
    said = line.run("disk", "resize", "home", "--size", "50GiB", "--yes").err.splitlines()[0]
    assert said.startswith("price: CNY 0.00 per month: 0 of 50 GiB")
    assert said.endswith("; all disks together CNY 12.00 instead of CNY 4.00")


def test_a_disk_is_made_after_its_price_was_said(api: FakeApi, line: CommandLine) -> None:
    api.on("POST", "/disks", Reply(201, examples.disk("data", state="making")))
    api.on("GET", "/disks/d-data", examples.disk("data", state="making"), examples.disk("data"))
    ran = line.run("disk", "create", "data", "--size", "100GiB", stdin="n\n", terminal=True)
    assert ran.code == 1
    price, free = ran.err.splitlines()[0].split("; ")
    assert price == "price: CNY 16.00 per month: 80 of 100 GiB at CNY 0.20"
    assert free == "the other 20 are among the team's 50 free ones"
    assert not api.requests("POST", "/disks")
    ran = line.run("disk", "create", "data", "--size", "1TiB", "--kind", "block", "--yes")
    assert (ran.out, "data is ready" in ran.err) == ("data\n", True)
    assert api.requests("POST", "/disks")[0].json == {"name": "data", "kind": "block", "gib": 1024}


def test_a_disk_begins_as_a_snapshot_that_is_named(api: FakeApi, line: CommandLine) -> None:
    api.on("POST", "/disks", Reply(201, examples.disk("data")))
    api.on("GET", "/disks/home/snapshots", {"items": [examples.snapshot("夜")], "next_cursor": None})
    words = ("disk", "create", "data", "--size", "100", "--yes", "--from-snapshot")
    assert line.run(*words, "home/夜").code == 0
    assert line.run(*words, "home/none").code == 3
    assert [seen.json["from_snapshot"] for seen in api.requests("POST", "/disks")] == ["s-夜"]


def test_a_disk_grows_after_its_new_price_was_said(api: FakeApi, line: CommandLine) -> None:
    api.on("PATCH", "/disks/d-home", examples.disk(gib=200))
    assert line.run("disk", "resize", "home", "--size", "200GiB").code == 2
    ran = line.run("disk", "resize", "home", "--size", "200GiB", "--yes")
    assert ran.err.startswith("price: CNY 30.00 per month: 150 of 200 GiB at CNY 0.20; the other 50 are")
    assert api.requests("PATCH", "/disks/d-home")[0].json == {"gib": 200}


@pytest.mark.parametrize("size", ["0", "-1", "1.5GiB", "100MiB", "big", ""])
def test_what_is_no_size_is_told(line: CommandLine, api: FakeApi, size: str) -> None:
    ran = line.run("disk", "create", "data", f"--size={size}", "--yes")
    assert (ran.code, "such as 100GiB or 2TiB" in ran.err) == (2, True)
    assert api.seen == []


def placed(state: str, message: str = "", instance_id: str = "0191-lab") -> dict[str, Any]:
    place = {
        "instance": "lab", "instance_id": instance_id, "state": state, "target": "/data/home",
        "message": message, "asked_at": "2026-03-10T11:59:00Z",
    }  # fmt: skip
    earlier = {**place, "state": "detached", "asked_at": "2026-03-10T11:00:00Z"}
    return examples.disk(attachments=[earlier, place])


MOVES = {
    "in": (
        ("attach", "home", "lab"),
        [placed("attaching"), placed("attaching"), placed("attached")],
        (0, "home is attached in lab at /data/home\n"),
    ),
    "in, refused": (
        ("attach", "home", "lab"),
        [placed("attaching"), placed("refused", "written by job 7")],
        (5, "home is refused in lab: written by job 7\n"),
    ),
    "in, of one that is stopped": (
        ("attach", "home", "lab"),
        [examples.disk(attachments=[])],
        (0, "lab has it at its next start: home\n"),
    ),
    "in, of one that had it in an earlier run": (
        ("attach", "home", "lab"),
        [placed("detached")],
        (0, "lab has it at its next start: home\n"),
    ),
    "in, too slow": (
        ("attach", "home", "lab"),
        [placed("attaching")],
        (9, "home is attaching in lab at /data/home\n"),
    ),
    "out": (
        ("detach", "home", "lab"),
        [placed("detaching"), placed("detached")],
        (0, "home is detached from lab\n"),
    ),
    "out, stuck": (
        ("detach", "home", "lab"),
        [placed("detaching"), placed("stuck", "python (12) has a file open")],
        (5, "home is stuck in lab: python (12) has a file open\n"),
    ),
}


@pytest.mark.parametrize(("words", "seen", "ended"), MOVES.values(), ids=MOVES.keys())
def test_a_disk_is_followed_to_where_it_really_is(
    api: FakeApi,
    line: CommandLine,
    words: tuple[str, ...],
    seen: list[dict[str, Any]],
    ended: tuple[int, str],
) -> None:
    api.on("GET", "/instances/lab", examples.instance())
    api.on("POST", f"/disks/home:{words[0]}", seen[0])
    api.on("GET", "/disks/d-home", *seen[1:] or seen)
    ran = line.run("disk", *words)
    assert (ran.code, ran.err) == ended
    assert sum(line.waited) < 40


def test_where_a_disk_is_to_be_seen_and_whether_it_can_be_written(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/instances/31", examples.instance())
    api.on("POST", "/disks/home:attach", placed("attached"))
    line.run("disk", "attach", "home", "31", "--path", "/data/x y", "--read-only")
    body = api.requests("POST", "/disks/home:attach")[0].json
    assert body == {"instance": "0191-lab", "read_only": True, "path": "/data/x y"}


def test_a_stuck_disk_names_its_attachment_which_an_operator_clears(api: FakeApi, line: CommandLine) -> None:
    stuck = {**placed("stuck", "a file is open")["attachments"][1], "id": "att-1"}
    api.on("GET", "/disks/home", examples.disk(attachments=[stuck]))
    api.on("POST", "/admin/attachments/att-1:clear", Reply(204))
    assert "a file is open (attachment att-1)" in line.run("disk", "show", "home").out
    waiting = {**stuck, "disk": "home", "team": "lab", "kind": "block", "nodes": ["gpu-1"], "job": "7"}
    api.on("GET", "/admin/attachments", {"items": [waiting], "next_cursor": None})
    told = line.run("admin", "disk", "ls").out
    assert all(word in told for word in ("att-1", "home", "gpu-1", "a file is open"))
    assert line.run("admin", "disk", "clear", "att-1").code == 2
    assert line.run("admin", "disk", "clear", "att-1", stdin="n\n", terminal=True).code == 1
    assert not api.requests("POST", "/admin/attachments/att-1:clear")
    assert line.run("admin", "disk", "clear", "att-1", "--yes").code == 0


def test_deleting_asks_and_says_for_how_long_it_can_come_back(api: FakeApi, line: CommandLine) -> None:
    api.on("DELETE", "/disks/d-home", Reply(204))
    api.on("POST", "/disks/home:restore", examples.disk())
    ran = line.run("disk", "rm", "home", stdin="n\n", terminal=True)
    assert (ran.code, "12.0 GiB on it" in ran.err) == (1, True)
    assert line.run("disk", "rm", "home").code == 2
    assert not api.requests("DELETE", "/disks/d-home")
    assert "starverse disk restore d-home" in line.run("disk", "rm", "home", "--yes").err
    assert line.run("disk", "restore", "home").code == 0


def test_what_was_never_made_cannot_come_back(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/disks/home", {**examples.disk(), "state": "failed"})
    api.on("DELETE", "/disks/d-home", Reply(204))
    said = line.run("disk", "rm", "home", "--yes").err
    assert "never made" in said
    assert "restore" not in said


def test_files_are_copied_onto_a_disk_and_off_it(api: FakeApi, line: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "甲 1.yaml").write_text("x")
    api.on("PUT", "/disks/%E6%88%91%E7%9A%84/files/in/conf/%E7%94%B2%201.yaml", Reply(204))
    api.on("GET", "/disks/home/files/out/b.bin", Reply(200, b"\x00\x01"))
    assert line.run("disk", "cp", "conf", "我的:in/").code == 0
    assert line.run("disk", "cp", "home:/out/b.bin", ".").code == 0
    assert (tmp_path / "b.bin").read_bytes() == b"\x00\x01"
    assert line.run("disk", "cp", "home:out/b.bin", "-").out == "\x00\x01"
    assert line.run("disk", "cp", "a", "b").code == 2


def test_links_that_lead_elsewhere_are_left_out_by_name_and_all_else_is_copied(
    api: FakeApi, line: CommandLine, tmp_path: Path
) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as archive:
        for name, target in (("bin/python", "/usr/bin/python3"), ("up", "../.."), ("inner", "last")):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        archive.addfile(tarfile.TarInfo("last"))
    answer = Reply(200, raw.getvalue(), {"Content-Type": "application/x-tar"})
    api.on("GET", "/disks/home/files/venv", answer)
    ran = line.run("disk", "cp", "home:venv", "got")
    assert (ran.code, "links that lead elsewhere: bin/python, up" in ran.err) == (0, True)
    assert sorted(path.name for path in (tmp_path / "got").iterdir()) == ["inner", "last"]

    (tmp_path / "got" / "away").symlink_to("/etc/hostname")
    for name in ("inner", "last"):
        api.on("PUT", f"/disks/home/files/got/{name}", Reply(204))
    ran = line.run("disk", "cp", "got", "home:")
    assert (ran.code, "links that lead elsewhere: away" in ran.err) == (0, True)


def test_commands_that_are_named_can_be_pasted_whatever_the_disk_is_called(
    api: FakeApi, line: CommandLine
) -> None:
    block = examples.disk("my disk") | {"kind": "block"}
    api.on("POST", "/disks", Reply(201, block))
    api.on("GET", "/disks/my%20disk", block)
    api.on("POST", "/disks/my%20disk/snapshots", Reply(201, examples.snapshot("at noon")))
    ran = line.run("disk", "create", "my disk", "--kind", "block", "--size", "1GiB", "--yes")
    assert "starverse disk attach 'my disk' INSTANCE" in ran.err
    ran = line.run("disk", "snapshot", "create", "my disk", "--no-wait")
    assert "disk create NAME --kind block --size" in ran.err
    assert "--from-snapshot 'my disk/at noon'" in ran.err


def test_what_is_on_a_disk_is_listed_and_removed(api: FakeApi, line: CommandLine) -> None:
    entry = {"path": "runs/第 7", "kind": "folder", "bytes": 0, "modified_at": "2026-03-10T10:00:00Z"}
    api.on("GET", "/disks/home/files", {"items": [entry], "next_cursor": None})
    api.on("DELETE", "/disks/home/files/runs/%E7%AC%AC%207", Reply(204))
    assert "runs/第 7  folder" in line.run("disk", "files", "home:runs").out
    assert line.run("disk", "files", "home").code == 0
    assert [seen.query["path"] for seen in api.seen if seen.query] == [["runs"]]
    assert line.run("disk", "files", "home:runs/第 7", "--rm").code == 2
    assert line.run("disk", "files", "home", "--rm", "--yes").code == 2
    assert line.run("disk", "files", "./home:x").code == 2
    assert not api.requests("DELETE", "/disks/home/files/runs/%E7%AC%AC%207")
    assert line.run("disk", "files", "home:runs/第 7", "--rm", "--yes").code == 0


@pytest.mark.parametrize("path", ["../x", "a/../../x", "/.."])
def test_a_path_that_leaves_the_disk_is_refused(api: FakeApi, line: CommandLine, path: str) -> None:
    ran = line.run("disk", "cp", f"home:{path}", ".")
    assert (ran.code, "leaves the disk" in ran.err) == (2, True)
    assert api.seen == []


def test_snapshots_are_taken_listed_scheduled_and_removed(api: FakeApi, line: CommandLine) -> None:
    api.on("POST", "/disks/home/snapshots", Reply(201, examples.snapshot(state="making")))
    making = {"items": [examples.snapshot(state="making")], "next_cursor": None}
    api.on("GET", "/disks/home/snapshots", making, {"items": [examples.snapshot()], "next_cursor": None})
    api.on("DELETE", "/disks/home/snapshots/s-before", Reply(204))
    off = examples.disk(snapshot_schedule=None, snapshots_kept=None)
    api.on("PATCH", "/disks/home", examples.disk(), off)
    assert line.run("disk", "snapshot", "create", "home", "--name", "before").out == "before\n"
    assert line.run("disk", "snapshot", "rm", "home", "before").code == 2
    assert line.run("disk", "snapshot", "rm", "home", "other", "--yes").code == 3
    assert line.run("disk", "snapshot", "rm", "home", "before", "--yes").code == 0
    assert line.run("disk", "snapshot", "schedule", "home", "0 3 * * *", "--keep", "7").out == "0 3 * * *\n"
    assert line.run("disk", "snapshot", "schedule", "home", "off").out == "off\n"
    assert [seen.json for seen in api.requests("PATCH", "/disks/home")] == [
        {"snapshot_schedule": "0 3 * * *", "snapshots_kept": 7},
        {"snapshot_schedule": ""},
    ]


SYNC = ("disk", "sync", "start", "home", "pull", "s3:bucket/数据")


def test_a_sync_is_followed_to_its_end(api: FakeApi, line: CommandLine) -> None:
    path = "/disks/home/syncs/y-1"
    api.on("POST", "/disks/home/syncs", Reply(201, examples.sync("queued", bytes_done=0, bytes_total=None)))
    running = examples.sync(bytes_per_second=4_000_000, seconds_left=201)
    api.on("GET", path, running, running, examples.sync("succeeded", files_done=12))
    ran = line.run(*SYNC, "--folder", "data", "--secret", "s3", "--bandwidth", "20MB", "--verify", "-f")
    assert ran.code == 0
    assert ran.err.splitlines() == [
        "queued: 0 B, 3 files",
        "running: 256.0 MiB of 1.0 GiB (25 %), 3 files, 4 MB/s, 3 min 21 s left",
    ]
    assert "succeeded" in ran.out
    assert api.requests("POST", "/disks/home/syncs")[0].json == {
        "direction": "pull",
        "remote": "s3:bucket/数据",
        "folder": "data",
        "secret": "s3",
        "bytes_per_second_max": 20_000_000,
        "verify": True,
    }


def test_a_sync_that_tries_again_says_what_it_met(api: FakeApi, line: CommandLine) -> None:
    again = examples.sync("queued", attempts=1, message="interrupted: connection refused; goes on in 5 s")
    api.on("GET", "/disks/home/syncs/y-1", again, examples.sync("succeeded"))
    ran = line.run("disk", "sync", "show", "home", "y-1", "--follow")
    assert (ran.code, ran.err) == (0, "waiting: interrupted: connection refused; goes on in 5 s\n")


def test_a_sync_that_fails_says_why(api: FakeApi, line: CommandLine) -> None:
    api.on("GET", "/disks/home/syncs/y-1", examples.sync("failed", message="the remote went away"))
    ran = line.run("disk", "sync", "show", "home", "y-1", "--follow")
    assert (ran.code, ran.err) == (1, "failed: the remote went away\n")


def test_a_sync_is_scheduled_and_cancelled(api: FakeApi, line: CommandLine) -> None:
    api.on("POST", "/disks/home/syncs", Reply(201, examples.sync("queued", schedule="30 2 * * *")))
    api.on("DELETE", "/disks/home/syncs/y-1", Reply(204))
    made = line.run("disk", "sync", "schedule", "home", "push", "s3:b", "30 2 * * *")
    assert made.out == "y-1\n"
    body = api.requests("POST", "/disks/home/syncs")[0].json
    assert (body["schedule"], body["verify"], body["direction"]) == ("30 2 * * *", False, "push")
    assert line.run("disk", "sync", "cancel", "home", "y-1").code == 0


RATES = {"20MB": 20_000_000, "512KiB": 524_288, "1.5M/s": 1_500_000, "9000": 9000}


@pytest.mark.parametrize(("typed", "rate"), RATES.items(), ids=RATES.keys())
def test_a_bandwidth_is_read_as_it_is_meant(api: FakeApi, line: CommandLine, typed: str, rate: int) -> None:
    api.on("POST", "/disks/home/syncs", Reply(201, examples.sync()))
    assert line.run(*SYNC, "--bandwidth", typed).code == 0
    sent: Any = api.requests("POST", "/disks/home/syncs")[0].json
    assert sent["bytes_per_second_max"] == rate


@pytest.mark.parametrize("typed", ["0", "fast", "20 parsecs", "-1MB", "0.0001k"])
def test_what_is_no_bandwidth_is_told(line: CommandLine, typed: str) -> None:
    assert line.run(*SYNC, f"--bandwidth={typed}").code == 2


def test_files_that_nobody_counted_are_not_said_to_be_none() -> None:
    found = {"name": "home", "kind": "shared", "gib": 1, "used_bytes": 5, "used_files": None}
    told = usage_text({**found, "price_month": "0", "charged_this_month": "0"})
    assert [line.split(maxsplit=1)[1] for line in told.splitlines() if line.startswith("files")] == [
        "not counted yet"
    ]
