"""What the launchers of one allocation on several nodes tell each other, and the parts they share.

The launcher on the first node is the head: it alone claims, runs the script and reports. The others are
companions: each keeps a sandbox in which ``srun`` of the script starts ranks. A companion dials the head by
TLS (``head.json`` in the allocation's folder says where), tells its whole :class:`LauncherState` and hears
the whole :class:`Order`, each second and on change; the platform need not be up for that.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from starverse.domain.workloads.launch import PROTOCOL_VERSION, LaunchSpec
from starverse.domain.workloads.lines import read_fields
from starverse.node.folder import AllocationFolder, write_atomically

HEAD_FILE = "head.json"
START_SECONDS_MAX = 60.0
"""For all launchers of an allocation to come, and then for all of their sandboxes to stand."""

SILENT_SECONDS_MAX = 15.0
"""A launcher not heard of for so long, though its connection may stand, is lost."""

AWAY_SECONDS_MAX = 3.0
"""For a companion whose connection ended to be back."""

END_SECONDS_MAX = 10.0
"""For the companions to end what is left, when the head has ended."""

STREAMS_OPEN_MAX = 128
"""Ways to one node at once, with those that wait: what its companion has open files and threads for."""

RANKS_SOCKET = "ranks.sock"
"""In a node's run folder: where the agent that starts ranks reaches its launcher."""

GANG_SOCKET = "gang.sock"
"""In the head's run folder: where ``srun`` asks for a way to another node's agent."""

AGENT_SCRIPT = """#!/bin/sh
exec "$STARVERSE_PYTHON" -I -c 'from starverse.cli.slurm.rank_agent import main; raise SystemExit(main())'
"""
"""What runs in a companion's sandbox in place of the job's script."""


@dataclass(frozen=True, slots=True)
class HeadFile:
    """Where the head listens (``addresses``: comma list of ``HOST:PORT``) and how to trust each other."""

    addresses: str
    authority: str
    token: str

    def write(self, folder: AllocationFolder) -> None:
        write_atomically(folder / HEAD_FILE, json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: AllocationFolder) -> HeadFile | None:
        """``None``: not there yet."""
        try:
            return cls(**read_fields(cls, (folder / HEAD_FILE).read_text()))
        except (FileNotFoundError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Order:
    """What the head wants of every companion, whole each time.

    ``hosts`` (node, address) is empty until all are there; then sandboxes are to start. ``stop`` is ``term``
    or ``kill``, ``""``: go on. ``end``: kill what is left, and go. ``streams`` are ids of connections that
    wait for this node. ``signal_name`` is sent to the ranks once for each ``signal_count``.
    """

    hosts: tuple[tuple[str, str], ...] = ()
    notice_reason: str = ""
    notice_deadline: float = 0.0
    stop: str = ""
    end: bool = False
    streams: tuple[str, ...] = ()
    signal_count: int = 0
    signal_name: str = ""

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Order:
        """Unknown keys of a newer head are passed over; raises ``ValueError`` on anything else wrong."""
        return cls(**read_fields(cls, text))


def gang_hello(spec: LaunchSpec, token: str, **more: str | int) -> bytes:
    """A companion's first line to the head; ``more``: ``kind`` and what goes with it."""
    hello = {"version": PROTOCOL_VERSION, "allocation_id": spec.allocation_id, "token": token, **more}
    return json.dumps(hello).encode() + b"\n"


def part_of(spec: LaunchSpec, index: int) -> LaunchSpec:
    """What one node has of a launch: its name, its cards. Several nodes need the host's network."""
    names = spec.node_names
    node = names[index]
    network = "host" if len(names) > 1 else spec.network
    return replace(spec, node=node, nodes=names, cards=spec.cards_of(node), network=network)


def companions_part(spec: LaunchSpec, index: int) -> LaunchSpec:
    """The same for a companion, whose script is the agent that starts ranks."""
    return replace(part_of(spec, index), script=AGENT_SCRIPT, arguments=(), chdir=".", template=None)


def companions_place(folder: AllocationFolder, index: int) -> AllocationFolder:
    """A companion's own corner of the allocation's folder: ``node-N`` with run, home, tmp, limits.json.

    The home folder is the head's: one for the whole gang.
    """
    place = AllocationFolder(folder.path / f"node-{index}")
    place.path.mkdir(mode=0o700, exist_ok=True)
    home = place / "home"
    if not home.is_symlink():
        home.symlink_to(Path("..", "home"))
    return place


def write_hosts(folder: AllocationFolder, hosts: tuple[tuple[str, str], ...]) -> None:
    """The sandbox's ``/etc/hosts``: this node, and the gang's others by the addresses they use."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    lines += [f"{address} {name}" for name, address in hosts]
    write_atomically(folder / "hosts", "\n".join(lines) + "\n", mode=0o644)
