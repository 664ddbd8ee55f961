"""``scancel``: end jobs by number, or by name, state, user, partition; or send them a signal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from starverse.cli.remote.session import Session
from starverse.cli.slurm.options import Read, Table, read_options
from starverse.client.errors import ClientError
from starverse.client.jobs import JobFilter
from starverse.client.shapes import Job

_TABLE = Table(
    flags={
        "batch": "b",
        "full": "f",
        "interactive": "i",
        "quiet": "Q",
        "verbose": "v",
        "me": "",
        "ctld": "",
        "hurry": "H",
        "help": "",
        "usage": "",
        "version": "V",
    },
    values={
        "name": "n",
        "jobname": "",
        "state": "t",
        "user": "u",
        "partition": "p",
        "account": "A",
        "signal": "s",
        "nodelist": "w",
        "qos": "q",
        "reservation": "R",
        "wckey": "",
        "clusters": "M",
    },
)
_STATES = {"PENDING": "queued", "PD": "queued", "RUNNING": "running", "R": "running"}
_FILTERS = ("name", "jobname", "state", "user", "partition", "account", "nodelist", "me")
_INVALID_ID = "Invalid job id specified"


def main(arguments: Sequence[str], session: Session) -> int:
    read = read_options(arguments, _TABLE)
    if "version" in read:
        from starverse import __version__

        session.write(f"starverse {__version__}\n")
        return 0
    if "help" in read or "usage" in read:
        session.write(
            "Usage: scancel [-A account] [-n name] [-p partition] [-s signal] [-t PENDING | RUNNING] "
            "[-u user_name] [--me] [-i] [-v] [job_id[_array_id]]\n"
        )
        return 0
    if not read.words and not any(name in read for name in _FILTERS):
        session.note("scancel: error: No job identification provided")
        return 1
    if "state" in read and read.get("state").upper() not in _STATES:
        session.note(f"scancel: error: Invalid job state specified: {read.get('state')}")
        return 1
    return _cancel(read, session)


def _cancel(read: Read, session: Session) -> int:
    code = 0
    refs: list[str] = []
    for word in read.words:
        found = expand_job_word(word)
        if found is None:
            session.note(f"scancel: error: Invalid job id {word}")
            code = 1
        else:
            refs += found
    if any(name in read for name in _FILTERS):
        refs = [job["number"] for job in _matching(read, session, refs)]
    for ref in refs:
        code = max(code, _cancel_one(ref, read, session))
    return code


def expand_job_word(word: str) -> list[str] | None:
    """``12``, ``12_3``, ``12_[1-3,7]`` as single references; ``None`` when it is none of these."""
    found = re.fullmatch(r"(\d{1,10})(?:_(\d{1,7}|\[([\d,\-]+)\]))?", word.strip(","))
    if found is None:
        return None
    if found[3] is None:
        return [found[0]]
    indices: list[int] = []
    for part in found[3].split(","):
        span = re.fullmatch(r"(\d{1,7})(?:-(\d{1,7}))?", part)
        if span is None:
            return None
        indices += range(int(span[1]), int(span[2] or span[1]) + 1)
    return [f"{found[1]}_{index}" for index in indices]


def _matching(read: Read, session: Session, refs: Iterable[str]) -> list[Job]:
    """Open jobs that every given filter lets through."""
    client = session.client()
    states = (_STATES[read.get("state").upper()],) if "state" in read else ("queued", "running")
    name = read.get("name") or read.get("jobname") or None
    user = client.people.me()["account"]["email"] if "me" in read else _user(read, session)
    nodes = {node for node in read.get("nodelist").split(",") if node}
    wanted = set(refs)
    chosen = []
    for job in client.jobs.list(JobFilter(states=states, name=name, label=read.get("account") or None)):
        own_nodes = set(str(job.get("node_list") or "").split(","))
        if (
            (user is None or user == job["account"])
            and ("partition" not in read or job.get("partition") == read.get("partition"))
            and (name is None or job["name"] == name)
            and (not nodes or nodes & own_nodes)
            and (not wanted or job["number"] in wanted or str(job.get("array_number")) in wanted)
        ):
            chosen.append(job)
    return chosen


def _user(read: Read, session: Session) -> str | None:
    """The account that ``-u`` names; the caller's own Unix user name means the caller."""
    name = read.get("user")
    if not name:
        return None
    if "@" in name:
        return name
    return session.client().people.me()["account"]["email"]


def _cancel_one(ref: str, read: Read, session: Session) -> int:
    signal = read.get("signal") or None
    if "interactive" in read:
        session.stderr.write(f"Cancel job_id={ref} [y/n]? ")
        session.stderr.flush()
        if not session.stdin.readline().strip().lower().startswith("y"):
            return 0
    try:
        session.client().jobs.cancel(ref, signal=_signal_name(signal))
    except ClientError as error:
        if error.code == "conflict" and signal is None:
            if "verbose" in read:
                session.note(
                    f"scancel: error: Kill job error on job id {ref}: "
                    "Job/step already completing or completed"
                )
            return 0
        if error.code not in ("not_found", "conflict", "invalid"):
            raise
        reason = _INVALID_ID if error.code == "not_found" else error.detail
        if "quiet" not in read:
            session.note(f"scancel: error: Kill job error on job id {ref}: {reason}")
        return 1
    if "verbose" in read:
        session.note(
            f"scancel: Terminating job {ref}" if signal is None else f"scancel: Signal {signal} to job {ref}"
        )
    return 0


def _signal_name(text: str | None) -> str | None:
    """``9``, ``KILL`` or ``SIGKILL`` as ``KILL``."""
    if text is None:
        return None
    if text.isdecimal():
        import signal

        try:
            return signal.Signals(int(text)).name.removeprefix("SIG")
        except ValueError:
            return text
    return text.upper().removeprefix("SIG")
