"""Names of states, spans of time, folded lists, and sacct's three ways to print."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from starverse.cli.slurm import formats, job_states
from starverse.cli.slurm.sacct_format import (
    FIELDS,
    PARSABLE,
    PARSABLE2,
    AccountingLine,
    SacctStyle,
    help_format,
    read_fields,
    sacct_lines,
)
from starverse.cli.slurm.sinfo_format import node_state
from starverse.cli.slurm.squeue_format import JobLine, sort_jobs, squeue_layout, squeue_lines
from starverse.client import sbatch_words
from starverse.domain.sbatch.hostlists import fold_hosts
from starverse.domain.sbatch.options import OPTIONS, Status, Takes
from starverse.domain.workloads.reasons import EndCause, JobEndReason, WaitReason
from starverse.domain.workloads.states import JobState


@pytest.mark.parametrize(
    ("state", "reason", "phase", "expected"),
    [
        ("queued", "no_cards", "", "PENDING"),
        ("queued", "reclaimed", "", "PENDING"),
        ("running", "", "running", "RUNNING"),
        ("running", "", "starting", "CONFIGURING"),
        ("running", "", "stopping", "COMPLETING"),
        ("succeeded", "completed", "", "COMPLETED"),
        ("failed", "exit_code", "", "FAILED"),
        ("failed", "time_limit", "", "TIMEOUT"),
        ("failed", "out_of_memory", "", "OUT_OF_MEMORY"),
        ("failed", "no_requeue", "", "PREEMPTED"),
        ("cancelled", "cancelled", "", "CANCELLED"),
        ("paused", "", "", "PAUSED"),
    ],
)
def test_states_of_jobs(state: str, reason: str, phase: str, expected: str) -> None:
    assert job_states.slurm_state(state, reason, phase) == expected


def test_every_state_and_reason_of_ours_has_a_word_of_slurm() -> None:
    for state in JobState:
        for reason in JobEndReason:
            assert job_states.slurm_state(state, reason) in job_states.COMPACT
    for cause in EndCause:
        assert job_states.slurm_state_of_run(cause) in job_states.COMPACT
    for wait in WaitReason:
        assert job_states.slurm_reason(wait).isalnum()
    assert job_states.slurm_reason("no_cards") == "Resources"
    assert job_states.slurm_reason("no_money") == "NoMoney"
    assert job_states.slurm_reason("") == "None"


def test_states_that_people_ask_for() -> None:
    assert job_states.parse_states("pd,RUNNING") == (frozenset({"PENDING", "RUNNING"}), "")
    assert job_states.parse_states("all") == (None, "")
    _, wrong = job_states.parse_states("foo")
    assert wrong.startswith("Invalid job state specified: foo\nValid job states include: PENDING,RUNNING,")


@pytest.mark.parametrize(
    ("seconds", "short", "full"),
    [
        (0, "0:00", "00:00:00"),
        (65, "1:05", "00:01:05"),
        (3600, "1:00:00", "01:00:00"),
        (90_061, "1-01:01:01", "1-01:01:01"),
        (None, "UNLIMITED", "UNLIMITED"),
        (-1, "INVALID", "INVALID"),
    ],
)
def test_spans(seconds: int | None, short: str, full: str) -> None:
    assert (formats.short_span(seconds), formats.full_span(seconds)) == (short, full)


@pytest.mark.parametrize(
    ("mebibytes", "expected"), [(0, "0M"), (256, "256M"), (4096, "4G"), (2500, "2500M"), (1024**2, "1T")]
)
def test_memory(mebibytes: int, expected: str) -> None:
    assert formats.memory(mebibytes) == expected


@pytest.mark.parametrize(
    "names", [(), ("head",), ("gpu001", "gpu002", "gpu004", "head"), ("n9", "n10", "n11"), ("a1", "b2", "a2")]
)
def test_nodes_are_folded_as_the_server_folds_them(names: tuple[str, ...]) -> None:
    assert formats.fold_nodes(names) == fold_hosts(names)


def test_the_client_splits_a_command_line_as_the_table_of_options_says() -> None:
    without_value = {option.name for option in OPTIONS if option.takes is not Takes.VALUE}
    letters = {option.short for option in OPTIONS if option.takes is not Takes.VALUE and option.short}
    own = {name for name, letter in sbatch_words.OWN_FLAGS.items()}
    own_letters = {letter for letter in sbatch_words.OWN_FLAGS.values() if letter}
    assert set(sbatch_words.FLAGS) | own == without_value
    assert set(sbatch_words.FLAG_LETTERS) | own_letters == letters
    client_only = {option.name for option in OPTIONS if option.client and option.status is Status.SUPPORTED}
    assert own | {"wrap"} == client_only


def test_wide_characters_keep_columns_aligned_and_control_characters_cannot_escape() -> None:
    job = JobLine(number=1, name="训练模型甲乙丙\x1b[2J", user="root", state="RUNNING")
    assert squeue_lines([job], squeue_layout("%.8j|%8j|%t"), header=False) == ["训练模型|训练模型|R"]
    assert formats.fit("训练", 3) == "训 "
    assert formats.one_line("a\x1b[2Jb\nc") == "a?[2Jb?c"


def test_sorting_by_letters() -> None:
    jobs = [
        JobLine(number, f"j{9 - number}", "root", "RUNNING", nodes_count=number % 2) for number in range(4)
    ]
    assert [job.number for job in sort_jobs(jobs, "j")[0]] == [3, 2, 1, 0]
    assert [job.number for job in sort_jobs(jobs, "-D,i")[0]] == [1, 3, 0, 2]
    assert sort_jobs(jobs, "zz")[1] == "Invalid sort specification: zz"


@pytest.mark.parametrize(
    ("cards", "used", "draining", "down", "expected"),
    [
        (8, 0, False, False, "idle"), (8, 1, False, False, "mixed"), (8, 8, False, False, "allocated"),
        (8, 0, True, False, "drained"), (8, 2, True, False, "draining"), (8, 2, True, True, "down"),
        (0, 0, False, False, "idle"),
    ],
)  # fmt: skip
def test_states_of_nodes(cards: int, used: int, draining: bool, down: bool, expected: str) -> None:
    assert node_state(cards=cards, cards_used=used, draining=draining, down=down) == expected


ROWS = [
    AccountingLine(
        1, "train-a-long-name", "COMPLETED", cpus=4, account="lab", elapsed_seconds=3723,
        start_at=datetime(2026, 3, 10, 2, tzinfo=UTC), nodes=("gpu001", "gpu002"), nodes_count=2,
    ),
    AccountingLine(9, "arr", "CANCELLED by 1000", array_number=2, array_index=0, cpus=1, exit_signal=15),
]  # fmt: skip


def test_sacct_aligned() -> None:
    fields, wrong = read_fields()
    assert wrong == ""
    assert sacct_lines(ROWS, fields) == [
        "       JobID    JobName  Partition    Account  AllocCPUS      State ExitCode ",
        "------------ ---------- ---------- ---------- ---------- ---------- -------- ",
        "1            train-a-l+        all        lab          4  COMPLETED      0:0 ",
        "2_0                 arr        all                     1 CANCELLED+     0:15 ",
    ]


def test_sacct_parsable() -> None:
    fields, _ = read_fields("jobid,jobidraw,elapsed,start,nodelist%5,end")
    shanghai = ZoneInfo("Asia/Shanghai")
    style = SacctStyle("|", delimiter_at_end=False, header=False, zone=shanghai)
    assert sacct_lines(ROWS, fields, style) == [
        "1|1|01:02:03|2026-03-10T10:00:00|gpu[001-002]|Unknown",
        "2_0|9|00:00:00|Unknown|None assigned|Unknown",
    ]
    assert sacct_lines(ROWS, fields[:2], PARSABLE)[:2] == ["JobID|JobIDRaw|", "1|1|"]
    assert sacct_lines(ROWS, fields[:2], PARSABLE2)[:2] == ["JobID|JobIDRaw", "1|1"]


def test_sacct_widths_and_wrong_fields() -> None:
    fields, _ = read_fields("JobName%-20,State%4")
    assert sacct_lines(ROWS, fields, SacctStyle(header=False)) == [
        "train-a-long-name    COM+ ",
        "arr                  CAN+ ",
    ]
    assert [field.name for field in read_fields("TotalCPU,usercpu,systemcpu,maxrss")[0]] == [
        "TotalCPU",
        "UserCPU",
        "SystemCPU",
        "MaxRSS",
    ]
    assert read_fields("JobID,foo") == ([], 'Invalid field requested: "foo"')
    assert read_fields("JobID%x") == ([], 'Invalid field requested: "JobID%x"')


def test_sacct_help_lists_every_field() -> None:
    assert help_format().split() == [field.name for field in FIELDS]
