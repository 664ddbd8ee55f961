"""A container image as the root of a sandbox: whose it is inside, what is ours beside it, and Python there.

The image's own files stand where the host's would, with a writable layer over them; bubblewrap isolates as
ever. The supervisor's Python, sshd and their libraries are the host's, shown below ``/.starverse`` and
started by the host's own loader, so that an image of any libc will do. The driver's libraries are the host's
too: those of the kernel module that runs.

Where the host has ids for it, the workload is root inside: uid 0 of a user namespace in which it may change
owners, become other users of the image, and nothing of the host's; else it is the one user that all files of
the image belong to.
"""

from __future__ import annotations

import json
import os
import shlex
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from starverse.domain.workloads.launch import LaunchSpec
from starverse.node.folder import AllocationFolder
from starverse.node.host_setup import INSIDE_UID, HostSetup
from starverse.node.sandbox.layered_root import PARTS, PLACE, UPPER, LayeredRoot
from starverse.node.sandbox.sub_ids import NoSubIds, SubIds, find_sub_ids

ABOUT = ".starverse-image.json"
"""At the top of an image: the variables that it sets, and what of its files has odd owners or modes."""
REPLACED = ("passwd", "group", "hosts", "resolv.conf")
"""Files of ``/etc`` that are ours in a sandbox of one user; with root inside, the last two."""
BESIDE = "/.starverse"
DRIVER = f"{BESIDE}/driver"
PASSWD = "passwd"
"""In the run folder: the users where there is one only."""
PYTHON = "python"
"""In the run folder: starts the host's Python, with our packages where it runs a line of ours."""
LONE_USER_WRITES = ("root", "home", "opt", "srv", "tmp", "var/tmp", "var/cache", "var/log", "usr/local")
"""Folders of an image that its one user writes where there is no root; in the store none is writable."""
_SSHD_PARTS = (("SshdSessionPath", "sshd-session"), ("SshdAuthPath", "sshd-auth"))
_SSHD_FOLDERS = ("/usr/lib/openssh", "/usr/libexec/openssh", "/usr/libexec", "/usr/lib/ssh")
_LOADER = "/lib64/ld-linux-x86-64.so.2"
_DRIVER_FILES = "libcuda.so.* libnvidia-ml.so.* libnvidia-ptxjitcompiler.so.* libnvidia-nvvm.so.*"


@dataclass(frozen=True, slots=True)
class RootImage:
    """``starter`` is the host's loader and where it finds libraries, ``python`` how the host's Python is
    started by it; ``layers`` is the image with what is written over it."""

    starter: tuple[str, ...]
    python: tuple[str, ...]
    layers: LayeredRoot

    @property
    def is_root_inside(self) -> bool:
        return self.layers.ids is not None


def is_root_image(image: str) -> bool:
    """Whether an image is a whole file system rather than an environment for ``/opt/image``."""
    return bool(image) and Path(image, ABOUT).is_file()


def look(spec: LaunchSpec, folder: AllocationFolder, host: HostSetup) -> RootImage | None:
    """What has to be known before the team's user is entered, who sees neither image nor Python;
    ``None``: it is no root image."""
    if not is_root_image(spec.image):
        return None
    layers = LayeredRoot(spec.image, str(_layer(spec, folder)), str(folder / PLACE), ids_of(spec))
    return RootImage(_starter(), _python_command(host), layers)


def ids_of(spec: LaunchSpec) -> SubIds | None:
    """The ids for users inside; ``None``: there is the one user only."""
    try:
        return find_sub_ids(spec.sub_ids_first)
    except NoSubIds:
        return None


def make_layer(spec: LaunchSpec, folder: AllocationFolder, host: HostSetup, owner: int | None) -> None:
    """What has to lie in the folders before the start; of an instance it is there since its first one."""
    layer = _layer(spec, folder)
    is_new = not (layer / UPPER).is_dir()
    for path, mode in ((folder / PLACE, 0o700), (layer, 0o700), *((layer / part, 0o755) for part in PARTS)):
        _make_folder(path, mode, owner)
    if is_new and ids_of(spec) is None:
        open_to_lone_user(Path(spec.image), layer / UPPER, owner)
    script = folder.run / PYTHON
    script.write_text(_python_script(host))
    script.chmod(0o755)
    user = f"user:x:{INSIDE_UID}:{INSIDE_UID}:user:/root:{_shell(spec.image)}\n"
    (folder.run / PASSWD).write_text(f"{user}root:x:0:0:root:/root:/bin/false\n")


def open_to_lone_user(image: Path, upper: Path, owner: int | None) -> None:
    """Have those of :data:`LONE_USER_WRITES` that the image has writable in a layer that nobody used yet."""
    for wanted in LONE_USER_WRITES:
        for part in (*reversed(Path(wanted).parents[:-1]), Path(wanted)):
            if not stat.S_ISDIR(_mode(image / part)):
                break  # not in the image, or a link to elsewhere
            _make_folder(upper / part, 0o755, owner)


