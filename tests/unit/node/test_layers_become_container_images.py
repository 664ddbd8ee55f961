"""What an instance wrote over its container image, and the image, as one image of its own."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from starverse.node.images.merging import Owners, merge
from starverse.node.images.sandbox import BuildFailed
from starverse.node.sandbox.oci_root import ABOUT

TEAM, OTHERS = 200_001, 1_073_807_360


@pytest.fixture
def image(tmp_path: Path) -> Path:
    root = tmp_path / "image"
    for path in ("etc/kept", "etc/removed", "etc/changed", "opt/app/old", "var/lib/old", "srv/www/page"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("of the image")
    (root / "lib").symlink_to("usr/lib")
    odd = [["/srv/www", 0o750, 33, 33], ["/var/lib/old", 0o600, 0, 0]]
    (root / ABOUT).write_text(json.dumps({"variables": {"A": "b"}, "odd": odd}))
    return root


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    layer = tmp_path / "home/upper"
    for path in ("etc/changed", "etc/new", "opt/app/new", "var", "lib/module", ".starverse/prepared"):
        (layer / path).parent.mkdir(parents=True, exist_ok=True)
        (layer / path).write_text("of the layer")
    os.mknod(layer / "etc/removed", stat.S_IFCHR)
    os.setxattr(layer / "opt/app", "user.overlay.opaque", b"y")
    (layer / "tool").write_text("runs")
    (layer / "tool").chmod(0o4755)
    return layer


def told(root: Path) -> dict[str, list[int]]:
    return {path: rest for path, *rest in json.loads((root / ABOUT).read_text())["odd"]}


def test_the_layer_hides_and_removes_and_adds(image: Path, upper: Path, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in image.rglob("*") if path.is_file()}
    made = tmp_path / "made"
    made.mkdir()
    merge(image, upper.parent, tmp_path, made, Owners())
    files = {str(path.relative_to(made)) for path in made.rglob("*") if path.is_file()} - {ABOUT}
    assert files == {
        "etc/kept",
        "etc/changed",
        "etc/new",
        "opt/app/new",
        "var",
        "lib/module",
        "srv/www/page",
        "tool",
    }
    assert (made / "etc/changed").read_text() == "of the layer"
    assert not (made / "lib").is_symlink()
    assert told(made) == {"/srv/www": [0o750, 33, 33], "/tool": [0o4755, 0, 0]}
    assert {path: path.read_bytes() for path in image.rglob("*") if path.is_file()} == before
    assert (upper / "etc/new").exists(), "the instance keeps its own"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_owners_are_who_they_were_inside(image: Path, upper: Path, tmp_path: Path) -> None:
    os.chown(upper / "etc/new", OTHERS + 33, OTHERS + 44)
    os.chown(upper / "tool", TEAM, TEAM)
    (upper / "tool").chmod(0o4755)  # which giving it away took
    os.chown(upper / "var", OTHERS + 70_000, TEAM)
    made = tmp_path / "made"
    made.mkdir()
    merge(image, upper.parent, tmp_path, made, Owners(TEAM, OTHERS))
    assert told(made)["/etc/new"] == [0o644, 33, 44]
    assert told(made)["/tool"] == [0o4755, 0, 0]
    assert "/var" not in told(made), "an id of another team is none inside"
    assert (made / "etc/new").stat().st_uid == 0


def test_a_layer_too_deep_is_said(image: Path, upper: Path, tmp_path: Path) -> None:
    deep = upper / "/".join(["d"] * 220)
    deep.mkdir(parents=True)
    made = tmp_path / "made"
    made.mkdir()
    with pytest.raises(BuildFailed, match="levels of folders"):
        merge(image, upper.parent, tmp_path, made, Owners())
