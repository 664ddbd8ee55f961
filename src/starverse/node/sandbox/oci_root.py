"""A container image as the root of a sandbox: what is shown of it and of the host, and Python beside it.

The image's own folders stand where the host's would; bubblewrap isolates as ever. The supervisor's Python
and its libraries are the host's, shown below ``/.starverse`` and started by the host's own loader, so that an
image of any libc will do. The driver's libraries are the host's too: those of the kernel module that runs.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from starverse.node.host_setup import HostSetup

ABOUT = ".starverse-image.json"
"""At the top of an image: the variables that it sets."""
REPLACED = ("passwd", "group", "hosts", "resolv.conf")
"""Files of ``/etc`` that are ours in every sandbox."""
BESIDE = "/.starverse"
DRIVER = f"{BESIDE}/driver"
_OURS = frozenset({"proc", "dev", "sys", "tmp", "run", "root", "workspace", "checkpoint", "dataset", "data"})
_LOADER = "/lib64/ld-linux-x86-64.so.2"
_DRIVER_FILES = "libcuda.so.* libnvidia-ml.so.* libnvidia-ptxjitcompiler.so.* libnvidia-nvvm.so.*"


@dataclass(frozen=True, slots=True)
class RootImage:
    """``links`` are (target, path inside) of links at the image's top, such as ``/bin``; ``python`` is how
    the host's Python is started inside."""

    links: tuple[tuple[str, str], ...]
    python: tuple[str, ...]


def is_root_image(image: str) -> bool:
    """Whether an image is a whole file system rather than an environment for ``/opt/image``."""
    return bool(image) and Path(image, ABOUT).is_file()


def look(image: str, host: HostSetup) -> RootImage | None:
    """What has to be known before the team's user is entered, who sees neither image nor Python;
    ``None``: it is no root image."""
    if not is_root_image(image):
        return None
    return RootImage(tuple(_links(image)), tuple(_python_command(host)))


def environment(image: str, programs: str) -> dict[str, str]:
    """What the image sets for every process in it, ours first on its path and the driver's libraries with its
    own."""
    found = json.loads(Path(image, ABOUT).read_text("utf-8"))["variables"]
    variables = {str(name): str(value) for name, value in found.items()}
    path = variables.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    variables["PATH"] = f"{programs}:{path}"
    if driver_files():
        variables["LD_LIBRARY_PATH"] = ":".join(filter(None, (DRIVER, variables.get("LD_LIBRARY_PATH", ""))))
    return variables


def shown(image: str, host: HostSetup) -> list[tuple[str, str]]:
    """(host path, path inside), all read-only: the image's folders, then what is ours beside them."""
    found = []
    for entry in sorted(os.scandir(image), key=lambda entry: entry.name):
        if entry.name not in _OURS and entry.is_dir(follow_symlinks=False):
            found.append((entry.path, f"/{entry.name}"))
    if Path(image, "etc").is_dir():
        found += [(f"{host.etc}/{name}", f"/etc/{name}") for name in REPLACED]
    found += [(path, f"{BESIDE}{path}") for path in ("/usr", *host.python_folders)]
    return found + [(path, f"{DRIVER}/{Path(path).name}") for path in driver_files()]


def _links(image: str) -> list[tuple[str, str]]:
    return [
        (os.readlink(entry.path), f"/{entry.name}")  # noqa: PTH115
        for entry in sorted(os.scandir(image), key=lambda entry: entry.name)
        if entry.name not in _OURS and entry.is_symlink()
    ]


def driver_files() -> list[str]:
    """Libraries of the host's NVIDIA driver; none without one."""
    folder = Path(os.path.realpath(_LOADER)).parent
    return sorted(str(path) for pattern in _DRIVER_FILES.split() for path in folder.glob(pattern))


def _python_command(host: HostSetup) -> list[str]:
    """The host's Python, started by the host's loader with the host's libraries, where they are inside."""
    loader, python = os.path.realpath(_LOADER), os.path.realpath(host.python)
    libraries = [str(Path(loader).parent), str(Path(python).parent.parent / "lib")]
    return [
        f"{BESIDE}{loader}",
        "--library-path",
        ":".join(f"{BESIDE}{path}" for path in libraries),
        f"{BESIDE}{python}",
    ]
