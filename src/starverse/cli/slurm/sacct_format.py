"""sacct's columns (manual page of Slurm 22.05; widths of ``src/sacct/sacct.c``). Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from starverse.cli.slurm.formats import fit, fold_nodes, full_span, memory, moment, one_line

FORMAT_DEFAULT = "JobID,JobName,Partition,Account,AllocCPUS,State,ExitCode"
FORMAT_BRIEF = "JobID,State,ExitCode"


@dataclass(frozen=True, slots=True)
class AccountingLine:
    """One job, array task or (``--duplicates``) one run of it.

    ``number`` is what ``JobIDRaw`` shows; ``state`` is Slurm's word. ``exit_signal`` 0: none.
    ``allocated`` and ``requested`` are TRES texts such as ``cpu=4,gres/gpu=2``.
    """

    number: int
    name: str
    state: str
    array_number: int | None = None
    array_index: int | None = None
    exit_code: int = 0
    exit_signal: int = 0
    user: str = ""
    account: str = ""
    partition: str = "all"
    cpus: int = 0
    nodes: tuple[str, ...] = ()
    nodes_count: int = 0
    tasks: int = 1
    memory_mebibytes: int = 0
    allocated: str = ""
    requested: str = ""
    elapsed_seconds: int = 0
    time_limit_seconds: int | None = None
    submit_at: datetime | None = None
    eligible_at: datetime | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None
    reason: str = "None"
    comment: str = ""
    work_dir: str = ""
    submit_line: str = ""
    restarts: int = 0
    user_id: int = 0
    cluster: str = "starverse"

    @property
    def job_id(self) -> str:
        return str(self.number) if self.array_number is None else f"{self.array_number}_{self.array_index}"


@dataclass(frozen=True, slots=True)
class SacctField:
    """A column: ``width`` as in Slurm's table, negative for left-justified."""

    name: str
    width: int
    text: Callable[[AccountingLine, tzinfo], str]


@dataclass(frozen=True, slots=True)
class SacctStyle:
    """``delimiter`` ``None``: aligned columns; else parsable, with one at the end unless told not to."""

    delimiter: str | None = None
    delimiter_at_end: bool = True
    header: bool = True
    zone: tzinfo = UTC


PARSABLE = SacctStyle("|")
PARSABLE2 = SacctStyle("|", delimiter_at_end=False)


def read_fields(text: str = FORMAT_DEFAULT) -> tuple[list[SacctField], str]:
    """``--format``: names or beginnings, any case, ``%WIDTH`` behind; second, what is wrong.

    A negative width is left-justified.
    """
    found: list[SacctField] = []
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, percent, width = part.partition("%")
        field = _find(name)
        if field is None:
            return [], f'Invalid field requested: "{name}"'
        if percent:
            if not re.fullmatch(r"-?\d{1,4}", width, re.ASCII):
                return [], f'Invalid field requested: "{part}"'
            field = SacctField(field.name, int(width) or field.width, field.text)
        found.append(field)
    return found, ""


def sacct_lines(
    rows: Sequence[AccountingLine], fields: Sequence[SacctField], style: SacctStyle | None = None
) -> list[str]:
    """What sacct prints: a header, a line of dashes and the rows, or delimited text."""
    how = style or SacctStyle()
    cells = [[field.text(row, how.zone) for field in fields] for row in rows]
    if how.delimiter is not None:
        names = [[field.name for field in fields]] if how.header else []
        end = how.delimiter if how.delimiter_at_end else ""
        return [how.delimiter.join(line) + end for line in [*names, *cells]]
    lines = []
    if how.header:
        lines.append("".join(fit(f.name, abs(f.width), right=True, mark="") + " " for f in fields))
        lines.append("".join("-" * abs(f.width) + " " for f in fields))
    for line in cells:
        texts = zip(fields, line, strict=True)
        lines.append("".join(fit(text, abs(f.width), right=f.width > 0, mark="+") + " " for f, text in texts))
    return lines


def help_format() -> str:
    """``--helpformat``: all names, four in a line."""
    names = [field.name for field in FIELDS]
    rows = [names[at : at + 4] for at in range(0, len(names), 4)]
    return "\n".join("".join(f"{name:<20}" for name in row).rstrip() for row in rows) + "\n"


def _find(name: str) -> SacctField | None:
    lower = name.lower()
    for field in FIELDS:
        if field.name.lower() == lower:
            return field
    starting = [field for field in FIELDS if lower and field.name.lower().startswith(lower)]
    return starting[0] if starting else None


