"""A trace as jobs, and what is wrong with it, line by line.

The kind of file is told by its head: Philly (``timestamp,duration,num_gpus,gpu_time,cluster``), openb pods
(``name,...,num_gpu,...,creation_time,deletion_time,scheduled_time``), ``sacct --parsable2`` with at least
``JobID|Submit|ElapsedRaw|AllocTRES``, or the platform's own ``job ls --json``.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from math import isfinite
from typing import TypeAlias

from starverse.domain.errors import FieldFault, Invalid

FAULTS_SHOWN = 20
GAP_SECONDS = 7 * 24 * 3600
"""Longer without an arrival is said: a trace is seldom that quiet, more often something is missing."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """``at`` is the submission, ``run_seconds`` what it ran; ``line`` where it stands in the file."""

    line: int
    id: str
    at: datetime
    run_seconds: int
    cards: int
    team: str
    cpus: int | None = None
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fault:
    line: int
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}"


@dataclass(frozen=True, slots=True)
class Trace:
    """``jobs`` in the order of submission; ``notes`` is what is odd but harmless."""

    kind: str
    jobs: tuple[TraceJob, ...]
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()


_Reader: TypeAlias = Callable[[int, Mapping[str, str]], TraceJob | None]


def read_trace(text: str) -> Trace:
    """Raises ``Invalid`` for a file of no known kind, or without a single job that can be replayed."""
    lines = text.splitlines()
    head = lines[0] if lines else ""
    if head.lstrip().startswith(("{", "[")):
        return _finished("platform", _own_jobs(text))
    for kind, marks, delimiter, reader in (
        ("philly", {"timestamp", "duration", "num_gpus"}, ",", _philly),
        ("openb", {"name", "num_gpu", "creation_time", "deletion_time"}, ",", _openb),
        ("sacct", {"JobID", "Submit", "ElapsedRaw", "AllocTRES"}, "|", _sacct),
    ):
        if marks <= set(head.split(delimiter)):
            rows = csv.DictReader(lines, delimiter=delimiter)
            return _finished(kind, ((rows.line_num, row, reader) for row in rows))
    fault = FieldFault("jobs", head[:60], "the head of a Philly, openb or sacct --parsable2 file, or JSON")
    raise Invalid(faults=[fault])


def _finished(kind: str, rows: Iterable[tuple[int, Mapping[str, str], _Reader]]) -> Trace:
    jobs: list[TraceJob] = []
    faults: list[Fault] = []
    seen: dict[str, int] = {}
    for line, row, reader in rows:
        try:
            job = reader(line, row)
        except (ValueError, KeyError, TypeError, OverflowError) as error:
            faults.append(Fault(line, f"cannot be read ({error})"))
            continue
        if job is None:
            continue
        if job.run_seconds < 0:
            faults.append(Fault(line, f"job {job.id} ran {job.run_seconds} seconds; negative"))
        elif job.cards < 0:
            faults.append(Fault(line, f"job {job.id} asks for {job.cards} cards; negative"))
        elif job.id in seen:
            faults.append(Fault(line, f"job {job.id} was on line {seen[job.id]} already"))
        else:
            seen[job.id] = line
            jobs.append(job)
    if not jobs:
        shown = "; ".join(str(fault) for fault in faults[:FAULTS_SHOWN]) or "no rows"
        raise Invalid(faults=[FieldFault("jobs", shown, "at least one job that can be replayed")])
    jobs.sort(key=lambda job: (job.at, job.line))
    return Trace(kind, tuple(jobs), tuple(faults), tuple(_gaps(jobs)))


def _gaps(jobs: Sequence[TraceJob]) -> Iterable[str]:
    for earlier, later in pairwise(jobs):
        quiet = (later.at - earlier.at).total_seconds()
        if quiet > GAP_SECONDS:
            yield (
                f"nothing arrives for {quiet / 86400:.1f} days before line {later.line} "
                f"({later.at:%Y-%m-%d}); is a part missing?"
            )


def _philly(line: int, row: Mapping[str, str]) -> TraceJob:
    return TraceJob(
        line=line,
        id=row.get("job_id") or f"line-{line}",
        at=_instant(row["timestamp"]),
        run_seconds=_seconds(row["duration"]),
        cards=int(row["num_gpus"]),
        team=row.get("cluster") or "all",
    )


def _openb(line: int, row: Mapping[str, str]) -> TraceJob | None:
    """Parts of a card are rounded up to whole ones: the product places whole cards."""
    if not row["deletion_time"] or not row["creation_time"]:
        return None
    begun = row.get("scheduled_time") or row["creation_time"]
    return TraceJob(
        line=line,
        id=row["name"],
        at=datetime(2023, 1, 1, tzinfo=UTC) + timedelta(seconds=_seconds(row["creation_time"])),
        run_seconds=_seconds(row["deletion_time"]) - _seconds(begun),
        cards=int(row["num_gpu"]),
        team=row.get("qos") or "all",
        cpus=max(1, int(row["cpu_milli"]) // 1000),
        models=tuple(model for model in (row.get("gpu_spec") or "").split("|") if model),
    )


def _sacct(line: int, row: Mapping[str, str]) -> TraceJob | None:
    """Steps (``12.batch``) are passed over; a job that never ran has ``ElapsedRaw`` 0 and counts."""
    if "." in row["JobID"]:
        return None
    held = dict(part.split("=", 1) for part in row["AllocTRES"].split(",") if "=" in part)
    cpus = int(held["cpu"]) if "cpu" in held else None
    return TraceJob(
        line=line,
        id=row["JobID"],
        at=_instant(row["Submit"]),
        run_seconds=_seconds(row["ElapsedRaw"]),
        cards=int(held.get("gres/gpu", 0)),
        team=row.get("Account") or "all",
        cpus=cpus,
    )


def _own_jobs(text: str) -> Iterable[tuple[int, Mapping[str, str], _Reader]]:
    try:
        read = json.loads(text)
    except json.JSONDecodeError as error:
        fault = FieldFault("jobs", f"line {error.lineno}: {error.msg}", "the output of job ls --json")
        raise Invalid(faults=[fault]) from error
    rows = read.get("jobs", read.get("items")) if isinstance(read, dict) else read
    if not isinstance(rows, list):
        raise Invalid(faults=[FieldFault("jobs", "JSON", "a list of jobs, or an object with jobs")])
    for number, row in enumerate(rows, start=1):
        yield number, row if isinstance(row, dict) else {}, _own_job


def _own_job(line: int, row: Mapping[str, str]) -> TraceJob | None:
    """One that has not run yet says nothing; ``line`` is its place in the list."""
    begun, ended = row.get("started_at"), row.get("ended_at")
    if not begun or not ended:
        return None
    return TraceJob(
        line=line,
        id=str(row["number"]),
        at=_instant(row["submitted_at"]),
        run_seconds=int((_instant(ended) - _instant(begun)).total_seconds()),
        cards=int(row["cards"]),
        team=str(row.get("team") or "all"),
    )


def _instant(text: str) -> datetime:
    read = datetime.fromisoformat(text)
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC).replace(microsecond=0)


def _seconds(text: str) -> int:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text!r} is no number of seconds")
    return int(value)
