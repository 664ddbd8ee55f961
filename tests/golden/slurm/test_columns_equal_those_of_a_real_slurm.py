"""The same jobs and nodes as in a cluster of Slurm 22.05.8: its recorded output is ours to the character."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from starverse.cli.slurm.sinfo_format import FORMAT_LONG as SINFO_LONG
from starverse.cli.slurm.sinfo_format import FORMAT_NODES, FORMAT_SUMMARY, NodeLine, sinfo_layout, sinfo_lines
from starverse.cli.slurm.squeue_format import (
    FORMAT_LONG,
    JobLine,
    date_stamp,
    fold_waiting_tasks,
    sort_jobs,
    squeue_layout,
    squeue_lines,
)

SUBMIT = datetime(2026, 11, 30, 11, 48, 55, tzinfo=UTC)
NOW = datetime(2026, 11, 30, 11, 48, 58, tzinfo=UTC)
LAB = "/lab"


def waiting(number: int, name: str, reason: str, priority: int, nodes: int = 1) -> JobLine:
    return JobLine(
        number=number, name=name, user="root", state="PENDING", reason=reason, nodes_count=nodes,
        priority=priority, submit_at=SUBMIT, memory_mebibytes=256, work_dir=LAB, command=f"{LAB}/job.sh",
    )  # fmt: skip


def task(index: int, number: int = 2) -> JobLine:
    line = waiting(number, "arr", "JobArrayTaskLimit", 4294901758)
    return replace(
        line, array_number=2, array_index=index, array_running_max=2, cards="gres:gpu:8",
        time_limit_seconds=93_600
    )  # fmt: skip


def running(line: JobLine, node: str) -> JobLine:
    return replace(line, state="RUNNING", reason="None", nodes=(node,), time_used_seconds=3, start_at=SUBMIT)


JOBS = [
    running(
        replace(
            waiting(1, "train-a-long-name", "None", 4294901759),
            cards="gres:gpu:rtx4090:2",
            time_limit_seconds=3600,
        ),
        "gpu001",
    ),
    running(task(0, 9), "gpu002"),
    running(task(1, 10), "gpu003"),
    *(task(index) for index in range(2, 8)),
    replace(waiting(4, "big", "Resources", 4294901756, 4), cards="gres:gpu:8", memory_mebibytes=4096),
    replace(
        waiting(5, "dep", "Dependency", 4294901755),
        partition="spot", comment="hi", dependency="afterok:1(unfulfilled)", time_limit_seconds=86_400,
    ),
    waiting(6, "held", "JobHeldUser", 0),
    waiting(7, "later", "BeginTime", 4294901754),
    waiting(8, "three", "Priority", 4294901753, 3),
]  # fmt: skip
SORTED = sort_jobs(JOBS)[0]
FOLDED = sort_jobs(fold_waiting_tasks(JOBS))[0]

DEFAULT = """\
             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
         2_[2-7%2]       all      arr     root PD       0:00      1 (JobArrayTaskLimit)
                 4       all      big     root PD       0:00      4 (Resources)
                 7       all    later     root PD       0:00      1 (BeginTime)
                 8       all    three     root PD       0:00      3 (Priority)
                 6       all     held     root PD       0:00      1 (JobHeldUser)
                 1       all train-a-     root  R       0:03      1 gpu001
               2_0       all      arr     root  R       0:03      1 gpu002
               2_1       all      arr     root  R       0:03      1 gpu003
                 5      spot      dep     root PD       0:00      1 (Dependency)
"""

LONG = """\
Mon Nov 30 11:48:58 2026
             JOBID PARTITION     NAME     USER    STATE       TIME TIME_LIMI  NODES NODELIST(REASON)
         2_[2-7%2]       all      arr     root  PENDING       0:00 1-02:00:00      1 (JobArrayTaskLimit)
                 4       all      big     root  PENDING       0:00 UNLIMITED      4 (Resources)
                 7       all    later     root  PENDING       0:00 UNLIMITED      1 (BeginTime)
                 8       all    three     root  PENDING       0:00 UNLIMITED      3 (Priority)
                 6       all     held     root  PENDING       0:00 UNLIMITED      1 (JobHeldUser)
                 1       all train-a-     root  RUNNING       0:03   1:00:00      1 gpu001
               2_0       all      arr     root  RUNNING       0:03 1-02:00:00      1 gpu002
               2_1       all      arr     root  RUNNING       0:03 1-02:00:00      1 gpu003
                 5      spot      dep     root  PENDING       0:00 1-00:00:00      1 (Dependency)