def _date(pick: Callable[[AccountingLine], datetime | None]) -> Callable[[AccountingLine, tzinfo], str]:
    return lambda row, zone: moment(pick(row), zone, "Unknown")


def _plain(pick: Callable[[AccountingLine], object]) -> Callable[[AccountingLine, tzinfo], str]:
    return lambda row, zone: one_line(str(pick(row)))


_NOT_GATHERED = "00:00:00"
"""What sacct prints of CPU time where no plugin gathers it (``JobAcctGatherType=jobacct_gather/none``)."""

FIELDS: tuple[SacctField, ...] = (
    SacctField("Account", 10, _plain(lambda row: row.account)),
    SacctField("AllocCPUS", 10, _plain(lambda row: row.cpus)),
    SacctField("AllocNodes", 10, _plain(lambda row: row.nodes_count)),
    SacctField("AllocTRES", 10, _plain(lambda row: row.allocated)),
    SacctField("Cluster", 10, _plain(lambda row: row.cluster)),
    SacctField("Comment", 14, _plain(lambda row: row.comment)),
    SacctField("CPUTime", 10, _plain(lambda row: full_span(row.elapsed_seconds * row.cpus))),
    SacctField("CPUTimeRAW", 10, _plain(lambda row: row.elapsed_seconds * row.cpus)),
    SacctField("DerivedExitCode", 15, _plain(lambda row: "0:0")),
    SacctField("Elapsed", 10, _plain(lambda row: full_span(row.elapsed_seconds))),
    SacctField("ElapsedRaw", 10, _plain(lambda row: row.elapsed_seconds)),
    SacctField("Eligible", 19, _date(lambda row: row.eligible_at)),
    SacctField("End", 19, _date(lambda row: row.end_at)),
    SacctField("ExitCode", 8, _plain(lambda row: f"{row.exit_code}:{row.exit_signal}")),
    SacctField("Group", 9, _plain(lambda row: row.account)),
    SacctField("JobID", -12, _plain(lambda row: row.job_id)),
    SacctField("JobIDRaw", -12, _plain(lambda row: row.number)),
    SacctField("JobName", 10, _plain(lambda row: row.name)),
    SacctField("MaxRSS", 10, _plain(lambda row: "")),
    SacctField("NCPUS", 10, _plain(lambda row: row.cpus)),
    SacctField("NNodes", 8, _plain(lambda row: row.nodes_count)),
    SacctField("NodeList", 15, _plain(lambda row: fold_nodes(row.nodes) or "None assigned")),
    SacctField("NTasks", 8, _plain(lambda row: row.tasks)),
    SacctField("Partition", 10, _plain(lambda row: row.partition)),
    SacctField("QOS", 10, _plain(lambda row: "normal")),
    SacctField("Reason", 22, _plain(lambda row: row.reason)),
    SacctField("ReqCPUS", 8, _plain(lambda row: row.cpus)),
    SacctField("ReqMem", 10, _plain(lambda row: memory(row.memory_mebibytes))),
    SacctField("ReqNodes", 8, _plain(lambda row: row.nodes_count)),
    SacctField("ReqTRES", 10, _plain(lambda row: row.requested)),
    SacctField("Restarts", 8, _plain(lambda row: row.restarts)),
    SacctField("Start", 19, _date(lambda row: row.start_at)),
    SacctField("State", 10, _plain(lambda row: row.state)),
    SacctField("Submit", 19, _date(lambda row: row.submit_at)),
    SacctField("SubmitLine", 20, _plain(lambda row: row.submit_line)),
    SacctField("SystemCPU", 10, _plain(lambda row: _NOT_GATHERED)),
    SacctField("Timelimit", 10, _plain(lambda row: full_span(row.time_limit_seconds))),
    SacctField("TimelimitRaw", 10, _plain(lambda row: (row.time_limit_seconds or 0) // 60)),
    SacctField("TotalCPU", 10, _plain(lambda row: _NOT_GATHERED)),
    SacctField("UID", 6, _plain(lambda row: row.user_id)),
    SacctField("User", 9, _plain(lambda row: row.user)),
    SacctField("UserCPU", 10, _plain(lambda row: _NOT_GATHERED)),
    SacctField("WorkDir", 20, _plain(lambda row: row.work_dir)),
)
