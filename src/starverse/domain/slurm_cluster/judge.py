"""Facts and wishes in, all findings out: what ``starverse slurm plan`` prints."""

from __future__ import annotations

from collections.abc import Iterable

from starverse.domain.slurm_cluster.facts import ClusterFacts, Finding, NodeFacts, Verdict, Wanted
from starverse.domain.slurm_cluster.rules_nodes import FABRICS, judge_nodes, judge_partitions, nodes_of
from starverse.domain.slurm_cluster.rules_settings import judge_settings


def judge(facts: ClusterFacts, wanted: Wanted) -> tuple[Finding, ...]:
    """Settings, partitions, nodes, in this order."""
    return judge_settings(facts, wanted) + judge_partitions(facts, wanted) + judge_nodes(facts, wanted)


def suggest_lines(facts: ClusterFacts, wanted: Wanted) -> tuple[str, ...]:
    """The lines of slurm.conf as the platform wants them: settings that are not well, partitions, features.

    Lines of nodes hold only what is to be added; ``...`` stands for what is there already.
    """
    settings = [
        found.remedy
        for found in judge_settings(facts, wanted)
        if found.verdict is not Verdict.OK and found.remedy.startswith(f"{found.name}=")
    ]
    ours = nodes_of(facts, wanted)
    partitions = []
    for name in sorted(wanted.partitions) or ["gpu"]:
        members = [
            node.name for node in ours if node.cards and (not wanted.partitions or name in node.partitions)
        ]
        nodes = ",".join(sorted(members)) or "..."
        limits = "MaxTime=UNLIMITED DefaultTime=01:00:00"
        partitions.append(
            f"PartitionName={name} Nodes={nodes} {limits} PreemptMode=OFF OverSubscribe=NO State=UP"
        )
    features = [
        f"NodeName={node.name} ... Feature={','.join(sorted(lacking | node.features))}"
        for node in ours
        if (lacking := _lacking(node))
    ]
    return (*settings, *partitions, *features)


def _lacking(node: NodeFacts) -> frozenset[str]:
    """Its fabric, and its own name, by which an old slurmrestd pins a job to it."""
    fabric = frozenset() if node.features & FABRICS else frozenset({"eth"})
    return fabric | ({node.name} - node.features)


def needs_without_facts(wanted: Wanted) -> tuple[Finding, ...]:
    """What a cluster needs where none could be read: each as ``unknown``, with the line to write."""
    nothing = ClusterFacts({}, (), ())
    return tuple(
        Finding(found.name, Verdict.UNKNOWN, "not read", found.needs, found.why, found.remedy)
        for found in judge_settings(nothing, wanted)
    )


def blocks(findings: Iterable[Finding]) -> bool:
    """Whether anything keeps jobs from running, or from running safely."""
    return any(found.verdict is Verdict.BLOCKS for found in findings)
