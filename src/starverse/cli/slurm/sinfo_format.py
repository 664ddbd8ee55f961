"""sinfo's columns (manual page of Slurm 22.05): nodes with the same values share a line. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, tzinfo

from starverse.cli.slurm.formats import (
    Field,
    Layout,
    fold_nodes,
    one_line,
    read_long_format,
    read_percent_format,
    short_span,
)

FORMAT_DEFAULT = "%#P %.5a %.10l %.6D %.6t %N"
FORMAT_SUMMARY = "%#P %.5a %.10l %.16F %N"
FORMAT_LONG = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
FORMAT_NODES = "%#N %.6D %.#P %6t"
FORMAT_NODES_LONG = "%#N %.6D %.#P %.11T %.4c %.8z %.6m %.8d %.6w %.8f %20E"
FORMAT_REASONS = "%20E %9u %19H %N"

STATES = ("drained", "draining", "mixed", "allocated", "idle", "reserved", "maint", "down", "unknown")
_COMPACT = {
    "drained": "drain", "draining": "drng", "mixed": "mix", "allocated": "alloc", "idle": "idle",
    "reserved": "resv", "maint": "maint", "down": "down", "unknown": "unk",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node in one partition. ``state`` is one of :data:`STATES`; ``gres`` as ``gpu:rtx4090:8``."""

    name: str
    partition: str
    state: str
    partition_is_default: bool = False
    reason: str = ""
    cpus: int = 0
    cpus_allocated: int = 0
    memory_mebibytes: int = 0
    gres: str = ""
    gres_used: str = ""
    features: str = ""
    time_limit_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that sinfo prints in one line."""

    nodes: tuple[NodeLine, ...]

    @property
    def first(self) -> NodeLine:
        return self.nodes[0]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(node.name for node in self.nodes))


def node_state(*, cards: int, cards_used: int, draining: bool = False, down: bool = False) -> str:
    """The state of a node from its cards: any card in use makes it ``mixed``, all of them ``allocated``."""
    if down:
        return "down"
    if draining:
        return "draining" if cards_used else "drained"
    if cards_used == 0:
        return "idle"
    return "allocated" if cards_used >= cards else "mixed"


def sinfo_layout(
    percent: str | None = None, long: str | None = None, *, zone: tzinfo = UTC
) -> Layout[NodeGroup]:
    """The columns of ``-o`` (``percent``) or ``-O`` (``long``), by default sinfo's own."""
    if long is not None:
        return read_long_format(long, long_fields(zone))
    text = FORMAT_DEFAULT if percent is None else percent
    return read_percent_format(text, letter_fields(zone))


def sinfo_lines(
    nodes: Sequence[NodeLine], layout: Layout[NodeGroup], *, header: bool = True, by_node: bool = False
) -> list[str]:
    """What sinfo prints: one line for nodes with equal values in the layout; ``by_node``: for each node."""
    groups = group_nodes(nodes, layout, by_node=by_node)
    return layout.lines(groups, header=header)


def group_nodes(
    nodes: Sequence[NodeLine], layout: Layout[NodeGroup], *, by_node: bool = False
) -> list[NodeGroup]:
    """In sinfo's order: partitions as they come, in each the states of :data:`STATES`."""
    partitions = list(dict.fromkeys(node.partition for node in nodes))
    singles = [column.field.text for column in layout.columns if not column.field.many]
    by_key: dict[tuple[str, ...], list[NodeLine]] = {}
    for node in nodes:
        values = [text(NodeGroup((node,))) for text in singles]
        key = (node.name if by_node else "", node.partition, *values)
        by_key.setdefault(key, []).append(node)
    groups = [NodeGroup(tuple(found)) for found in by_key.values()]

    def order(group: NodeGroup) -> tuple[str, int, int]:
        state = STATES.index(group.first.state) if group.first.state in STATES else len(STATES)
        return group.first.name if by_node else "", partitions.index(group.first.partition), state

    return sorted(groups, key=order)


def _one(header: str, text: Callable[[NodeLine], str]) -> Field[NodeGroup]:
    return Field(header, lambda group: text(group.first))


def _many(header: str, text: Callable[[NodeGroup], str]) -> Field[NodeGroup]:
    return Field(header, text, many=True)


def _counts(group: NodeGroup) -> tuple[int, int, int]:
    busy = {node.name for node in group.nodes if node.state in {"allocated", "mixed", "draining"}}
    idle = {node.name for node in group.nodes if node.state == "idle"}
    return len(busy), len(idle), len(set(group.names) - busy - idle)


