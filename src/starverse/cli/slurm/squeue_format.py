"""squeue's columns (manual page of Slurm 22.05, ``--format`` and ``--Format``). Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, tzinfo

from starverse.cli.slurm.formats import (
    Field,
    Layout,
    fold_indices,
    fold_nodes,
    memory,
    moment,
    one_line,
    read_long_format,
    read_percent_format,
    short_span,
)
from starverse.cli.slurm.job_states import COMPACT

FORMAT_DEFAULT = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R"
FORMAT_LONG = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R"
FORMAT_START = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R"
SORT_DEFAULT = "P,t,-p"


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job, one array task, or (``array_indices``) the tasks of an array that still wait.

    ``state`` and ``reason`` are Slurm's words (``job_states``). ``array_number`` ``None``: no array.
    ``time_limit_seconds`` ``None``: none. ``start_at`` of a waiting job is the expected start.
    """

    number: int
    name: str
    user: str
    state: str
    reason: str = "None"
    array_number: int | None = None
    array_index: int | None = None
    array_indices: tuple[int, ...] = ()
    array_running_max: int | None = None
    account: str = ""
    partition: str = "all"
    nodes: tuple[str, ...] = ()
    nodes_count: int = 1
    cpus: int = 1
    cards: str = "N/A"
    memory_mebibytes: int = 0
    time_used_seconds: int = 0
    time_limit_seconds: int | None = None
    submit_at: datetime | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None
    dependency: str = ""
    features: str = ""
    comment: str = ""
    work_dir: str = ""
    command: str = ""
    requested_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    priority: int = 0
    user_id: int = 0
    restart_count: int = 0
    requeue: bool = True

    @property
    def job_id(self) -> str:
        """``123``, ``123_4``, or ``123_[4-7%2]`` for tasks that wait."""
        if self.array_number is None:
            return str(self.number)
        return f"{self.array_number}_{self.array_task}"

    @property
    def array_task(self) -> str:
        """The index, the folded indices in brackets, or ``N/A``."""
        if self.array_indices:
            limit = f"%{self.array_running_max}" if self.array_running_max is not None else ""
            return f"[{fold_indices(self.array_indices)}{limit}]"
        return "N/A" if self.array_index is None else str(self.array_index)

    @property
    def nodes_or_reason(self) -> str:
        """``NODELIST(REASON)``: why it waits or failed, else where it is."""
        if self.state == "PENDING" or self.state in _FAILURES:
            return f"({self.reason})"
        return fold_nodes(self.nodes)


