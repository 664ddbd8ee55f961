"""A virtual environment at the place where it will be shown, filled by uv, or by pip where uv is not there.

Wheels only: nothing of what is installed is run while the network is there. Compiled files are made
afterwards by the interpreter alone, without what the packages brought, and hold without the time of their
source.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from starverse.domain.catalog.image_recipes import Recipe, normal_name
from starverse.domain.catalog.images import MOUNT_POINT
from starverse.node.images.sandbox import BuildFailed, Room, last_words, run


@dataclass(frozen=True, slots=True)
class Interpreter:
    """``version`` is ``3.11``."""

    path: str
    version: str


def find_interpreter(wanted: str) -> Interpreter:
    """The host's own Python of this version, else the platform's: both are seen in every sandbox.

    Raises :class:`BuildFailed` naming those that there are.
    """
    found = {each.version: each for each in reversed(interpreters())}
    if not found:
        raise BuildFailed("there is no Python 3 on this machine to build an image with")
    if not wanted:
        return interpreters()[0]
    if wanted not in found:
        raise BuildFailed(f"there is no Python {wanted} here; there is {', '.join(sorted(found))}")
    return found[wanted]


def interpreters() -> list[Interpreter]:
    """Those below ``/usr``, newest first but for the host's default, which leads; then the platform's."""
    own = os.path.realpath(Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}"))
    default = os.path.realpath("/usr/bin/python3")
    names = [default, *map(str, sorted(Path("/usr/bin").glob("python3.[0-9]*"), reverse=True)), own]
    found: dict[str, Interpreter] = {}
    for name in names:
        version = re.fullmatch(r"python(3\.\d+)", Path(name).name)
        if version is not None and os.access(name, os.X_OK):
            found.setdefault(version[1], Interpreter(name, version[1]))
    return list(found.values())


def find_uv() -> str:
    """uv on the path, or beside the platform's Python; ``""``: not there."""
    places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    found = shutil.which("uv", path=places)
    return os.path.realpath(found) if found else ""


def has_pip() -> bool:
    """Whether the platform's Python has pip."""
    asked = [
        sys.executable,
        "-I",
        "-c",
        "import importlib.util as u; raise SystemExit(not u.find_spec('pip'))",
    ]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def choose_installer(asked: str) -> str:
    """``uv`` or ``pip``: the one that is asked for, or the first that is here (``auto``)."""
    here = [name for name, there in (("uv", bool(find_uv())), ("pip", has_pip())) if there]
    if asked in here:
        return asked
    if asked == "auto" and here:
        return here[0]
    missing = "uv and pip are" if asked == "auto" else f"{asked} is"
    raise BuildFailed(f"{missing} not installed where the platform runs: pip install uv")


def build(room: Room, recipe: Recipe, installer: str) -> Interpreter:
    """Fill the room's ``root``, which the sandbox shows at its place; raises :class:`BuildFailed`."""
    root, log, temporary = room.root, room.log, room.temporary
    python, uv = find_interpreter(recipe.python), find_uv()
    create = [python.path, "-I", "-m", "venv", "--without-pip", MOUNT_POINT]
    if installer == "uv":
        create = [uv, "venv", "--quiet", "--no-cache", "--no-python-downloads", "--allow-existing"]
        create += ["--python", python.path, MOUNT_POINT]
    if run(room, create):
        raise BuildFailed(f"no virtual environment could be made: {last_words(log)}")
    if recipe.packages:
        (temporary / "requirements.txt").write_text(recipe.requirements(), "utf-8")
        if run(room, _install_command(recipe, installer, uv), network=True):
            raise BuildFailed(f"the packages could not be installed: {last_words(log)}")
    compiling = ["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", f"{MOUNT_POINT}/lib"]
    run(room, [python.path, "-I", "-S", *compiling])  # what cannot be compiled is none of ours
    _tidy(root)
    return python


def _install_command(recipe: Recipe, installer: str, uv: str) -> list[str]:
    if installer == "uv":
        command = [
            uv,
            "pip",
            "install",
            "--quiet",
            "--no-cache",
            "--link-mode",
            "copy",
            "--no-python-downloads",
        ]
    else:
        command = [
            sys.executable,
            "-I",
            "-m",
            "pip",
            "--python",
            f"{MOUNT_POINT}/bin/python",
            "install",
            "--quiet",
        ]
        command += ["--no-cache-dir", "--no-compile", "--no-input", "--disable-pip-version-check"]
    if installer == "uv":
        command += ["--python", f"{MOUNT_POINT}/bin/python"]
    if recipe.hashed:
        command.append("--require-hashes")
    return [*command, "--only-binary", ":all:", "-r", "/tmp/requirements.txt"]


def _tidy(root: Path) -> None:
    """Take away what tells when, by whom and with what it was built, and is used by nobody."""
    for name in ("CACHEDIR.TAG", ".lock", ".gitignore"):
        (root / name).unlink(missing_ok=True)
    settings = root / "pyvenv.cfg"
    kept = ("home", "include-system-site-packages", "version", "version_info")
    lines = [line for line in settings.read_text("utf-8").splitlines() if line.split("=")[0].strip() in kept]
    settings.write_text("".join(f"{line}\n" for line in sorted(lines)), "utf-8")


def contents(root: Path) -> tuple[str, ...]:
    """``name==version`` of every package that is there, read from its metadata and never imported."""
    found = set()
    for file in root.glob("lib/python3.*/site-packages/*.dist-info/METADATA"):
        fields: dict[str, str] = {}
        for line in file.read_text("utf-8", "replace").splitlines():
            name, colon, value = line.partition(":")
            if not colon:
                break
            fields.setdefault(name.lower(), value.strip())
        if "name" in fields and "version" in fields:
            found.add(f"{normal_name(fields['name'])}=={fields['version']}"[:200])
    return tuple(sorted(found))
