"""What an engine finds out once about its host, so that each start need not: tools, Python, cgroups."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from starverse.node.limits import CgroupSupport, find_cgroups


@dataclass(frozen=True, slots=True)
class HostSetup:
    """``bwrap`` ``""``: not there. ``python_folders`` are shown read-only at their own paths inside.

    ``shims`` is the host folder that becomes ``/run/starverse/bin``, ``""``: none.
    """

    bwrap: str
    bwrap_can_disable_userns: bool
    python: str
    python_folders: tuple[str, ...]
    shims: str
    cgroups: CgroupSupport

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> HostSetup:
        raw = json.loads(text)
        raw["python_folders"] = tuple(raw["python_folders"])
        raw["cgroups"] = CgroupSupport(**raw["cgroups"])
        return cls(**raw)


def find_host_setup(shims: str = "") -> HostSetup:
    """Look at this host; costs two short processes."""
    bwrap = shutil.which("bwrap") or ""
    help_text = ""
    if bwrap:
        help_text = subprocess.run([bwrap, "--help"], capture_output=True, text=True, check=False).stdout
    return HostSetup(
        bwrap=bwrap,
        bwrap_can_disable_userns="--disable-userns" in help_text,
        python=sys.executable,
        python_folders=find_python_folders(),
        shims=shims,
        cgroups=find_cgroups(),
    )


def find_python_folders() -> tuple[str, ...]:
    """The folders that the platform's Python and this package need, without those below ``/usr``.

    Outermost first; a folder below another one of them is left out.
    """
    package = Path(__file__).resolve().parents[1]
    real = Path(os.path.realpath(sys.executable)).parent.parent
    wanted = {Path(sys.prefix), Path(sys.base_prefix), real, package}
    kept: list[Path] = []
    for folder in sorted(wanted, key=lambda path: len(path.parts)):
        if not any(folder.is_relative_to(other) for other in (*kept, Path("/usr"))):
            kept.append(folder)
    return tuple(str(folder) for folder in kept)
