"""What an instance wrote over its container image, and that image, as one container image of its own.

Both are taken as files: what the layer removed is left out, what it has hides the image's. Files that the
layer does not have are the image's very own, by hard links, which the store makes read-only anyway.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from starverse.checkpoint.removing import remove_tree
from starverse.domain.workloads.sub_ids import SUB_IDS_EACH
from starverse.node.disk_trees import TreeFault, copy_tree
from starverse.node.images.odd import ODD_BYTES_MAX, ODD_MAX, Odd, is_plain
from starverse.node.images.sandbox import BuildFailed
from starverse.node.sandbox.layered_root import PARTS
from starverse.node.sandbox.oci_root import ABOUT, BESIDE
from starverse.node.trees_as_root import run_as_root

LEFT_OUT = (BESIDE.lstrip("/"), "root/.cache")
"""What the platform put beside the image, and what programs fetch again by themselves."""


@dataclass(frozen=True, slots=True)
class Owners:
    """The host's ids of root inside and of the first of the others; ``None``: they are those inside."""

    root: int | None = None
    others_first: int = 0

    def inside(self, uid: int) -> int:
        if self.root is None:
            return uid
        if self.others_first < uid < self.others_first + SUB_IDS_EACH:
            return uid - self.others_first
        return 0


def merge(image: Path, home: Path, work: Path, target: Path, owners: Owners) -> None:
    """Fill ``target``, an empty folder. Raises :class:`BuildFailed`."""
    layer = work / "layer"
    try:
        copy_tree(home / PARTS[0], layer)
    except TreeFault as error:
        raise BuildFailed(str(error)) from error
    if os.geteuid() == 0:
        lay_over(image, layer, target, owners)
    else:
        found = run_as_root("merge", (str(image), str(layer), str(target)))
        if found is None or "figures" not in found:
            raise BuildFailed("what other users inside own may not be read by the platform's user")
    remove_tree(layer)


def lay_over(image: Path, layer: Path, target: Path, owners: Owners) -> None:
    """As whoever is root over all of it; ``layer`` is used up."""
    subprocess.run(["cp", "--archive", "--link", "--", f"{image}/.", str(target)], check=True)
    target.chmod(0o755)
    about = json.loads((target / ABOUT).read_text("utf-8"))
    made = _Merge(layer, target, owners)
    made.folder("")
    for name in LEFT_OUT:
        remove_tree(target / name)
    said = {str(odd[0]): odd for odd in about["odd"] if not made.has(odd[0])} | made.odd
    kept = [odd for path, odd in sorted(said.items()) if os.path.lexists(f"{target}{path}")]
    (target / ABOUT).unlink()
    (target / ABOUT).write_text(json.dumps({**about, "odd": kept[:ODD_MAX]}, sort_keys=True), "utf-8")


class _Merge:
    """``odd`` of what came from the layer."""

    def __init__(self, layer: Path, target: Path, owners: Owners) -> None:
        self._layer, self._target, self._owners = layer, target, owners
        self.odd: dict[str, Odd] = {}
        self._bytes_left = ODD_BYTES_MAX

    def has(self, path: str) -> bool:
        return os.path.lexists(f"{self._layer}{path}") or path in self.odd

    def folder(self, path: str) -> None:
        for name in sorted(entry.name for entry in (self._layer / path).iterdir()):
            inner = f"{path}/{name}" if path else name
            facts = (self._layer / inner).lstat()
            place = self._target / inner
            if stat.S_ISDIR(facts.st_mode):
                if place.is_symlink() or not place.is_dir() or _hides(self._layer / inner):
                    remove_tree(place)
                    place.mkdir()
                self._note(inner, facts)
                self.folder(inner)
            elif stat.S_ISREG(facts.st_mode) or stat.S_ISLNK(facts.st_mode):
                remove_tree(place)
                (self._layer / inner).rename(place)
                os.chown(place, os.geteuid(), os.getegid(), follow_symlinks=False)
                self._note(inner, facts)
            elif stat.S_ISCHR(facts.st_mode):
                remove_tree(place)

    def _note(self, path: str, facts: os.stat_result) -> None:
        """As ``find_odd`` does for what comes from a registry."""
        uid, gid = self._owners.inside(facts.st_uid), self._owners.inside(facts.st_gid)
        mode = stat.S_IMODE(facts.st_mode)
        if stat.S_ISLNK(facts.st_mode) or is_plain(mode, uid, gid):
            return
        if stat.S_ISREG(facts.st_mode):
            self._bytes_left -= facts.st_size
        if stat.S_ISDIR(facts.st_mode) or self._bytes_left >= 0:
            self.odd[f"/{path}"] = (f"/{path}", mode, uid, gid)


def _hides(folder: Path) -> bool:
    """Whether nothing of the image's folder of this name is seen."""
    try:
        return os.getxattr(folder, "user.overlay.opaque") == b"y"
    except OSError:
        return False
