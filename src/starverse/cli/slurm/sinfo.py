"""``sinfo``: nodes and their state by partition, in Slurm's columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC

from starverse.cli.remote.session import Session
from starverse.cli.slurm.lines import node_lines
from starverse.cli.slurm.options import Read, Table, read_options
from starverse.cli.slurm.selecting import split_list
from starverse.cli.slurm.sinfo_format import (
    FORMAT_LONG,
    FORMAT_NODES,
    FORMAT_NODES_LONG,
    FORMAT_REASONS,
    FORMAT_SUMMARY,
    STATES,
    NodeLine,
    sinfo_layout,
    sinfo_lines,
)
from starverse.cli.slurm.squeue_format import date_stamp

_TABLE = Table(
    flags={
        "all": "a",
        "dead": "d",
        "exact": "e",
        "noheader": "h",
        "hide": "",
        "long": "l",
        "local": "",
        "noconvert": "",
        "Node": "N",
        "responding": "r",
        "list-reasons": "R",
        "summarize": "s",
        "verbose": "v",
        "help": "",
        "usage": "",
        "version": "V",
    },
    values={
        "clusters": "M",
        "nodes": "n",
        "format": "o",
        "Format": "O",
        "partition": "p",
        "sort": "S",
        "states": "t",
    },
    optional=frozenset({"json", "yaml"}),
)
_USAGE = (
    "Usage: sinfo [-h] [-l] [-n nodes] [-N] [-o format] [-O format] [-p partition] [-r] [-R] [-s] "
    "[-t states]\n"
)
_SHORT_STATES = {
    "alloc": "allocated",
    "mix": "mixed",
    "drain": "drain",
    "comp": "allocated",
    "resv": "reserved",
}
_DRAIN = frozenset({"drained", "draining"})


def main(arguments: Sequence[str], session: Session) -> int:
    read = read_options(arguments, _TABLE)
    if "version" in read:
        from starverse import __version__

        session.write(f"starverse {__version__}\n")
        return 0
    if "help" in read or "usage" in read:
        session.write(_USAGE)
        return 0
    if "json" in read or "yaml" in read:
        session.note("sinfo: error: for JSON use: starverse offers --json")
        return 1
    now = session.now()
    zone = now.tzinfo or UTC
    environ = session.environ
    percent = read.values.get("format") or environ.get("SINFO_FORMAT") or _format(read)
    layout = sinfo_layout(percent, read.values.get("Format"), zone=zone)
    if layout.unknown:
        session.note(f"sinfo: error: Invalid node format specification: {', '.join(layout.unknown)}")
        return 1
    wanted, wrong = _states(read)
    if wrong:
        session.note(f'sinfo: error: Bad state string: "{wrong}"')
        return 1
    lines = [line for line in _lines(read, session) if wanted is None or line.state in wanted]
    if "list-reasons" in read:
        lines = [line for line in lines if line.reason]
    text = sinfo_lines(lines, layout, header="noheader" not in read, by_node="Node" in read)
    if "long" in read and "noheader" not in read:
        text.insert(0, date_stamp(now, zone))
    session.write("".join(f"{line}\n" for line in text))
    return 0


def _format(read: Read) -> str | None:
    if "list-reasons" in read:
        return FORMAT_REASONS
    if "summarize" in read:
        return FORMAT_SUMMARY
    if "Node" in read:
        return FORMAT_NODES_LONG if "long" in read else FORMAT_NODES
    return FORMAT_LONG if "long" in read else None


def _lines(read: Read, session: Session) -> list[NodeLine]:
    nodes = session.client().cards.nodes()
    names = set(split_list(read.get("nodes")))
    if names:
        nodes = [node for node in nodes if node["id"] in names]
    one_partition = ["all"] if "list-reasons" in read else []
    return node_lines(nodes, split_list(read.get("partition")) or one_partition)


def _states(read: Read) -> tuple[set[str] | None, str]:
    """The states of ``-t``; second, the one that does not exist."""
    if "dead" in read or "responding" in read:
        return ({"down"} if "dead" in read else set(STATES) - {"down"}), ""
    if "states" not in read:
        return None, ""
    found: set[str] = set()
    for word in split_list(read.get("states").lower()):
        state = _SHORT_STATES.get(word, word)
        if word in ("all",):
            return None, ""
        if state == "drain":
            found |= _DRAIN
        elif state in STATES:
            found.add(state)
        else:
            return set(), word
    return found, ""