"""

MANY = """\
JOBID JOBID ARRAY_JOB_ID ARRAY_TASK_ID STATE REASON MIN_MEMORY TIME_LIMIT TIME_LEFT DEPENDENCY TRES_PER_NODE
2_[2-7%2] 2 2 2-7%2 PENDING JobArrayTaskLimit 256M 1-02:00:00 1-02:00:00 (null) gres:gpu:8
4 4 4 N/A PENDING Resources 4G UNLIMITED UNLIMITED (null) gres:gpu:8
7 7 7 N/A PENDING BeginTime 256M UNLIMITED UNLIMITED (null) N/A
8 8 8 N/A PENDING Priority 256M UNLIMITED UNLIMITED (null) N/A
6 6 6 N/A PENDING JobHeldUser 256M UNLIMITED UNLIMITED (null) N/A
1 1 1 N/A RUNNING None 256M 1:00:00 59:57 (null) gres:gpu:rtx4090:2
2_0 9 2 0 RUNNING None 256M 1-02:00:00 1-01:59:57 (null) gres:gpu:8
2_1 10 2 1 RUNNING None 256M 1-02:00:00 1-01:59:57 (null) gres:gpu:8
5 5 5 N/A PENDING Dependency 256M 1-00:00:00 1-00:00:00 afterok:1(unfulfilled) N/A
"""

OTHERS = """\
PRIORITY PRIORITY START_TIME SUBMIT_TIME WORK_DIR COMMAND COMMENT REQ_NODES NODELIST ACCOUNT
0.99998474121093 4294901759 2026-11-30T11:48:55 2026-11-30T11:48:55 /lab /lab/job.sh (null)  gpu001 (null)
0.00000000000000 0 N/A 2026-11-30T11:48:55 /lab /lab/job.sh (null)   (null)
"""

LONG_NAMES = """\
JOBID               JOBID                             NAMESTATE               TIME_LEFT           NODELIST(REASON)    
2                   2_[2-7%2]                          arrPENDING             1-02:00:00          (JobArrayTaskLimit) 
4                   4                                  bigPENDING             UNLIMITED           (Resources)         
"""  # noqa: E501, W291

EVERY_TASK = """\
               2_2 (JobArrayTaskLimit)
               2_3 (JobArrayTaskLimit)
               2_4 (JobArrayTaskLimit)
               2_5 (JobArrayTaskLimit)
               2_6 (JobArrayTaskLimit)
               2_7 (JobArrayTaskLimit)
                 4 (Resources)
                 7 (BeginTime)
                 8 (Priority)
                 6 (JobHeldUser)
                 1 gpu001
               2_0 gpu002
               2_1 gpu003
                 5 (Dependency)
