"""Running the product as somebody who is not root, in tests that root starts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from starverse.testing.live_person import clean_environment

ORDINARY_UID = 65534


def ordinary_python(folder: Path) -> str | None:
    """An interpreter with this package that :data:`ORDINARY_UID` may execute; ``None`` where there is none.

    The running one, or else a virtual environment in ``folder`` on the system's Python of the same version,
    whose packages are the running one's by hard links.
    """
    if _can_execute(sys.executable):
        return sys.executable
    system = f"/usr/bin/python3.{sys.version_info.minor}"
    if not _can_execute(system, "import ensurepip, venv"):
        return None
    made = folder / "venv"
    subprocess.run([system, "-m", "venv", "--without-pip", str(made)], check=True, capture_output=True)
    packages = Path("lib", f"python3.{sys.version_info.minor}", "site-packages")
    shutil.rmtree(made / packages)
    try:
        shutil.copytree(Path(sys.prefix) / packages, made / packages, copy_function=os.link)
    except OSError:
        shutil.rmtree(made / packages, ignore_errors=True)
        shutil.copytree(Path(sys.prefix) / packages, made / packages)
    python = str(made / "bin" / "python")
    return python if _can_execute(python) else None


def _can_execute(python: str, code: str = "import starverse.main, starverse.node.launcher") -> bool:
    """Also as a child of what was executed, when no right of root is left."""
    nested = f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', {code!r}]))"
    try:
        done = subprocess.run(
            [python, "-c", nested],
            check=False,
            capture_output=True,
            cwd="/",
            env=clean_environment(),
            user=ORDINARY_UID,
            group=ORDINARY_UID,
            extra_groups=[],
        )
    except OSError:
        return False
    return done.returncode == 0
