"""``sacct``: what jobs did and used, ended ones too, in Slurm's columns."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from starverse.cli.remote.session import Session
from starverse.cli.slurm.job_states import parse_states
from starverse.cli.slurm.lines import accounting_line, run_lines
from starverse.cli.slurm.options import Read, Table, read_options
from starverse.cli.slurm.sacct_format import (
    FIELDS,
    FORMAT_BRIEF,
    FORMAT_DEFAULT,
    PARSABLE,
    PARSABLE2,
    AccountingLine,
    SacctStyle,
    help_format,
    read_fields,
    sacct_lines,
)
from starverse.cli.slurm.sacct_times import parse_sacct_time
from starverse.cli.slurm.selecting import is_chosen, kept, member_filters, read_jobs, users_filter
from starverse.client.jobs import JobFilter
from starverse.client.shapes import Job

_TABLE = Table(
    flags={
        "allusers": "a",
        "allocations": "X",
        "array": "",
        "brief": "b",
        "completion": "c",
        "duplicates": "D",
        "helpformat": "e",
        "help": "h",
        "long": "l",
        "local": "",
        "noheader": "n",
        "noconvert": "",
        "parsable": "p",
        "parsable2": "P",
        "truncate": "T",
        "usage": "",
        "verbose": "v",
        "version": "V",
    },
    values={
        "accounts": "A",
        "account": "",
        "cluster": "M",
        "clusters": "",
        "delimiter": "",
        "endtime": "E",
        "format": "o",
        "group": "g",
        "jobs": "j",
        "name": "",
        "nodelist": "N",
        "partition": "r",
        "qos": "q",
        "starttime": "S",
        "state": "s",
        "units": "",
        "user": "u",
        "uid": "",
    },
    optional=frozenset({"json", "yaml"}),
)
_USAGE = (
    "Usage: sacct [-A label] [-b] [-D] [-E end] [-j job(s)] [-n] [--name name] [-N nodes] [-o format] "
    "[-p|-P] [-r partition] [-S start] [-s state(s)] [-u user(s)] [-X]; -e lists all fields\n"
)


def main(arguments: Sequence[str], session: Session) -> int:
    read = read_options(arguments, _TABLE)
    if "version" in read:
        from starverse import __version__

        session.write(f"starverse {__version__}\n")
        return 0
    if "help" in read or "usage" in read or "helpformat" in read:
        session.write(help_format() if "helpformat" in read else _USAGE)
        return 0
    if "json" in read or "yaml" in read:
        session.note("sacct: error: for JSON use: starverse job ls --json")
        return 1
    now = session.now()
    fields, wrong = read_fields(_format(read, session))
    states, bad_state = parse_states(read.get("state")) if "state" in read else (None, "")
    _, bad_id = read_jobs(read.get("jobs"))
    problem = wrong or bad_state or (f"Invalid job id: {bad_id}" if bad_id else "")
    span = {name: parse_sacct_time(read.get(name), now) for name in ("starttime", "endtime") if name in read}
    for name, value in span.items():
        if value is None:
            problem = problem or f"Invalid time specification (pos=0): {read.get(name)}"
    if problem:
        session.note(f"sacct: error: {problem}")
        return 1
    lines = [line for job in _jobs(read, session, now, span) for line in _lines(read, session, job, now)]
    shown = [line for line in lines if states is None or line.state in states]
    shown.sort(key=lambda line: (line.array_number or line.number, line.array_index or 0))
    session.write("".join(f"{line}\n" for line in sacct_lines(shown, fields, _style(read, now))))
    return 0


def _format(read: Read, session: Session) -> str:
    if "format" in read:
        return read.get("format")
    if "brief" in read:
        return FORMAT_BRIEF
    if "long" in read:
        return ",".join(field.name for field in FIELDS)
    return session.environ.get("SACCT_FORMAT") or FORMAT_DEFAULT


def _style(read: Read, now: datetime) -> SacctStyle:
    base = PARSABLE if "parsable" in read else PARSABLE2 if "parsable2" in read else SacctStyle()
    delimiter = base.delimiter
    if delimiter is not None and read.get("delimiter"):
        delimiter = read.get("delimiter")
    return SacctStyle(delimiter, base.delimiter_at_end, "noheader" not in read, now.tzinfo or UTC)


def _jobs(read: Read, session: Session, now: datetime, span: dict[str, datetime | None]) -> list[Job]:
    """Jobs that existed in the span: since midnight, or since ever where ids are named."""
    choices, _ = read_jobs(read.get("jobs"))
    since = span.get("starttime")
    if since is None and not choices:
        since = now.replace(hour=0, minute=0, second=0, microsecond=0)
    until = span.get("endtime")
    values = {name: value for name, value in read.values.items() if name in ("name", "partition", "nodelist")}
    label = read.get("accounts") or read.get("account")
    filters = member_filters({**values, "account": label} if label else values)
    users = read.get("user") or read.get("uid")
    if users:
        filters.append(users_filter(users, session))
    if choices:
        filters.append(lambda job: is_chosen(job, choices))
    if since is not None:
        oldest = since
        filters.append(
            lambda job: not job.get("ended_at") or datetime.fromisoformat(str(job["ended_at"])) >= oldest
        )
    if until is not None:
        newest = until
        filters.append(lambda job: datetime.fromisoformat(job["submitted_at"]) <= newest)
    return list(kept(session.client().jobs.list(JobFilter()), filters))


def _lines(read: Read, session: Session, job: Job, now: datetime) -> list[AccountingLine]:
    if "duplicates" in read and (job.get("attempts") or 0) > 1:
        return run_lines(session.client().jobs.get(job["id"]), now)
    return [accounting_line(job, now)]