_FAILURES = frozenset({"FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "DEADLINE"})


def squeue_lines(
    jobs: Sequence[JobLine], layout: Layout[JobLine], *, header: bool = True, stamp: str = ""
) -> list[str]:
    """What squeue prints. ``stamp``: the date line that ``--long`` puts first (see :func:`date_stamp`)."""
    return ([stamp] if stamp and header else []) + layout.lines(jobs, header=header)


def date_stamp(now: datetime, zone: tzinfo) -> str:
    """``Tue Mar 10 10:00:00 2026``."""
    return now.astimezone(zone).strftime("%a %b %d %H:%M:%S %Y")


def squeue_layout(
    percent: str | None = None, long: str | None = None, *, zone: tzinfo = UTC
) -> Layout[JobLine]:
    """The columns of ``-o`` (``percent``) or ``-O`` (``long``), by default squeue's own."""
    if long is not None:
        return read_long_format(long, long_fields(zone))
    return read_percent_format(FORMAT_DEFAULT if percent is None else percent, letter_fields(zone))


def fold_waiting_tasks(jobs: Sequence[JobLine]) -> list[JobLine]:
    """One line for the waiting tasks of an array with the same reason, as without ``--array``."""
    folded: list[JobLine] = []
    places: dict[tuple[int, str], int] = {}
    for job in jobs:
        if job.array_number is None or job.array_index is None or job.state != "PENDING":
            folded.append(job)
            continue
        key = (job.array_number, job.reason)
        if key not in places:
            places[key] = len(folded)
            number = job.array_number
            folded.append(replace(job, number=number, array_index=None, array_indices=(job.array_index,)))
            continue
        first = folded[places[key]]
        indices = tuple(sorted({*first.array_indices, job.array_index}))
        folded[places[key]] = replace(first, array_indices=indices)
    return folded


def sort_jobs(jobs: Sequence[JobLine], order: str = SORT_DEFAULT) -> tuple[list[JobLine], str]:
    """``--sort``: type letters with ``+`` or ``-`` before them; second, what is wrong."""
    found = sorted(jobs, key=_by_id)
    for item in reversed([piece.strip() for piece in order.split(",") if piece.strip()]):
        letter = item.lstrip("+-")
        key = _SORT_KEYS.get(letter)
        if key is None:
            return found, f"Invalid sort specification: {letter}"
        found.sort(key=key, reverse=item.startswith("-"))
    return found, ""


def _by_id(job: JobLine) -> tuple[int, int, int]:
    """Tasks under their array; those that still wait before the others."""
    index = -1 if job.array_index is None else job.array_index
    return job.array_number or job.number, index, job.number


_SORT_KEYS: dict[str, Callable[[JobLine], tuple[int | float | str, ...]]] = {
    "i": _by_id,
    "A": lambda job: (job.number,),
    "F": lambda job: (job.array_number or job.number,),
    "j": lambda job: (job.name,),
    "u": lambda job: (job.user,),
    "U": lambda job: (job.user_id,),
    "a": lambda job: (job.account,),
    "P": lambda job: (job.partition,),
    "t": lambda job: (COMPACT.get(job.state, job.state),),
    "T": lambda job: (job.state,),
    "M": lambda job: (job.time_used_seconds,),
    "l": lambda job: (job.time_limit_seconds if job.time_limit_seconds is not None else 2**62,),
    "L": lambda job: (2**62 if job.time_limit_seconds is None else _time_left(job),),
    "D": lambda job: (job.nodes_count,),
    "C": lambda job: (job.cpus,),
    "m": lambda job: (job.memory_mebibytes,),
    "p": lambda job: (job.priority,),
    "Q": lambda job: (job.priority,),
    "N": lambda job: (fold_nodes(job.nodes),),
    "S": lambda job: (0.0 if job.start_at is None else job.start_at.timestamp(),),
    "V": lambda job: (0.0 if job.submit_at is None else job.submit_at.timestamp(),),
    "e": lambda job: (0.0 if job.end_at is None else job.end_at.timestamp(),),
    "r": lambda job: (job.reason,),
    "R": lambda job: (job.nodes_or_reason,),
}


def _time_left(job: JobLine) -> int:
    return max(0, (job.time_limit_seconds or 0) - job.time_used_seconds)


def _left(job: JobLine) -> str:
    return short_span(None if job.time_limit_seconds is None else _time_left(job))


def _or(text: str, missing: str) -> str:
    return one_line(text) or missing


def letter_fields(zone: tzinfo) -> dict[str, Field[JobLine]]:
    """The type letters of ``-o``; times are shown in ``zone``. What is unset prints as in Slurm."""
    return {
        "i": Field("JOBID", lambda job: job.job_id),
        "a": Field("ACCOUNT", lambda job: _or(job.account, "(null)")),
        "A": Field("JOBID", lambda job: str(job.number)),
        "b": Field("TRES_PER_NODE", lambda job: job.cards or "N/A"),
        "B": Field("EXEC_HOST", lambda job: job.nodes[0] if job.nodes else "n/a"),
        "c": Field("MIN_CPUS", lambda job: str(max(1, job.cpus // max(1, job.nodes_count)))),
        "C": Field("CPUS", lambda job: str(job.cpus)),
        "d": Field("MIN_TMP_DISK", lambda job: "0"),
        "D": Field("NODES", lambda job: str(job.nodes_count)),
        "e": Field("END_TIME", lambda job: moment(job.end_at, zone, "N/A")),
        "E": Field("DEPENDENCY", lambda job: job.dependency or "(null)"),
        "f": Field("FEATURES", lambda job: job.features or "(null)"),
        "F": Field("ARRAY_JOB_ID", lambda job: str(job.array_number or job.number)),
        "g": Field("GROUP", lambda job: _or(job.account, "(null)")),
        "G": Field("GROUP", lambda job: str(job.user_id)),
        "h": Field("OVER_SUBSCRIBE", lambda job: "OK"),
        "H": Field("SOCKETS_PER_NODE", lambda job: "*"),
        "I": Field("CORES_PER_SOCKET", lambda job: "*"),
        "j": Field("NAME", lambda job: one_line(job.name)),
        "J": Field("THREADS_PER_CORE", lambda job: "*"),
        "k": Field("COMMENT", lambda job: _or(job.comment, "(null)")),
        "K": Field("ARRAY_TASK_ID", lambda job: job.array_task.strip("[]")),
        "l": Field("TIME_LIMIT", lambda job: short_span(job.time_limit_seconds), cut=False),
        "L": Field("TIME_LEFT", _left, cut=False),
        "m": Field("MIN_MEMORY", lambda job: memory(job.memory_mebibytes)),
        "M": Field("TIME", lambda job: short_span(job.time_used_seconds), cut=False),
        "n": Field("REQ_NODES", lambda job: fold_nodes(job.requested_nodes)),
        "N": Field("NODELIST", lambda job: fold_nodes(job.nodes)),
        "o": Field("COMMAND", lambda job: _or(job.command, "(null)")),
        "O": Field("CONTIGUOUS", lambda job: "0"),
        "p": Field("PRIORITY", lambda job: f"{job.priority / (2**32 - 1):.14f}"),
        "P": Field("PARTITION", lambda job: job.partition),
        "q": Field("QOS", lambda job: "(null)"),
        "Q": Field("PRIORITY", lambda job: str(job.priority)),
        "r": Field("REASON", lambda job: job.reason),
        "R": Field("NODELIST(REASON)", lambda job: job.nodes_or_reason),
        "S": Field("START_TIME", lambda job: moment(job.start_at, zone, "N/A")),
        "t": Field("ST", lambda job: COMPACT.get(job.state, job.state[:2])),
        "T": Field("STATE", lambda job: job.state),
        "u": Field("USER", lambda job: one_line(job.user)),
        "U": Field("UID", lambda job: str(job.user_id)),
        "v": Field("RESERVATION", lambda job: "(null)"),
        "V": Field("SUBMIT_TIME", lambda job: moment(job.submit_at, zone, "N/A")),
        "w": Field("WCKEY", lambda job: "(null)"),
        "W": Field("LICENSES", lambda job: "(null)"),
        "x": Field("EXC_NODES", lambda job: fold_nodes(job.excluded_nodes)),
        "X": Field("CORE_SPEC", lambda job: "N/A"),
        "y": Field("NICE", lambda job: "0"),
        "Y": Field("SCHEDNODES", lambda job: "(null)"),
        "z": Field("S:C:T", lambda job: "*:*:*"),
        "Z": Field("WORK_DIR", lambda job: _or(job.work_dir, "(null)")),
    }


_LONG_NAMES = {
    "Account": "a", "ArrayJobID": "F", "ArrayTaskID": "K", "BatchHost": "B", "Command": "o", "Comment": "k",
    "Contiguous": "O", "CoreSpec": "X", "Dependency": "E", "EndTime": "e", "Feature": "f", "GroupID": "G",
    "GroupName": "g", "JobArrayID": "i", "JobID": "A", "Licenses": "W", "MinCpus": "c", "MinMemory": "m",
    "MinTmpDisk": "d", "Name": "j", "Nice": "y", "NodeList": "N", "NumCPUs": "C", "NumNodes": "D",
    "OverSubscribe": "h", "Partition": "P", "Priority": "p", "PriorityLong": "Q", "QOS": "q", "Reason": "r",
    "ReasonList": "R", "ReqNodes": "n", "Reservation": "v", "SchedNodes": "Y", "Sockets": "H", "Cores": "I",
    "Threads": "J", "StartTime": "S", "State": "T", "StateCompact": "t", "SubmitTime": "V", "TimeLeft": "L",
    "TimeLimit": "l", "TimeUsed": "M", "tres-per-node": "b", "UserID": "U", "UserName": "u", "WCKey": "w",
    "WorkDir": "Z", "sct": "z", "Exc_Nodes": "x",
}  # fmt: skip


def long_fields(zone: tzinfo) -> dict[str, Field[JobLine]]:
    """The type names of ``-O``."""
    letters = letter_fields(zone)
    found = {name: letters[letter] for name, letter in _LONG_NAMES.items()}
    found["RestartCnt"] = Field("RESTART_COUNT", lambda job: str(job.restart_count))
    found["Requeue"] = Field("REQUEUE", lambda job: "1" if job.requeue else "0")
    found["PendingTime"] = Field("PENDING_TIME", _pending_seconds)
    return found


def _pending_seconds(job: JobLine) -> str:
    if job.submit_at is None or job.start_at is None:
        return "0"
    return str(max(0, int((job.start_at - job.submit_at).total_seconds())))
