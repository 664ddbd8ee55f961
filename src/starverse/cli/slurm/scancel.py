"""``scancel``: end jobs by number, or by name, state, user, partition; or send them a signal."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from starverse.cli.remote.session import Session
from starverse.cli.slurm.options import Read, Table, read_options
from starverse.cli.slurm.selecting import (
    OPEN_STATES,
    JobChoice,
    is_chosen,
    kept,
    member_filters,
    read_jobs,
    users_filter,
)
from starverse.client.errors import ClientError

_TABLE = Table(
    flags={
        "batch": "b",
        "ctld": "",
        "full": "f",
        "help": "",
        "hurry": "H",
        "interactive": "i",
        "me": "",
        "quiet": "Q",
        "usage": "",
        "verbose": "v",
        "version": "V",
    },
    values={
        "account": "A",
        "clusters": "M",
        "jobname": "",
        "name": "n",
        "nodelist": "w",
        "partition": "p",
        "qos": "q",
        "reservation": "R",
        "signal": "s",
        "state": "t",
        "user": "u",
        "wckey": "",
    },
)
_USAGE = (
    "Usage: scancel [-A account] [-n name] [-p partition] [-s signal [-b | -f]] [-t PENDING | RUNNING] "
    "[-u user] [-w nodes] [--me] [-i] [-Q] [-v] [job_id[_array_id]...]\n"
)
_FILTERS = ("account", "jobname", "me", "name", "nodelist", "partition", "state", "user")
_STATES = {
    "PENDING": ("queued",),
    "PD": ("queued",),
    "RUNNING": ("running",),
    "R": ("running",),
    "SUSPENDED": (),
    "S": (),
}
_DONE = "Job/step already completing or completed"
_TOLD = frozenset({"not_found", "conflict", "invalid", "forbidden"})


def main(arguments: Sequence[str], session: Session) -> int:
    read = read_options(arguments, _TABLE)
    if "version" in read:
        from starverse import __version__

        session.write(f"starverse {__version__}\n")
        return 0
    if "help" in read or "usage" in read:
        session.write(_USAGE)
        return 0
    choices, problem = _choices(read)
    if problem:
        session.note(problem)
        return 1
    if any(name in read for name in _FILTERS):
        refs = _matching(read, choices, session)
    else:
        refs = [number for choice in choices for number in choice.numbers]
    return max((_cancel(ref, read, session) for ref in refs), default=0)


def _choices(read: Read) -> tuple[list[JobChoice], str]:
    """The jobs named; second, what is wrong, as scancel says it."""
    choices: list[JobChoice] = []
    for word in read.words:
        found, bad = read_jobs(word)
        if bad or not found:
            return [], f"scancel: error: Invalid job id {bad or word}"
        choices += found
    if "signal" in read and read_signal(read.get("signal")) is None:
        return [], f"Unknown job signal: {read.get('signal')}"
    if "state" in read and read.get("state").upper() not in _STATES:
        valid = "Valid job states are PENDING, RUNNING, and SUSPENDED"
        return [], f"Invalid job state specified: {read.get('state')}\n{valid}"
    if not choices and not any(name in read for name in _FILTERS):
        return [], "scancel: error: No job identification provided"
    return choices, ""


def read_signal(text: str) -> str | None:
    """``USR1`` from ``USR1``, ``SIGUSR1`` or ``10``; ``None``: there is none."""
    names = {str(member.value): member.name.removeprefix("SIG") for member in signal.Signals}
    name = names.get(text, text.upper().removeprefix("SIG"))
    return name if name in names.values() else None


def _matching(read: Read, choices: list[JobChoice], session: Session) -> list[str]:
    """Open jobs that every filter lets through."""
    from starverse.client.jobs import JobFilter

    states = _STATES[read.get("state").upper()] if "state" in read else OPEN_STATES
    if not states:
        return []
    values = dict(read.values)
    if "jobname" in values:
        values["name"] = values["jobname"]
    filters = member_filters(values)
    users = ",".join(filter(None, (read.get("user"), "me" if "me" in read else "")))
    if users:
        filters.append(users_filter(users, session))
    if choices:
        filters.append(lambda job: is_chosen(job, choices))
    return [str(job["number"]) for job in kept(session.client().jobs.list(JobFilter(states=states)), filters)]


def _cancel(ref: str, read: Read, session: Session) -> int:
    if "interactive" in read:
        session.stderr.write(f"Cancel job_id={ref} [y/n]? ")
        session.stderr.flush()
        if not session.stdin.readline().strip().lower().startswith("y"):
            return 0
    name = read_signal(read.get("signal")) if "signal" in read else None
    to = "all" if "full" in read else "batch" if "batch" in read else "steps"
    ends_it = name is None or (name == "KILL" and to != "batch")
    try:
        session.client().jobs.cancel(ref, signal=None if ends_it else name, to=to)
    except ClientError as error:
        if error.code not in _TOLD:
            raise
        done = error.code == "conflict"
        if "quiet" not in read and (not done or "verbose" in read or not ends_it):
            reason = {"conflict": _DONE, "not_found": "Invalid job id specified"}.get(
                error.code, error.detail
            )
            session.note(f"scancel: error: Kill job error on job id {ref}: {reason}")
        return 0 if done and ends_it else 1
    if "verbose" in read:
        session.note(f"scancel: Terminating job {ref}" if ends_it else f"scancel: Signal {name} to job {ref}")
    return 0
