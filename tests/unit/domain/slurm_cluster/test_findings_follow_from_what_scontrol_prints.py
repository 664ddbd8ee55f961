"""What ``scontrol`` printed on a real 22.05 cluster, one thing changed in each row, and what is said then."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from starverse.domain.slurm_cluster.facts import Finding, GresCards, Verdict, Wanted
from starverse.domain.slurm_cluster.judge import blocks, judge, needs_without_facts, suggest_lines
from starverse.domain.slurm_cluster.reading import read_cluster, read_gres, read_seconds, read_settings
from starverse.domain.slurm_cluster.rules_nodes import judge_pinning

CAPTURED = Path(__file__).parent / "captured"
CONFIG, PARTITIONS, NODES = (
    (CAPTURED / f"{name}.txt").read_text() for name in ("config", "partitions", "nodes")
)
OURS = Wanted(partitions=frozenset({"ib", "eth"}))
ALONE = (
    PARTITIONS,
    NODES.replace("Partitions=all,ib,spot", "Partitions=ib").replace(
        "Partitions=all,eth,spot", "Partitions=eth"
    ),
)


def setting(name: str, value: str) -> str:
    """The captured settings with one of them changed."""
    lines = [f"{name} = {value}" if line.split(" ")[0] == name else line for line in CONFIG.splitlines()]
    assert f"{name} = {value}" in lines, f"{name} is not in the captured settings"
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Row:
    """One change; ``finding`` is the name of what is said about it."""

    story: str
    finding: str
    verdict: Verdict
    config: str = CONFIG
    partitions: str = PARTITIONS
    nodes: str = ALONE[1]
    wanted: Wanted = OURS
    says: str = ""


ROWS = [
    Row("a good cluster gives single cards", "SelectType", Verdict.OK),
    Row("whole nodes only", "SelectType", Verdict.BLOCKS, setting("SelectType", "select/linear")),
    Row(
        "memory is not counted",
        "SelectTypeParameters",
        Verdict.WARN,
        setting("SelectTypeParameters", "CR_CORE"),
    ),
    Row("no card resource", "GresTypes", Verdict.BLOCKS, setting("GresTypes", "(null)")),
    Row("cards among other resources", "GresTypes", Verdict.OK, setting("GresTypes", "shard,gpu")),
    Row("requeued by default, submitted by commands", "JobRequeue", Verdict.OK, says="1"),
    Row("requeued by default, only slurmrestd", "JobRequeue", Verdict.BLOCKS, wanted=Wanted(rest=True)),
    Row(
        "never requeued, only slurmrestd",
        "JobRequeue",
        Verdict.OK,
        setting("JobRequeue", "0"),
        wanted=Wanted(rest=True),
    ),
    Row(
        "root's jobs are refused, and the platform is root",
        "DisableRootJobs",
        Verdict.BLOCKS,
        setting("DisableRootJobs", "Yes"),
        wanted=Wanted(as_root=True),
    ),
    Row(
        "root's jobs are refused, and a service user submits",
        "DisableRootJobs",
        Verdict.OK,
        setting("DisableRootJobs", "Yes"),
    ),
    Row("root's jobs are taken", "DisableRootJobs", Verdict.OK, wanted=Wanted(as_root=True)),
    Row("exit codes that no launcher has", "RequeueExit", Verdict.OK, says="99"),
    Row("a launcher's end is requeued", "RequeueExit", Verdict.BLOCKS, setting("RequeueExit", "0"), says="0"),
    Row("a killed launcher is requeued", "RequeueExit", Verdict.WARN, setting("RequeueExit", "99,130-140")),
    Row("a failed launcher is held", "RequeueExit", Verdict.WARN, setting("RequeueExitHold", "1")),
    Row("no such codes", "RequeueExit", Verdict.OK, setting("RequeueExit", "(null)")),
    Row("preemption that our partitions are kept from", "PreemptType", Verdict.OK),
    Row(
        "preemption that reaches a partition of ours",
        "PreemptType",
        Verdict.BLOCKS,
        partitions=PARTITIONS.replace("PreemptMode=OFF", "PreemptMode=REQUEUE"),
        says="eth",
    ),
    Row("preemption by QOS", "PreemptType", Verdict.WARN, setting("PreemptType", "preempt/qos")),
    Row("indices are bookkeeping", "card binding", Verdict.WISH, says="sandbox"),
    Row(
        "indices are enforced",
        "card binding",
        Verdict.OK,
        setting("TaskPlugin", "task/cgroup,task/affinity") + "\nConstrainDevices = yes\n",
    ),
    Row("links are never promised", "card links", Verdict.WISH),
    Row("anyone can be anyone", "AuthType", Verdict.WARN, setting("AuthType", "auth/none")),
    Row("no tokens, and commands do", "AuthAltTypes", Verdict.WISH, setting("AuthAltTypes", "(null)")),
    Row(
        "no tokens for slurmrestd",
        "AuthAltTypes",
        Verdict.BLOCKS,
        setting("AuthAltTypes", "(null)"),
        wanted=Wanted(OURS.partitions, rest=True),
    ),
    Row("ended jobs vanish at once", "MinJobAge", Verdict.WARN, setting("MinJobAge", "2 sec")),
    Row("ended jobs stay", "MinJobAge", Verdict.OK, setting("MinJobAge", "300 sec")),
    Row("dead nodes are noticed late", "SlurmdTimeout", Verdict.WISH, setting("SlurmdTimeout", "300 sec")),
    Row("dead nodes are never noticed", "SlurmdTimeout", Verdict.WISH, setting("SlurmdTimeout", "0 sec")),
    Row("nodes stay down", "ReturnToService", Verdict.WISH, setting("ReturnToService", "0")),
    Row("KILL comes late", "KillWait", Verdict.WISH, setting("KillWait", "30 sec")),
    Row("slow rounds", "SchedulerParameters", Verdict.WISH, setting("SchedulerParameters", "(null)")),
    Row(
        "deferred rounds",
        "SchedulerParameters",
        Verdict.WARN,
        setting("SchedulerParameters", "defer_batch,sched_interval=1"),
    ),
    Row("impossible jobs queue", "EnforcePartLimits", Verdict.WISH),
    Row("few jobs fit", "MaxJobCount", Verdict.WARN, setting("MaxJobCount", "50")),
    Row("jobs of others are hidden", "PrivateData", Verdict.OK, setting("PrivateData", "jobs")),
    Row("nodes are hidden", "PrivateData", Verdict.WARN, setting("PrivateData", "jobs,nodes")),
    Row(
        "users need an account",
        "AccountingStorageEnforce",
        Verdict.WISH,
        setting("AccountingStorageEnforce", "associations,limits"),
    ),
    Row("a version not tried", "SLURM_VERSION", Verdict.WISH, setting("SLURM_VERSION", "24.11.1")),
    Row("partitions of its own", "overlap", Verdict.OK),
    Row("a partition of others on the same nodes", "overlap/all", Verdict.BLOCKS, nodes=NODES, says="gpu001"),
    Row("no partitions named", "slurm.partitions", Verdict.WARN, wanted=Wanted()),
    Row(
        "a partition that is not there",
        "partition/gone",
        Verdict.BLOCKS,
        wanted=Wanted(frozenset({"ib", "gone"})),
    ),
    Row(
        "a partition that is down",
        "partition/ib/State",
        Verdict.BLOCKS,
        partitions=PARTITIONS.replace("State=UP", "State=DOWN"),
    ),
    Row("nobody limits time", "partition/ib/DefaultTime", Verdict.WISH),
    Row(
        "a limit shorter than jobs have",
        "partition/ib/MaxTime",
        Verdict.WARN,
        partitions=PARTITIONS.replace("MaxTime=UNLIMITED", "MaxTime=12:00:00"),
        says="12:00:00",
    ),
    Row(
        "a limit long enough",
        "partition/ib",
        Verdict.OK,
        partitions=PARTITIONS.replace("MaxTime=UNLIMITED", "MaxTime=2-00:00:00"),
    ),
    Row(
        "whole nodes for each job",
        "partition/ib/OverSubscribe",
        Verdict.BLOCKS,
        partitions=PARTITIONS.replace("OverSubscribe=NO", "OverSubscribe=EXCLUSIVE"),
    ),
    Row(
        "cores for several jobs at once",
        "partition/ib/OverSubscribe",
        Verdict.WARN,
        partitions=PARTITIONS.replace("OverSubscribe=NO", "OverSubscribe=FORCE:4"),
    ),
    Row(
        "not open to all",
        "partition/ib/Allow",
        Verdict.WISH,
        partitions=PARTITIONS.replace("AllowAccounts=ALL", "AllowAccounts=physics"),
        says="AllowAccounts=physics",
    ),
    Row("all nodes are up", "nodes/State", Verdict.OK),
    Row(
        "a node is drained",
        "nodes/State",
        Verdict.WARN,
        nodes=ALONE[1].replace("State=IDLE", "State=IDLE+DRAIN", 1)
        + " Reason=disk State=IDLE is what it said",
        says="gpu001",
    ),
    Row(
        "a node does not answer",
        "nodes/State",
        Verdict.WARN,
        nodes=ALONE[1].replace("State=IDLE", "State=IDLE*", 1),
    ),
    Row(
        "no node is up",
        "nodes/State",
        Verdict.BLOCKS,
        nodes=ALONE[1].replace("State=IDLE", "State=DOWN*+DRAIN"),
    ),
    Row("cards with models", "nodes/Gres", Verdict.OK, says="32 x rtx4090"),
    Row(
        "cards without a model",
        "nodes/Gres type",
        Verdict.BLOCKS,
        nodes=ALONE[1].replace("gpu:rtx4090:8", "gpu:8"),
    ),
    Row(
        "no cards at all",
        "nodes/Gres",
        Verdict.BLOCKS,
        nodes=ALONE[1].replace("Gres=gpu:rtx4090:8", "Gres=(null)"),
    ),
    Row(
        "a node without cards",
        "nodes/Gres missing",
        Verdict.WISH,
        nodes=ALONE[1].replace("Gres=gpu:rtx4090:8", "Gres=(null)", 1),
    ),
    Row(
        "a model that has no price",
        "nodes/model",
        Verdict.WARN,
        wanted=Wanted(OURS.partitions, card_models=frozenset({"a100-40g"})),
        says="rtx4090",
    ),
    Row("features name the fabric", "nodes/Feature", Verdict.OK),
    Row(
        "no feature names the fabric",
        "nodes/Feature",
        Verdict.WISH,
        nodes=ALONE[1].replace("AvailableFeatures=ib", "AvailableFeatures=(null)"),
    ),
    Row(
        "two fabrics on one node",
        "nodes/Feature",
        Verdict.WARN,
        nodes=ALONE[1].replace("AvailableFeatures=ib", "AvailableFeatures=ib,eth"),
    ),
    Row("memory is set", "nodes/RealMemory", Verdict.OK),
    Row(
        "memory is not set",
        "nodes/RealMemory",
        Verdict.BLOCKS,
        nodes=ALONE[1].replace("RealMemory=512000", "RealMemory=1"),
    ),
    Row(
        "a node is a release behind",
        "nodes/Version",
        Verdict.WISH,
        nodes=ALONE[1].replace("Version=22.05.8", "Version=21.08.8", 1),
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.story)
def test_what_is_said(row: Row) -> None:
    found = judged(row)
    assert row.finding in found, f"said: {', '.join(found)}"
    finding = found[row.finding]
    assert finding.verdict is row.verdict
    assert row.says in f"{finding.has} {finding.why}"
    if finding.verdict is Verdict.OK:
        assert not finding.remedy


def judged(row: Row) -> dict[str, Finding]:
    facts = read_cluster(row.config, row.partitions, row.nodes)
    return {finding.name: finding for finding in judge(facts, row.wanted)}


def test_a_cluster_of_its_own_has_nothing_that_blocks_and_a_shared_one_has() -> None:
    alone, shared = read_cluster(CONFIG, *ALONE), read_cluster(CONFIG, PARTITIONS, NODES)
    assert not blocks(judge(alone, OURS))
    assert blocks(judge(shared, OURS))


def test_without_facts_every_need_is_told_with_its_line() -> None:
    needs = {finding.name: finding for finding in needs_without_facts(OURS)}
    assert {finding.verdict for finding in needs.values()} == {Verdict.UNKNOWN}
    assert needs["SelectType"].remedy == "SelectType=select/cons_tres"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("UNLIMITED", None),
        ("NONE", None),
        ("", None),
        ("30", 1800),
        ("30:15", 1815),
        ("12:00:00", 43_200),
        ("1-00:00:00", 86_400),
        ("2-12", 216_000),
        ("1-x", None),
    ],
)
def test_times_are_read_as_slurm_writes_them(text: str, seconds: int | None) -> None:
    assert read_seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "cards"),
    [
        ("gpu:rtx4090:8", (GresCards("rtx4090", 8, "rtx4090"),)),
        ("gpu:A100:4(S:0-1),nic:2", (GresCards("a100", 4, "A100"),)),
        (
            "gpu:rtx4090:4(S:0),gpu:rtx3090:4(S:1)",
            (GresCards("rtx4090", 4, "rtx4090"), GresCards("rtx3090", 4, "rtx3090")),
        ),
        ("gpu:8", (GresCards("", 8),)),
        ("gpu", (GresCards("", 1),)),
        ("(null)", ()),
        ("", ()),
    ],
)
def test_cards_are_read_from_gres(text: str, cards: tuple[GresCards, ...]) -> None:
    assert read_gres(text) == cards


def test_settings_of_cgroup_conf_follow_those_of_slurm_conf() -> None:
    text = (
        "TaskPlugin  = task/cgroup\n\nCgroup Support Configuration:\nConstrainDevices = yes\nProlog = (null)"
    )
    assert read_settings(text) == {"TaskPlugin": "task/cgroup", "ConstrainDevices": "yes", "Prolog": ""}


@pytest.mark.parametrize(
    ("version", "features", "only_rest", "verdict"),
    [
        ("v0.0.38", "ib", False, Verdict.WISH),
        ("v0.0.38", "ib", True, Verdict.BLOCKS),
        ("v0.0.38", "ib,gpu001", True, Verdict.OK),
        ("v0.0.39", "ib", True, None),
        ("", "ib", True, None),
    ],
)
def test_old_slurmrestd_pins_jobs_by_features_alone(
    version: str, features: str, only_rest: bool, verdict: Verdict | None
) -> None:
    line = NODES.splitlines()[0].replace("AvailableFeatures=ib", f"AvailableFeatures={features}")
    (node,) = read_cluster(CONFIG, PARTITIONS, line).nodes
    found = judge_pinning([node], version, only_rest=only_rest)
    assert [finding.verdict for finding in found] == ([] if verdict is None else [verdict])


def test_the_plan_writes_the_lines_that_are_missing_and_no_others() -> None:
    config = setting("SelectType", "select/linear")
    nodes = ALONE[1].replace("AvailableFeatures=ib", "AvailableFeatures=(null)")
    lines = suggest_lines(read_cluster(config, PARTITIONS, nodes), OURS)
    assert "SelectType=select/cons_tres" in lines
    assert not [line for line in lines if line.startswith(("GresTypes=", "#"))]
    limits = "MaxTime=UNLIMITED DefaultTime=01:00:00 PreemptMode=OFF OverSubscribe=NO State=UP"
    assert f"PartitionName=ib Nodes=gpu001,gpu002 {limits}" in lines
    assert f"PartitionName=eth Nodes=gpu003,gpu004 {limits}" in lines
    assert "NodeName=gpu001 ... Feature=eth,gpu001" in lines
    assert "NodeName=gpu003 ... Feature=eth,gpu003" in lines
