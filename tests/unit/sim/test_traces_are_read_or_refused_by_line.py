"""Every kind of trace becomes jobs; what cannot be is named with its line."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from starverse.domain.errors import Invalid
from starverse.sim.cluster_file import read_nodes
from starverse.sim.trace import read_trace

PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n"
OPENB = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
)
SACCT = "JobID|Account|Submit|ElapsedRaw|AllocTRES\n"


def test_philly() -> None:
    trace = read_trace(PHILLY + "2017-10-09 07:01:55,66.0,2,132.0,vc1\n2017-10-09 06:00:00,5,1,5,vc2\n")
    assert trace.kind == "philly"
    assert [(job.line, job.team, job.cards, job.run_seconds) for job in trace.jobs] == [
        (3, "vc2", 1, 5),
        (2, "vc1", 2, 66),
    ]


def test_openb_rounds_parts_of_a_card_up_and_passes_over_what_never_ended() -> None:
    rows = "a,6000,1,1,460,V100M16|T4,LS,Running,10,100,40\nb,6000,1,1,460,,LS,Pending,10,,\n"
    (job,) = read_trace(OPENB + rows).jobs
    assert (job.id, job.cards, job.cpus, job.run_seconds, job.models) == ("a", 1, 6, 60, ("V100M16", "T4"))


def test_sacct_without_its_steps() -> None:
    rows = (
        "12|lab|2026-03-02T10:00:00|90|billing=4,cpu=4,gres/gpu=2,mem=8G\n12.batch||2026-03-02T10:00:00|90|\n"
    )
    (job,) = read_trace(SACCT + rows).jobs
    assert (job.id, job.team, job.cards, job.cpus) == ("12", "lab", 2, 4)
    assert job.at == datetime(2026, 3, 2, 10, tzinfo=UTC)


def test_the_platforms_own_list_without_what_has_not_run() -> None:
    done = {
        "number": "7",
        "team": "t",
        "cards": 1,
        "submitted_at": "2026-03-02T10:00:00Z",
        "started_at": "2026-03-02T10:01:00Z",
        "ended_at": "2026-03-02T10:03:00Z",
    }
    (job,) = read_trace(json.dumps({"jobs": [done, {**done, "number": "8", "ended_at": None}]})).jobs
    assert (job.id, job.run_seconds) == ("7", 120)


def test_each_fault_has_its_line_and_the_rest_is_kept() -> None:
    rows = [
        "12||2026-03-02T10:00:00|90|gres/gpu=1",
        "13||2026-03-02T10:00:00|-5|gres/gpu=1",
        "12||2026-03-02T11:00:00|90|gres/gpu=1",
        "14||yesterday|90|gres/gpu=1",
        "15||2026-03-02T10:00:00|inf|gres/gpu=1",
        "16||2026-03-20T10:00:00|90|gres/gpu=1",
    ]
    trace = read_trace(SACCT + "\n".join(rows))
    assert [fault.line for fault in trace.faults] == [3, 4, 5, 6]
    assert str(trace.faults[0]) == "line 3: job 13 ran -5 seconds; negative"
    assert str(trace.faults[1]) == "line 4: job 12 was on line 2 already"
    assert [job.id for job in trace.jobs] == ["12", "16"]
    assert trace.notes[0].startswith("nothing arrives for 18.0 days before line 7")


@pytest.mark.parametrize("text", ["", "a,b\n1,2\n", PHILLY, "{", '{"jobs": 3}', PHILLY + "x,1,1,1,c\n"])
def test_no_trace_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        read_trace(text)


def test_nodes_of_both_forms() -> None:
    openb = read_nodes("sn,cpu_milli,memory_mib,gpu,model\nn1,64000,1024,2,P100\n", "rtx4090")
    assert [(node.id, node.cpus, [card.model for card in node.cards]) for node in openb] == [
        ("n1", 64, ["rtx4090", "rtx4090"])
    ]
    short = read_nodes("count,cards,model,cpus,memory_gib\n2,8,rtx4090,96,512\n1,1,a100-40g,8,64\n")
    assert [node.id for node in short] == ["node-00000", "node-00001", "node-00002"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\n1\n",
        "count,cards,model,cpus\n",
        "count,cards,model,cpus\n0,8,m,96\n",
        "count,cards,model,cpus\n1,99,m,96\n",
        "count,cards,model,cpus\n1,8,m,many\n",
        "count,cards,model,cpus\n99999,8,m,1\n",
    ],
)
def test_nodes_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(Invalid):
        read_nodes(text)
