"""What this machine has for building images: the probes behind ``starverse doctor``."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

from starverse.domain.workloads.sub_ids import SUB_IDS_FIRST
from starverse.node.images import conda, venv
from starverse.node.sandbox.sub_ids import NoSubIds, find_sub_ids


def what_builds() -> tuple[list[str], list[tuple[str, str]]]:
    """What there is, in words, and what is missing with its remedy."""
    found, missing = [], []
    uv = venv.find_uv()
    if uv:
        version = subprocess.run([uv, "--version"], capture_output=True, text=True, check=False).stdout
        found.append(" ".join(version.split()[:2]) or "uv")
    if venv.has_pip():
        found.append("pip")
    if not uv:
        missing.append(("uv, which fills images faster than pip", "pip install uv"))
    if conda.is_here():
        unreachable = conda.why_unreachable("conda-forge", base="")
        found.append("py-rattler for conda packages")
        if unreachable:
            missing.append((unreachable, "set images.conda_base to a mirror that this machine reaches"))
    else:
        missing.append(("py-rattler, for images of kind conda", "pip install 'starverse[conda]'"))
    if shutil.which("podman"):
        found.append("podman for container images")
        why, _, remedy = without_root_inside().partition(": ")
        if why:
            missing.append((f"root inside container images ({why})", remedy))
    else:
        missing.append(("podman, for images of kind oci", "apt-get install podman"))
    return found, missing


def without_root_inside(release: str = "", systems: str = "") -> str:
    """Why container images do not run here, or not with root inside, and what helps; ``""``: they do.

    ``release`` of the kernel, and what ``/proc/filesystems`` says: looked up where not given.
    """
    release = release or platform.release()
    least = (5, 19) if os.geteuid() == 0 else (5, 11)  # a root platform shows them by id-mapped mounts
    words = release.replace("-", ".").split(".")[:2]
    if all(word.isdecimal() for word in words) and tuple(map(int, words)) < least:
        return f"Linux {release} does not run them: Linux {least[0]}.{least[1]} or newer"
    if "\toverlay\n" not in (systems or Path("/proc/filesystems").read_text()):
        return "this kernel has no overlay file system: modprobe overlay"
    try:
        find_sub_ids(SUB_IDS_FIRST)
    except NoSubIds as why:
        return str(why)
    return ""
