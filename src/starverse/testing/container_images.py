"""The file system of a small container image, with nothing of this host in it but busybox."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from starverse.node.sandbox.oci_root import ABOUT


def tiny_image(root: Path, about: Mapping[str, object] | None = None) -> Path:
    """No glibc, no Python, no bash, no sshd; ``root`` is made. Needs Debian's busybox-static.

    ``about``: what a finished image tells of itself; ``None``: it is to be built first.
    """
    for name in ("bin", "etc", "tools", "opt/app", "dev", "proc", "tmp", "root"):
        (root / name).mkdir(parents=True)
    busybox = shutil.which("busybox") or ""
    shutil.copy(busybox, root / "bin/busybox")
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for applet in applets:
        if applet != "busybox":
            (root / "bin" / applet).symlink_to("busybox")
    (root / "tools/hello").write_text("#!/bin/sh\necho hello from the image\n")
    (root / "tools/hello").chmod(0o755)
    (root / "etc/os-release").write_text("ID=tiny\n")
    (root / "lib64").symlink_to("lib")
    if about is not None:
        (root / ABOUT).write_text(json.dumps(about))
    return root
