"""The sandboxes' ``/etc``: what programs are found by, without the pages about them."""

from __future__ import annotations

from pathlib import Path

import pytest

from starverse.node.host_setup import build_etc

ALTERNATIVES = Path("/etc/alternatives")


def test_alternatives_are_those_of_the_host_without_its_manuals(tmp_path: Path) -> None:
    if not ALTERNATIVES.is_dir():
        pytest.skip("this system has no alternatives: they are Debian's")
    seen = build_etc(tmp_path, ("one",)) / "alternatives"
    targets = {link.name: link.readlink() for link in ALTERNATIVES.iterdir() if link.is_symlink()}
    wanted = {name: target for name, target in targets.items() if "/man/" not in str(target)}
    assert {link.name: link.readlink() for link in seen.iterdir() if link.is_symlink()} == wanted
