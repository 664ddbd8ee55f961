"""``squeue``: the jobs that wait and run, in Slurm's columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from starverse.cli.remote.session import Session
from starverse.cli.slurm.job_states import LIVE, parse_states, slurm_state
from starverse.cli.slurm.lines import job_line
from starverse.cli.slurm.options import Read, Table, read_options
from starverse.cli.slurm.selecting import (
    OPEN_STATES,
    is_chosen,
    kept,
    member_filters,
    read_jobs,
    users_filter,
)
from starverse.cli.slurm.squeue_format import (
    FORMAT_LONG,
    FORMAT_START,
    SORT_DEFAULT,
    JobLine,
    date_stamp,
    fold_waiting_tasks,
    sort_jobs,
    squeue_layout,
    squeue_lines,
)
from starverse.client.errors import ClientError
from starverse.client.jobs import JobFilter
from starverse.client.shapes import Job

_TABLE = Table(
    flags={
        "all": "a",
        "array": "r",
        "array-unique": "",
        "noheader": "h",
        "hide": "",
        "long": "l",
        "local": "",
        "noconvert": "",
        "me": "",
        "start": "",
        "verbose": "v",
        "help": "",
        "usage": "",
        "version": "V",
    },
    values={
        "account": "A",
        "iterate": "i",
        "jobs": "j",
        "licenses": "L",
        "clusters": "M",
        "name": "n",
        "format": "o",
        "Format": "O",
        "partition": "p",
        "qos": "q",
        "reservation": "R",
        "sort": "S",
        "states": "t",
        "user": "u",
        "nodelist": "w",
    },
    optional=frozenset({"job", "json", "yaml"}),
)
_USAGE = (
    "Usage: squeue [-A account] [-h] [-i seconds] [-j job(s)] [-l] [-n name] [-o format] [-O format] "
    "[-p partitions] [-r] [-S fields] [--start] [-t states] [-u user(s)] [--me] [-w nodes]\n"
)
_ENDED_SHOWN_SECONDS = 300
"""How long ended jobs stay visible (Slurm's ``MinJobAge``), unless they are asked for by id."""
_EXPECTED_STARTS_MAX = 50


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
        session.note("squeue: error: for JSON use: starverse queue --json")
        return 1
    period = read.get("iterate")
    if period and not (period.isdecimal() and int(period)):
        session.note(f"squeue: error: Invalid value for --iterate: {period}")
        return 1
    code = _print(read, session)
    while period and code == 0:
        session.pause(int(period))
        session.write("\n")
        code = _print(read, session)
    return code


def _print(read: Read, session: Session) -> int:
    now = session.now()
    zone = now.tzinfo or UTC
    long = "long" in read
    percent = read.values.get("format") or session.environ.get("SQUEUE_FORMAT")
    percent = percent or (FORMAT_START if "start" in read else FORMAT_LONG if long else None)
    names = read.values.get("Format") or session.environ.get("SQUEUE_FORMAT2")
    layout = squeue_layout(percent, None if "format" in read else names, zone=zone)
    if layout.unknown:
        session.note(f"squeue: error: Invalid job format specification: {', '.join(layout.unknown)}")
        return 1
    states, wrong = _states(read)
    _, bad_id = read_jobs(read.get("jobs") or read.get("job"))
    if wrong or bad_id:
        session.note(f"squeue: error: {wrong or f'Invalid job id: {bad_id}'}")
        return 1
    try:
        lines = _lines(read, session, now, states)
    except ClientError as error:
        if error.code != "not_found":
            raise
        session.note("slurm_load_jobs error: Invalid job id specified")
        return 1
    lines, wrong = sort_jobs(lines, read.get("sort") or SORT_DEFAULT)
    if wrong:
        session.note(f"squeue: error: {wrong}")
        return 1
    stamp = date_stamp(now, zone) if long else ""
    text = squeue_lines(lines, layout, header="noheader" not in read, stamp=stamp)
    session.write("".join(f"{line}\n" for line in text))
    return 0


def _states(read: Read) -> tuple[frozenset[str] | None, str]:
    if "start" in read and "states" not in read:
        return frozenset({"PENDING"}), ""
    return parse_states(read.get("states")) if "states" in read else (LIVE, "")


def _lines(read: Read, session: Session, now: datetime, states: frozenset[str] | None) -> list[JobLine]:
    jobs = _chosen(read, session, now, states)
    starts: dict[str, str | None] = {}
    if "start" in read:
        for job in jobs[:_EXPECTED_STARTS_MAX]:
            why = session.client().jobs.why(job["id"])
            estimate = why.get("start_estimate") or {}
            starts[job["id"]] = why.get("earliest_start_at") or estimate.get("expected_at")
    lines = [job_line(job, now, expected_start=starts.get(job["id"])) for job in jobs]
    return lines if {"array", "array-unique"} & set(read.values) else fold_waiting_tasks(lines)


def _chosen(read: Read, session: Session, now: datetime, states: frozenset[str] | None) -> list[Job]:
    client = session.client()
    choices, _ = read_jobs(read.get("jobs") or read.get("job"))
    filters = member_filters(read.values)
    if read.get("user") or "me" in read:
        wanted = ",".join(filter(None, (read.get("user"), "me" if "me" in read else "")))
        filters.append(users_filter(wanted, session))
    if choices:
        for choice in choices:
            client.jobs.get(str(choice.number))
        filters.append(lambda job: is_chosen(job, choices))
    if states is not None:
        filters.append(lambda job: slurm_state(job["state"], job.get("reason") or "") in states)
    only_open = states is not None and states <= LIVE
    oldest = now - timedelta(seconds=_ENDED_SHOWN_SECONDS)
    if not only_open and not choices:
        filters.append(lambda job: not job.get("ended_at") or _later(job["ended_at"], oldest))
    wanted_jobs = JobFilter(states=OPEN_STATES if only_open else ())
    return list(kept(client.jobs.list(wanted_jobs), filters))


def _later(text: str | None, than: datetime) -> bool:
    return text is not None and datetime.fromisoformat(text) >= than
