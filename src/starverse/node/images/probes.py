"""What this machine has for building images: the probes behind ``starverse doctor``."""

from __future__ import annotations

import shutil
import subprocess

from starverse.node.images import conda, venv


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
    else:
        missing.append(("podman, for images of kind oci", "apt-get install podman"))
    return found, missing
