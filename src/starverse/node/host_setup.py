"""What an engine finds out once about its host, so that each start need not: tools, Python, cgroups."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from starverse.node.activity import SAMPLE_SECONDS
from starverse.node.cards.hygiene import CLEAN_SECONDS_MAX
from starverse.node.instance_agent import SSHD
from starverse.node.limits import CgroupSupport, find_cgroups
from starverse.node.network.resolvers import find_resolvers, write_resolvers

HOST_ETC = (
    "alternatives",
    "ca-certificates",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "pki",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
)
"""What of the host's ``/etc`` workloads see (a copy): how programs find libraries, time and certificates."""

INTERNET_RESOLVER = "resolv.conf.internet"
"""The file of a sandbox's ``/etc`` that is its ``resolv.conf`` where it has a network of its own."""

INSIDE_UID = 1000
"""The uid and gid of every workload inside its sandbox."""


@dataclass(frozen=True, slots=True)
class HostSetup:
    """``bwrap`` ``""``: not there. ``python_folders`` are shown read-only at their own paths inside.

    ``etc`` is the folder shown as ``/etc``, ``shims`` the one that becomes ``/run/starverse/bin`` (``""``:
    none). ``sshd`` and ``pasta`` are their paths, ``""``: not there. ``look_seconds``: how often instances
    are looked at for evidence of use. ``card_file`` is where the engine's cards are read from, ``""``: from
    the driver. ``clean_seconds_max``: how long a card's memory may take to come back.
    """

    bwrap: str
    bwrap_can_disable_userns: bool
    python: str
    python_folders: tuple[str, ...]
    etc: str
    shims: str
    cgroups: CgroupSupport
    sshd: str = ""
    look_seconds: float = SAMPLE_SECONDS
    card_file: str = ""
    clean_seconds_max: float = CLEAN_SECONDS_MAX
    pasta: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> HostSetup:
        raw = json.loads(text)
        raw["python_folders"] = tuple(raw["python_folders"])
        raw["cgroups"] = CgroupSupport(**raw["cgroups"])
        return cls(**raw)


def read_host_setup(folder: Path, place: Path, nodes: Sequence[str]) -> HostSetup:
    """What the engine found out and left in an allocation's ``folder``; where it left nothing (a node of a
    cluster, known to nobody before) what is found now, with what sandboxes need of it put into ``place``.
    """
    try:
        return HostSetup.from_json((folder / "host.json").read_text())
    except FileNotFoundError:
        return find_host_setup(place, nodes, os.environ.get("STARVERSE_SHIMS", ""))


def find_host_setup(folder: Path, nodes: Sequence[str], shims: str = "") -> HostSetup:
    """Look at this host and build the sandboxes' ``/etc`` in ``folder``; costs a short process and copies."""
    bwrap = shutil.which("bwrap") or ""
    help_text = ""
    if bwrap:
        help_text = subprocess.run([bwrap, "--help"], capture_output=True, text=True, check=False).stdout
    return HostSetup(
        bwrap=bwrap,
        bwrap_can_disable_userns="--disable-userns" in help_text,
        python=sys.executable,
        python_folders=find_python_folders(),
        etc=str(build_etc(folder, nodes)),
        shims=shims,
        cgroups=find_cgroups(),
        pasta=shutil.which("pasta") or "",
        sshd=SSHD if os.access(SSHD, os.X_OK) else "",
    )


def build_etc(folder: Path, nodes: Sequence[str]) -> Path:
    """A new ``folder/etc-N`` with the sandboxes' own passwd, group, hosts and resolver files, and HOST_ETC.

    Running sandboxes keep the one that they were started with.
    """
    folder.mkdir(parents=True, exist_ok=True)
    etc = Path(tempfile.mkdtemp(prefix="etc-", dir=folder))
    etc.chmod(0o755)
    for name in HOST_ETC:
        source, target = Path("/etc", name), etc / name
        target.parent.mkdir(exist_ok=True)
        with contextlib.suppress(OSError, shutil.Error):  # what cannot be read cannot be shown
            if source.is_dir():
                shutil.copytree(
                    source, target, symlinks=name == "alternatives", copy_function=shutil.copyfile
                )
            elif source.exists():
                shutil.copyfile(source, target)
    resolver = Path("/etc/resolv.conf")
    resolver_text = resolver.read_text() if resolver.exists() else ""
    files = {
        "passwd": f"user:x:{INSIDE_UID}:{INSIDE_UID}:user:/root:/bin/bash\n"
        "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        "group": f"user:x:{INSIDE_UID}:\nnogroup:x:65534:\n",
        "hosts": f"127.0.0.1 {' '.join(('localhost', *nodes))}\n::1 localhost ip6-localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "resolv.conf": resolver_text,
        INTERNET_RESOLVER: write_resolvers(resolver_text, find_resolvers()),
    }
    for name, text in files.items():
        (etc / name).write_text(text)
    return etc


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