def _mode(path: Path) -> int:
    try:
        return path.lstat().st_mode
    except OSError:
        return 0


def _make_folder(path: Path, mode: int, owner: int | None) -> None:
    if path.is_dir():
        return
    path.mkdir(mode=mode, parents=True)
    path.chmod(mode)
    if owner is not None:
        os.chown(path, owner, owner)


def _layer(spec: LaunchSpec, folder: AllocationFolder) -> Path:
    """Of an instance its home, which stays with it; else one that goes with the allocation."""
    return Path(spec.home) if spec.home else folder / "layer"


def environment(image: str, programs: str, *, root: bool) -> dict[str, str]:
    """What the image sets for every process in it, ours first on its path and the driver's libraries with its
    own; whom its user is called."""
    found = json.loads(Path(image, ABOUT).read_text("utf-8"))["variables"]
    variables = {str(name): str(value) for name, value in found.items()}
    path = variables.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    variables["PATH"] = f"{programs}:{path}"
    if driver_files():
        variables["LD_LIBRARY_PATH"] = ":".join(filter(None, (DRIVER, variables.get("LD_LIBRARY_PATH", ""))))
    if root:
        variables |= {"USER": "root", "LOGNAME": "root"}
    return variables | {"SHELL": _shell(image)}


def _shell(image: str) -> str:
    has_bash = any(Path(image, path).is_file() for path in ("bin/bash", "usr/bin/bash"))
    return "/bin/bash" if has_bash else "/bin/sh"


def shown(host: HostSetup, root: RootImage, run: Path) -> list[tuple[str, str]]:
    """(host path, path inside) of what is ours in and beside the image, all read-only."""
    found = [(f"{host.etc}/{name}", f"/etc/{name}") for name in ("hosts", "resolv.conf")]
    if not root.is_root_inside:
        found += [(str(run / PASSWD), "/etc/passwd"), (f"{host.etc}/group", "/etc/group")]
    found += [(path, f"{BESIDE}{path}") for path in ("/usr", *host.python_folders)]
    return found + [(path, f"{DRIVER}/{Path(path).name}") for path in driver_files()]


def folder_arguments(home: str, targets: list[str]) -> list[str]:
    """For bubblewrap: the folders above what is shown, which every user inside may pass."""
    above = {str(parent) for target in targets for parent in Path(target).parents}
    return [word for path in sorted({home} | above - {"/"}) for word in ("--dir", path)]


def driver_files() -> list[str]:
    """Libraries of the host's NVIDIA driver; none without one."""
    folder = Path(os.path.realpath(_LOADER)).parent
    return sorted(str(path) for pattern in _DRIVER_FILES.split() for path in folder.glob(pattern))


def _starter(*first: str) -> tuple[str, ...]:
    """The host's loader with the host's libraries, where they are inside; those of the folders ``first``
    before others of their names."""
    loader = os.path.realpath(_LOADER)
    libraries = [*first, str(Path(loader).parent)]
    return f"{BESIDE}{loader}", "--library-path", ":".join(f"{BESIDE}{path}" for path in libraries)


def _python_command(host: HostSetup) -> tuple[str, ...]:
    """The host's Python with the ``libpython`` that it came with: another one's would lack what it needs."""
    python = os.path.realpath(host.python)
    return *_starter(str(Path(python).parent.parent / "lib")), f"{BESIDE}{python}"


def sshd_parts(folders: Sequence[str] = _SSHD_FOLDERS) -> dict[str, tuple[str, str]]:
    """Of an sshd that is several programs (OpenSSH 9.8 and newer) the option that names each of the others,
    with a name and a script for it: inside, they too are started by the host's loader."""
    found = {}
    for option, name in _SSHD_PARTS:
        place = next((f"{folder}/{name}" for folder in folders if Path(folder, name).is_file()), "")
        if place:
            command = shlex.join((*_starter(), f"{BESIDE}{place}"))
            found[option] = (name, f'#!/bin/sh\nexec {command} "$@"\n')
    return found


def _python_script(host: HostSetup) -> str:
    """``-I -c CODE`` finds our packages by a line put before; they are not where its ``site`` looks."""
    start = shlex.join(_python_command(host))
    folders = [f"{BESIDE}{path}" for path in sys.path if path and Path(path).is_dir()]
    line = f"import sys; sys.path += {folders!r}"
    return f"""#!/bin/sh
if [ "$1 $2" = "-I -c" ]; then
    code=$3
    shift 3
    exec {start} -I -S -c {shlex.quote(line)}"
$code" "$@"
fi
exec {start} "$@"
"""
