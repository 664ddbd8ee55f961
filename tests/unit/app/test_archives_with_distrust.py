"""Archives from outside: what is sound unpacks as packed, what reaches out is refused by name."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from starverse.app.archives import DEPTH_MAX, UnpackLimits, check_archive, unpack_archive
from starverse.domain.errors import Invalid, TooLarge, Unavailable

LIMITS = UnpackLimits(bytes_max=1024**2, entries_max=50)
Fill = Callable[[tarfile.TarFile], None]


def packed(fill: Fill) -> io.BytesIO:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        fill(archive)
    made.seek(0)
    return made


def put(archive: tarfile.TarFile, name: str, content: bytes = b"x", **fields: object) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    archive.addfile(info, io.BytesIO(content))


def link(archive: tarfile.TarFile, name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> None:
    put(archive, name, b"", type=kind, linkname=target)


def several(*fills: Fill) -> Fill:
    """One after the other."""

    def fill(archive: tarfile.TarFile) -> None:
        for one in fills:
            one(archive)

    return fill


def test_a_sound_folder_unpacks_as_it_was(tmp_path: Path) -> None:
    def fill(archive: tarfile.TarFile) -> None:
        put(archive, "./train.py", b"print(1)\n", mode=0o755)
        put(archive, "data/部分/a.txt", b"a" * 3000, mode=0o4666)
        put(archive, "empty", b"", type=tarfile.DIRTYPE)
        link(archive, "data/latest", "../train.py")

    contents = check_archive(packed(fill), LIMITS)
    assert (contents.entries, contents.bytes) == (4, 3009)
    unpack_archive(packed(fill), tmp_path, LIMITS)
    assert (tmp_path / "train.py").read_bytes() == b"print(1)\n"
    assert stat.S_IMODE((tmp_path / "train.py").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "data/部分/a.txt").stat().st_mode) == 0o644, "no set-user-id bit"
    assert (tmp_path / "empty").is_dir()
    assert (tmp_path / "data/latest").readlink() == Path("../train.py")


@pytest.mark.parametrize(
    ("what", "fill"),
    [
        ("a name that climbs", lambda a: put(a, "../evil")),
        ("a name that climbs in the middle", lambda a: put(a, "a/../../evil")),
        ("an absolute name", lambda a: put(a, "/etc/evil")),
        ("a name that is too long", lambda a: put(a, "n" * 300)),
        ("a folder too deep", lambda a: put(a, "d/" * DEPTH_MAX + "d", b"", type=tarfile.DIRTYPE)),
        ("a file too deep", lambda a: put(a, "d/" * 3000 + "f")),
        ("a path too long", lambda a: put(a, f"{'n' * 200}/" * 11 + "f")),
        ("a link out", lambda a: link(a, "l", "../outside")),
        ("an absolute link", lambda a: link(a, "l", "/etc/passwd")),
        ("a link that climbs late", lambda a: link(a, "d/l", "x/../../../outside")),
        ("an empty link", lambda a: link(a, "l", "")),
        ("a hard link", several(lambda a: put(a, "f"), lambda a: link(a, "h", "f", tarfile.LNKTYPE))),
        ("a device", lambda a: put(a, "dev", b"", type=tarfile.CHRTYPE)),
        ("a block device", lambda a: put(a, "dev", b"", type=tarfile.BLKTYPE)),
        ("a pipe", lambda a: put(a, "pipe", b"", type=tarfile.FIFOTYPE)),
        ("a name twice", several(lambda a: put(a, "f"), lambda a: put(a, "./f"))),
        ("a file below a file", several(lambda a: put(a, "f"), lambda a: put(a, "f/g"))),
        ("a file below a link", several(lambda a: link(a, "l", "d"), lambda a: put(a, "l/g"))),
        ("a link over a folder", several(lambda a: put(a, "d/f"), lambda a: link(a, "d", "e"))),
    ],
)
def test_what_reaches_out_is_refused_and_leaves_nothing(what: str, fill: Fill, tmp_path: Path) -> None:
    with pytest.raises(Invalid) as refused:
        check_archive(packed(fill), LIMITS)
    assert refused.value.faults[0].field == "folder", what
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(Invalid):
        unpack_archive(packed(fill), inside, LIMITS)
    assert [path.name for path in tmp_path.iterdir()] == ["inside"]


@pytest.mark.parametrize(
    "raw",
    [b"", b"not gzip", gzip.compress(b"not tar" * 200), gzip.compress(b"x")[:-5]],
    ids=["empty", "not gzip", "gzip of no tar", "gzip cut short"],
)
def test_what_is_no_archive_is_refused(raw: bytes) -> None:
    with pytest.raises(Invalid):
        check_archive(io.BytesIO(raw), LIMITS)


def test_a_truncated_archive_is_refused() -> None:
    whole = packed(lambda archive: put(archive, "f", bytes(range(256)) * 40)).getvalue()
    with pytest.raises(Invalid):
        check_archive(io.BytesIO(whole[: len(whole) // 2]), LIMITS)


def test_what_there_is_no_room_for_is_not_written(tmp_path: Path) -> None:
    def no_room(size: int) -> None:
        raise Unavailable(f"no room for {size}")

    with pytest.raises(Unavailable, match="no room for 5"):
        unpack_archive(
            packed(lambda a: put(a, "f", b"12345")), tmp_path, replace(LIMITS, require_room=no_room)
        )
    assert list(tmp_path.iterdir()) == []


def test_a_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = packed(lambda archive: put(archive, "zeros", b"\0" * (2 * 1024**2)))
    assert len(bomb.getvalue()) < 10_000
    with pytest.raises(TooLarge):
        check_archive(bomb, LIMITS)

    def many(archive: tarfile.TarFile) -> None:
        for number in range(60):
            put(archive, f"f{number}", b"")

    with pytest.raises(TooLarge):
        check_archive(packed(many), LIMITS)


def test_a_header_that_is_a_bomb_is_refused() -> None:
    def fill(archive: tarfile.TarFile) -> None:
        put(archive, "f", pax_headers={"comment": "x" * (4 * 1024**2)})

    with pytest.raises(Invalid):
        check_archive(packed(fill), UnpackLimits(bytes_max=1024**3))
