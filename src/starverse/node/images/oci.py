"""Container images: fetched by podman, unpacked in a build's sandbox, run like any other image.

Podman keeps what it fetches in the build's own folder. Which registries it asks, and as whom, is its own
configuration. No program of the image is run. In the store all files are the platform's own; what belongs
to others than root, or is not simply for all to read, is written down, and made so again where there is root
inside.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path

from starverse.checkpoint.beneath import open_beneath
from starverse.domain.catalog.image_recipes import Recipe
from starverse.domain.catalog.images import MOUNT_POINT
from starverse.node.images.odd import ODD_BYTES_MAX, ODD_MAX, Odd, is_plain
from starverse.node.images.places import BuildFolder
from starverse.node.images.sandbox import POLL_SECONDS, BuildFailed, Room, last_words, run
from starverse.node.sandbox.oci_root import ABOUT, REPLACED

NAME = "image"
_LEFT_OUT = ("dev/*", "proc/*", "sys/*", "./dev/*", "./proc/*", "./sys/*")


def is_here() -> bool:
    return shutil.which("podman") is not None


def build(room: Room, recipe: Recipe, folder: BuildFolder) -> tuple[str, ...]:
    """Fill the room's ``root`` with the whole file system; what it says of itself. Raises
    :class:`BuildFailed`."""
    podman = shutil.which("podman")
    if podman is None:
        raise BuildFailed("podman is not installed where the platform runs: apt-get install podman")
    with tempfile.TemporaryDirectory(prefix="starverse-") as short:  # podman takes 50 characters and no more
        command = [podman, "--root", str(folder / "podman"), "--runroot", short]
        command += ["--storage-driver", "vfs", "--cgroup-manager", "cgroupfs"]
        if os.geteuid() != 0:
            command += ["--storage-opt", "vfs.ignore_chown_errors=true"]
        told = _fetch(room, recipe, command)
    shutil.rmtree(folder / "podman", ignore_errors=True)
    odd = find_odd(room.temporary / "root.tar")
    excludes = [f"--exclude={pattern}" for pattern in _LEFT_OUT]
    unpack = ["tar", "--extract", "--file", "/tmp/root.tar", "--directory", MOUNT_POINT, "--no-same-owner"]
    if run(room, [*unpack, *excludes]):
        raise BuildFailed(f"it cannot be unpacked: {last_words(room.log)}")
    return _finish(room.root, json.loads(told or "[]"), odd)


def _fetch(room: Room, recipe: Recipe, command: list[str]) -> str:
    """Have its file system as one archive; what podman tells of it."""
    packed = room.temporary / "root.tar"
    _podman(room, [*command, "pull", "--quiet", recipe.reference], f"{recipe.reference} cannot be had")
    _podman(room, [*command, "create", "--name", NAME, recipe.reference, "true"], "it cannot be unpacked")
    _podman(room, [*command, "export", "--output", str(packed), NAME], "it cannot be unpacked")
    told = subprocess.run([*command, "inspect", NAME], capture_output=True, text=True, check=False).stdout
    if room.uid is not None:
        os.chown(packed, room.uid, room.uid)
    return told


def _podman(room: Room, command: list[str], fault: str) -> None:
    """Run podman, which is trusted, until it ends or an obstacle comes up."""
    with room.log.open("ab") as log:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    while child.poll() is None:
        obstacle = room.obstacle()
        if obstacle:
            child.kill()
            child.wait()
            raise BuildFailed(obstacle)
        time.sleep(POLL_SECONDS)
    if child.returncode:
        raise BuildFailed(f"{fault}: {last_words(room.log)}")


def find_odd(packed: Path) -> list[Odd]:
    """Path, mode, owner and group of what is not root's, or not for all to read and nobody to change.

    Folders all; files as long as few and small, since each is copied where it is made so again.
    """
    found: list[Odd] = []
    bytes_left = ODD_BYTES_MAX
    with tarfile.open(packed) as archive:
        for member in archive:
            if not (member.isdir() or member.isfile()) or is_plain(member.mode, member.uid, member.gid):
                continue
            if member.isfile():
                bytes_left -= member.size
            if len(found) < ODD_MAX and (member.isdir() or bytes_left >= 0):
                path = "/" + member.name.removeprefix("./").lstrip("/")
                found.append((path, member.mode & 0o7777, member.uid, member.gid))
    return sorted(found)


def _finish(root: Path, told: list[dict[str, object]], odd: list[Odd]) -> tuple[str, ...]:
    """Write down the variables that the image sets, and have plain files where ours are shown instead."""
    about = told[0] if told else {}
    config = about.get("Config")
    lines = config.get("Env") if isinstance(config, dict) else None
    variables = dict(line.split("=", 1) for line in lines or () if "=" in line)
    text = json.dumps({"variables": variables, "odd": odd}, sort_keys=True)
    with open_beneath(root, ABOUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as opened:
        os.write(opened.number, text.encode("utf-8", "surrogateescape"))
    if not (root / "etc").is_symlink() and (root / "etc").is_dir():
        with open_beneath(root, "etc", os.O_RDONLY | os.O_DIRECTORY) as opened:
            for name in REPLACED:
                _make_plain(opened.number, name)
    cuda = variables.get("CUDA_VERSION", "")
    image = str(about.get("Image", ""))[:64]
    return tuple(
        line for line in (f"cuda=={cuda}" if cuda else "", f"image=={image}" if image else "") if line
    )


def _make_plain(folder: int, name: str) -> None:
    try:
        if stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
            return
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass
    os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644, dir_fd=folder))
