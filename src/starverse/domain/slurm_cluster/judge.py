"""Facts and wishes in, all findings out: what ``starverse slurm plan`` prints."""

from __future__ import annotations

from collections.abc import Iterable

from starverse.domain.slurm_cluster.facts import ClusterFacts, Finding, Verdict, Wanted
from starverse.domain.slurm_cluster.rules_nodes import judge_nodes, judge_partitions
from starverse.domain.slurm_cluster.rules_settings import judge_settings


def judge(facts: ClusterFacts, wanted: Wanted) -> tuple[Finding, ...]:
    """Settings, partitions, nodes, in this order."""
    return judge_settings(facts, wanted) + judge_partitions(facts, wanted) + judge_nodes(facts, wanted)


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
