"""From what Slurm prints and slurmrestd answers to facts. What is missing or new is borne: versions differ.

Commands are asked for named columns (``-o``), never for JSON, whose shape changes with each version. Answers
of slurmrestd are read by the fields that matter, in the shapes of v0.0.38 and of the later versions (states
as lists, numbers as ``{"set": true, "number": 7}``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from starverse.domain.slurm_cluster.reading import read_gres as read_gres_cards
from starverse.domain.slurm_cluster.reading import read_records, read_states
from starverse.engines.slurm.facts import SlurmCards, SlurmJob, SlurmNode

SQUEUE_COLUMNS = "%A|%T|%N|%V|%r|%u|%k|%j"
SACCT_COLUMNS = "JobIDRaw,State,NodeList,Submit,User,JobName"
_NOTHING = frozenset({"", "(null)", "None", "N/A", "n/a", "none", "Unknown"})


def read_squeue(text: str) -> tuple[SlurmJob, ...]:
    """Lines of ``squeue -h -o`` with :data:`SQUEUE_COLUMNS`."""
    jobs = []
    for line in text.splitlines():
        fields = line.split("|", 7)
        if len(fields) == 8:
            number, state, nodes, submitted, reason, user, comment, name = fields
            jobs.append(
                SlurmJob(
                    job_id=number.strip(),
                    name=name.strip(),
                    states=frozenset({state.strip().upper()}),
                    nodes=_some(nodes),
                    submitted_at=_read_time(submitted),
                    reason=_some(reason),
                    user=user.strip(),
                    comment=_some(comment),
                )
            )
    return tuple(jobs)


def read_sacct(text: str) -> tuple[SlurmJob, ...]:
    """Lines of ``sacct -n -P -X -o`` with :data:`SACCT_COLUMNS`."""
    jobs = []
    for line in text.splitlines():
        fields = line.split("|", 5)
        if len(fields) == 6:
            number, state, nodes, submitted, user, name = fields
            base = state.split()[0] if state.split() else ""  # "CANCELLED by 0"
            jobs.append(
                SlurmJob(
                    job_id=number,
                    name=name,
                    states=frozenset({base.upper()} - {""}),
                    nodes=_some(nodes),
                    submitted_at=_read_time(submitted),
                    user=user,
                )
            )
    return tuple(jobs)


def read_scontrol_nodes(text: str) -> tuple[SlurmNode, ...]:
    """``scontrol -o show nodes``, by the one reader of its records and states that ``slurm plan`` has too."""
    return tuple(
        SlurmNode(
            name=record["NodeName"],
            states=frozenset(word.upper() for word in read_states(record.get("State", "UNKNOWN"))),
            partitions=tuple(_list(record.get("Partitions", ""))),
            features=tuple(_list(record.get("AvailableFeatures", ""))),
            cards=read_gres(record.get("Gres", "")),
            cpus=_count(record.get("CPUTot")),
            memory_mib=_count(record.get("RealMemory")),
            sockets=max(1, _count(record.get("Sockets"))),
            reason=_some(re.sub(r"\s*\[[^\]]*\]$", "", record.get("Reason", ""))),
        )
        for record in read_records(text, "NodeName")
    )


def read_rest_jobs(answer: Mapping[str, Any]) -> tuple[SlurmJob, ...]:
    """``GET /slurm/VERSION/jobs``."""
    return tuple(
        SlurmJob(
            job_id=str(job.get("job_id", "")),
            name=str(job.get("name", "")),
            states=_words(job.get("job_state")),
            nodes=_some(str(job.get("nodes") or "")),
            submitted_at=float(_number(job.get("submit_time"))),
            reason=_some(str(job.get("state_reason") or "")),
            user=str(job.get("user_name") or ""),
            comment=_some(str(job.get("comment") or "")),
            requeues=bool(job.get("requeue")),
        )
        for job in _dicts(answer.get("jobs"))
    )


def read_rest_nodes(answer: Mapping[str, Any]) -> tuple[SlurmNode, ...]:
    """``GET /slurm/VERSION/nodes``."""
    return tuple(
        SlurmNode(
            name=str(node.get("name", "")),
            states=_words(node.get("state")) | _words(node.get("state_flags")),
            partitions=tuple(_texts(node.get("partitions"))),
            features=tuple(_texts(node.get("features"))),
            cards=read_gres(str(node.get("gres") or "")),
            cpus=_number(node.get("cpus")),
            memory_mib=_number(node.get("real_memory")),
            sockets=max(1, _number(node.get("sockets"))),
            reason=_some(str(node.get("reason") or "")),
        )
        for node in _dicts(answer.get("nodes"))
    )


def read_gres(text: str) -> tuple[SlurmCards, ...]:
    """Cards of ``gpu:rtx4090:8(S:0-1),gpu:a100:2``; other kinds of resources are passed over."""
    return tuple(SlurmCards(cards.kind, cards.count) for cards in read_gres_cards(text))


def read_rest_errors(answer: Mapping[str, Any]) -> tuple[str, ...]:
    """What an answer complains of, in words."""
    return tuple(
        " ".join(str(error[key]) for key in ("description", "error") if error.get(key))
        for error in _dicts(answer.get("errors"))
    )


def _words(value: object) -> frozenset[str]:
    """A state or a list of them, in upper case."""
    return frozenset(word.upper() for word in _texts(value))


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield from _list(value)
    elif isinstance(value, Iterable):
        yield from (str(item) for item in value)


def _dicts(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _number(value: object) -> int:
    """A number, or one of the later versions: ``{"set": true, "infinite": false, "number": 7}``."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set", True) else 0
    return int(value) if isinstance(value, int | float) else 0


def _count(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else 0


def _list(text: str) -> list[str]:
    return [] if text in _NOTHING else [part.strip() for part in text.split(",") if part.strip()]


def _some(text: str) -> str:
    return "" if text.strip() in _NOTHING else text.strip()


def _read_time(text: str) -> float:
    """Seconds since the epoch of Slurm's local time; 0 for none."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except ValueError:
        return 0.0
