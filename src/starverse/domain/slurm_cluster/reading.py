"""From the text of ``scontrol`` to facts. Unknown keys and missing ones are borne: versions differ."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from starverse.domain.slurm_cluster.facts import ClusterFacts, GresCards, NodeFacts, PartitionFacts

NOTHING = frozenset({"", "(null)", "NONE", "N/A", "n/a"})
_MARKS = "*~#!%$@^-"
_MEANING = {
    "*": "not_responding",
    "~": "powered_down",
    "#": "powering_up",
    "!": "power_down",
    "%": "powering_down",
    "$": "maintenance",
    "@": "reboot_requested",
    "^": "reboot_issued",
}
"""The sinfo manual page, NODE STATE CODES. ``-`` (planned by backfill) changes nothing for us."""
_KEY = re.compile(r"(?:^|\s)([A-Z][A-Za-z_]*)=")
_RESTRICTIONS = ("AllowGroups", "AllowAccounts", "AllowQos", "AllocNodes", "DenyAccounts", "DenyQos")


def read_cluster(config: str, partitions: str, nodes: str) -> ClusterFacts:
    """Facts of ``scontrol show config``, ``scontrol -o show partitions`` and ``scontrol -o show nodes``."""
    return ClusterFacts(
        settings=read_settings(config),
        partitions=tuple(_partition(record) for record in read_records(partitions, "PartitionName")),
        nodes=tuple(_node(record) for record in read_records(nodes, "NodeName")),
    )


def read_settings(text: str) -> dict[str, str]:
    """``Name = value`` lines, those of cgroup.conf at the end included; what is not set becomes ``""``."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if equals and name.strip() and " " not in name.strip():
            value = value.strip()
            found[name.strip()] = "" if value == "(null)" else value
    return found


def read_records(text: str, first_key: str) -> Iterator[dict[str, str]]:
    """One record a line, ``Key=value`` by blanks; values may hold blanks; of equal keys the first counts."""
    for line in text.splitlines():
        if not line.startswith(f"{first_key}="):
            continue
        record: dict[str, str] = {}
        marks = list(_KEY.finditer(line))
        for mark, following in zip(marks, [*marks[1:], None], strict=True):
            end = following.start() if following else len(line)
            record.setdefault(mark.group(1), line[mark.end() : end].strip())
        yield record


def read_seconds(text: str) -> int | None:
    """``[days-]hours:minutes:seconds`` and the like in seconds; ``None``: none, or no limit."""
    days, dash, clock = text.rpartition("-")
    parts = clock.split(":")
    if not all(part.isascii() and part.isdigit() for part in [*parts, *([days] if dash else [])]):
        return None
    units = (86_400 * int(days)) if dash else 0
    widths = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    return units + sum(int(part) * width for part, width in zip(parts, widths, strict=False))


def read_gres(text: str) -> tuple[GresCards, ...]:
    """Cards of ``gpu:rtx4090:8(S:0-1),gpu:a100:2``; other kinds of resources are passed over."""
    found = []
    for entry in re.sub(r"\([^)]*\)", "", text).split(","):
        kind, *rest = entry.split(":")
        if kind != "gpu":
            continue
        count = rest[-1] if rest and rest[-1].isdigit() else "1"
        model = rest[0] if rest and not rest[0].isdigit() else ""
        found.append(GresCards(model.lower(), int(count), model))
    return tuple(found)


def read_seconds_setting(settings: Mapping[str, str], name: str) -> int | None:
    """``300 sec`` as 300; ``None`` where it is missing or not a number."""
    match = re.match(r"(\d+)", settings.get(name, ""))
    return int(match.group(1)) if match else None


def _partition(record: Mapping[str, str]) -> PartitionFacts:
    tier = record.get("PriorityTier", "1")
    return PartitionFacts(
        name=record["PartitionName"],
        state=record.get("State", "UP"),
        seconds_max=read_seconds(record.get("MaxTime", "")),
        seconds_default=read_seconds(record.get("DefaultTime", "")),
        preempt_mode=record.get("PreemptMode", "OFF").upper(),
        over_subscribe=record.get("OverSubscribe", "NO").upper(),
        priority_tier=int(tier) if tier.isdigit() else 1,
        restricted=tuple(
            f"{name}={record[name]}"
            for name in _RESTRICTIONS
            if record.get(name, "ALL") not in {"ALL", *NOTHING}
        ),
    )


def _node(record: Mapping[str, str]) -> NodeFacts:
    return NodeFacts(
        name=record["NodeName"],
        states=read_states(record.get("State", "UNKNOWN")),
        partitions=frozenset(_listed(record.get("Partitions", ""))),
        cards=read_gres(record.get("Gres", "")),
        features=frozenset(_listed(record.get("AvailableFeatures", ""))),
        cpus=_number(record.get("CPUTot", "0")),
        memory_mib=_number(record.get("RealMemory", "0")),
        version=record.get("Version", ""),
        reason=record.get("Reason", ""),
    )


def read_states(text: str) -> frozenset[str]:
    """``DOWN*+DRAIN`` as words in lower case; the sinfo manual page explains the marks behind them."""
    found = set()
    for word in text.split("+"):
        name = word.rstrip(_MARKS)
        found.add(name.lower())
        found |= {_MEANING[mark] for mark in word[len(name) :] if mark in _MEANING}
    return frozenset(found - {""})


def _listed(text: str) -> list[str]:
    return [] if text in NOTHING else text.split(",")


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() else 0
