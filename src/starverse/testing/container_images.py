"""The file system of a small container image, with nothing of this host in it but busybox."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def tiny_image(root: Path) -> Path:
    """No glibc, no Python, no bash, no sshd; ``root`` is made. Needs Debian's busybox-static."""
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
    return root