def _nodes_by_state(group: NodeGroup) -> str:
    return "/".join(map(str, (*_counts(group), len(group.names))))


def _cpus_by_state(group: NodeGroup) -> str:
    used = idle = other = 0
    for node in {node.name: node for node in group.nodes}.values():
        used += node.cpus_allocated
        free = node.cpus - node.cpus_allocated
        if node.state in {"down", "drained", "draining", "unknown"}:
            other += free
        else:
            idle += free
    return f"{used}/{idle}/{other}/{used + idle + other}"


def letter_fields(zone: tzinfo) -> dict[str, Field[NodeGroup]]:
    """The type letters of ``-o``; ``zone`` for times."""
    del zone  # no column shows a time that we keep
    return {
        "a": _one("AVAIL", lambda node: "up"),
        "A": _many("NODES(A/I)", lambda group: "{}/{}".format(*_counts(group))),
        "b": _one("ACTIVE_FEATURES", lambda node: node.features or "(null)"),
        "B": _one("MAX_CPUS_PER_NODE", lambda node: "UNLIMITED"),
        "c": _one("CPUS", lambda node: str(node.cpus)),
        "C": _many("CPUS(A/I/O/T)", _cpus_by_state),
        "d": _one("TMP_DISK", lambda node: "0"),
        "D": _many("NODES", lambda group: str(len(group.names))),
        "E": _one("REASON", lambda node: one_line(node.reason) or "none"),
        "f": _one("AVAIL_FEATURES", lambda node: node.features or "(null)"),
        "F": _many("NODES(A/I/O/T)", _nodes_by_state),
        "g": _one("GROUPS", lambda node: "all"),
        "G": _one("GRES", lambda node: node.gres or "(null)"),
        "h": _one("OVERSUBS", lambda node: "NO"),
        "H": _one("TIMESTAMP", lambda node: "Unknown"),
        "l": Field("TIMELIMIT", lambda group: _limit(group.first.time_limit_seconds), cut=False),
        "L": _one("DEFAULTTIME", lambda node: "1-00:00:00"),
        "m": _one("MEMORY", lambda node: str(node.memory_mebibytes)),
        "n": _many("HOSTNAMES", lambda group: fold_nodes(group.names)),
        "N": _many("NODELIST", lambda group: fold_nodes(group.names)),
        "o": _many("NODE_ADDR", lambda group: fold_nodes(group.names)),
        "P": _one("PARTITION", lambda node: node.partition + ("*" if node.partition_is_default else "")),
        "r": _one("ROOT", lambda node: "no"),
        "R": _one("PARTITION", lambda node: node.partition),
        "s": _one("JOB_SIZE", lambda node: "1-infinite"),
        "t": _one("STATE", lambda node: _COMPACT.get(node.state, node.state[:5])),
        "T": _one("STATE", lambda node: node.state),
        "u": _one("USER", lambda node: "Unknown"),
        "w": _one("WEIGHT", lambda node: "1"),
        "X": _one("SOCKETS", lambda node: "1"),
        "Y": _one("CORES", lambda node: str(node.cpus)),
        "z": _one("S:C:T", lambda node: f"1:{node.cpus}:1"),
        "Z": _one("THREADS", lambda node: "1"),
    }


def _limit(seconds: int | None) -> str:
    return "infinite" if seconds is None else short_span(seconds)


_LONG_NAMES = {
    "Available": "a", "NodeAI": "A", "Features_Act": "b", "MaxCPUsPerNode": "B", "CPUs": "c",
    "CPUsState": "C", "Disk": "d", "Nodes": "D", "Reason": "E", "Features": "f", "NodeAIOT": "F",
    "Groups": "g", "Gres": "G",
    "OverSubscribe": "h", "Timestamp": "H", "Time": "l", "DefaultTime": "L", "Memory": "m", "NodeHost": "n",
    "NodeList": "N", "NodeAddr": "o", "Partition": "P", "Root": "r", "PartitionName": "R", "Size": "s",
    "StateCompact": "t", "StateLong": "T", "State": "T", "User": "u", "Weight": "w", "Sockets": "X",
    "Cores": "Y", "SocketCoreThread": "z", "Threads": "Z",
}  # fmt: skip


def long_fields(zone: tzinfo) -> dict[str, Field[NodeGroup]]:
    """The type names of ``-O``."""
    letters = letter_fields(zone)
    found = {name: letters[letter] for name, letter in _LONG_NAMES.items()}
    found["GresUsed"] = _one("GRES_USED", lambda node: node.gres_used or "(null)")
    return found
