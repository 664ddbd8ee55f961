"""The folder that becomes ``/run/starverse/bin``: Slurm's commands and ours, for scripts in a sandbox.

In its ``lib`` is ``starverse.checkpoint``, which needs the standard library only, for any Python of a job.
"""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from starverse import __version__

LIBRARY = "lib"
_PACKAGE = Path(__file__).resolve().parents[2]
_LIBRARY_INIT = '''"""What any Python of a job can import of starverse; a whole one behind it counts."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)
__version__ = "{version}"
'''

SLURM_COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "sacct", "srun", "salloc")


def write_shims(folder: Path, python: str) -> Path:
    """Write one small executable for each command; answers the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o755)
    calls = {
        name: f"from starverse.cli.slurm.shims import main; raise SystemExit(main({name!r}))"
        for name in SLURM_COMMANDS
    }
    calls["fabric-probe"] = "from starverse.node.fabric_probe import main; raise SystemExit(main())"
    calls["starverse"] = "from starverse.cli.remote.entry import main; raise SystemExit(main())"
    for name, call in calls.items():
        aside = folder / f".{name}.new"
        aside.write_text(
            f"#!/bin/sh\npython={shlex.quote(python)}\n"  # which is elsewhere in a container image
            f'exec "${{STARVERSE_PYTHON:-$python}}" -I -c {shlex.quote(call)} "$@"\n'
        )
        aside.chmod(0o755)
        aside.rename(folder / name)
    _write_library(folder / LIBRARY / "starverse")
    return folder


def _write_library(package: Path) -> None:
    """File by file with a rename each: jobs may be reading the one of an earlier server."""
    modules = sorted((_PACKAGE / "checkpoint").glob("*.py"))
    (package / "checkpoint").mkdir(parents=True, exist_ok=True)
    for place in (package.parent, package, package / "checkpoint"):
        place.chmod(0o755)
    (package / ".init.new").write_text(_LIBRARY_INIT.format(version=__version__))
    (package / ".init.new").replace(package / "__init__.py")
    for module in modules:
        aside = package / "checkpoint" / f".{module.name}.new"
        shutil.copyfile(module, aside)
        aside.replace(package / "checkpoint" / module.name)
    for file in package.rglob("*.py"):
        file.chmod(0o644)