"""


def text(lines: list[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def test_squeue() -> None:
    assert text(squeue_lines(FOLDED, squeue_layout())) == DEFAULT


def test_squeue_long() -> None:
    lines = squeue_lines(FOLDED, squeue_layout(FORMAT_LONG), stamp=date_stamp(NOW, UTC))
    assert text(lines) == LONG


def test_squeue_format_with_many_types() -> None:
    assert text(squeue_lines(FOLDED, squeue_layout("%i %A %F %K %T %r %m %l %L %E %b"))) == MANY


def test_squeue_format_with_the_other_types() -> None:
    chosen = [job for job in FOLDED if job.number in {1, 6}][::-1]
    assert text(squeue_lines(chosen, squeue_layout("%p %Q %S %V %Z %o %k %n %N %a"))) == OTHERS


def test_squeue_long_names() -> None:
    layout = squeue_layout(long="jobid,jobarrayid:30,name:.8,state,timeleft,reasonlist")
    assert text(squeue_lines(FOLDED[:2], layout)) == LONG_NAMES


def test_squeue_array_without_header() -> None:
    assert text(squeue_lines(SORTED, squeue_layout("%.18i %R"), header=False)) == EVERY_TASK


def test_squeue_literal_text_and_cut_fields() -> None:
    assert squeue_lines(FOLDED[:2], squeue_layout("x%.3j%j|")) == ["xNAMNAME|", "xarrarr|", "xbigbig|"]


def test_squeue_prints_an_unknown_type_as_it_stands_and_names_it() -> None:
    layout = squeue_layout("%@")
    assert layout.unknown == ("@",)
    assert squeue_lines(FOLDED[:2], layout) == ["%@"] * 3


def nodes(states: dict[str, tuple[str, int]]) -> list[NodeLine]:
    found = []
    for partition, names in (("all", sorted(states)), ("spot", ["gpu003", "gpu004"])):
        for name in names:
            state, used = states[name]
            found.append(
                NodeLine(
                    name, partition, state, partition == "all", cpus=64, cpus_allocated=used,
                    gres="gpu:rtx4090:8", time_limit_seconds=None if partition == "all" else 86_400,
                )
            )  # fmt: skip
    return found


NODES = nodes({"gpu001": ("mixed", 1), "gpu002": ("mixed", 1), "gpu003": ("mixed", 1), "gpu004": ("idle", 0)})

SINFO = """\
PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST
all*         up   infinite      3    mix gpu[001-003]
all*         up   infinite      1   idle gpu004
spot         up 1-00:00:00      1    mix gpu003
spot         up 1-00:00:00      1   idle gpu004
"""

SINFO_LONG_TEXT = """\
PARTITION AVAIL  TIMELIMIT   JOB_SIZE ROOT OVERSUBS     GROUPS  NODES       STATE NODELIST
all*         up   infinite 1-infinite   no       NO        all      3       mixed gpu[001-003]
all*         up   infinite 1-infinite   no       NO        all      1        idle gpu004
spot         up 1-00:00:00 1-infinite   no       NO        all      1       mixed gpu003
spot         up 1-00:00:00 1-infinite   no       NO        all      1        idle gpu004
"""

SINFO_SUMMARY_TEXT = """\
PARTITION AVAIL  TIMELIMIT   NODES(A/I/O/T) NODELIST
all*         up   infinite          3/1/0/4 gpu[001-004]
spot         up 1-00:00:00          1/1/0/2 gpu[003-004]
"""

SINFO_STATES = """\
PARTITION|NODES(A/I/O/T)|CPUS(A/I/O/T)|GRES|STATE
all*|3/0/0/3|3/189/0/192|gpu:rtx4090:8|mix
all*|0/1/0/1|0/64/0/64|gpu:rtx4090:8|idle
spot|1/0/0/1|1/63/0/64|gpu:rtx4090:8|mix
spot|0/1/0/1|0/64/0/64|gpu:rtx4090:8|idle
"""


def test_sinfo() -> None:
    assert text(sinfo_lines(NODES, sinfo_layout())) == SINFO


def test_sinfo_long_and_summary() -> None:
    assert text(sinfo_lines(NODES, sinfo_layout(SINFO_LONG))) == SINFO_LONG_TEXT
    assert text(sinfo_lines(NODES, sinfo_layout(FORMAT_SUMMARY))) == SINFO_SUMMARY_TEXT


def test_sinfo_format() -> None:
    assert text(sinfo_lines(NODES, sinfo_layout("%P|%F|%C|%G|%t"))) == SINFO_STATES
    expected = ["PARTITION NODES NODELIST", "all* 4 gpu[001-004]", "spot 2 gpu[003-004]"]
    assert sinfo_lines(NODES, sinfo_layout("%P %D %N")) == expected


def test_sinfo_long_names() -> None:
    chosen = nodes(
        {"gpu001": ("idle", 0), "gpu002": ("mixed", 1), "gpu003": ("mixed", 1), "gpu004": ("idle", 0)}
    )
    lines = sinfo_lines(chosen, sinfo_layout(long="nodelist,partition,statecompact,gres"))
    assert [line.split() for line in lines[1:3]] == [
        ["gpu[002-003]", "all*", "mix", "gpu:rtx4090:8"],
        ["gpu[001,004]", "all*", "idle", "gpu:rtx4090:8"],
    ]
    assert lines[0] == "NODELIST            PARTITION           STATE               GRES                "


def test_sinfo_by_node() -> None:
    lines = sinfo_lines(NODES, sinfo_layout(FORMAT_NODES), by_node=True)
    assert lines[:4] == [
        "NODELIST   NODES PARTITION STATE ",
        "gpu001         1      all* mix   ",
        "gpu002         1      all* mix   ",
        "gpu003         1      all* mix   ",
    ]
