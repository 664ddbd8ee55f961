"""What partitions and nodes must be like for the platform."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence

from starverse.domain.slurm_cluster.facts import (
    ClusterFacts,
    Finding,
    NodeFacts,
    PartitionFacts,
    Verdict,
    Wanted,
)

FABRICS = frozenset({"ib", "roce", "eth"})
NAMES_NODES_FROM = 39
NAMED_MAX = 8
"""Nodes that a finding names before it counts the rest."""


def judge_partitions(facts: ClusterFacts, wanted: Wanted) -> tuple[Finding, ...]:
    """The partitions that are the platform's: there, up, open, without preemption, long enough."""
    known = {partition.name: partition for partition in facts.partitions}
    findings = [
        Finding(f"partition/{name}", Verdict.BLOCKS, "missing", "there", "it is named in slurm.partitions")
        for name in sorted(wanted.partitions - known.keys())
    ]
    if not facts.partitions:
        findings.append(Finding("partitions", Verdict.BLOCKS, "none", "one with the nodes of the platform"))
    for name, partition in sorted(known.items()):
        if not wanted.partitions or name in wanted.partitions:
            findings += _judge_partition(partition, wanted)
    findings += _overlaps(facts, wanted)
    return tuple(findings)


def judge_nodes(facts: ClusterFacts, wanted: Wanted) -> tuple[Finding, ...]:
    """The nodes in these partitions, findings by kind with the nodes that they are about."""
    ours = nodes_of(facts, wanted)
    if not ours:
        return (Finding("nodes", Verdict.BLOCKS, "none", "at least one node with cards"),)
    return tuple(
        finding
        for rule in (_usable, _cards, _models, _fabrics, _memory, _versions)
        for finding in rule(ours, facts, wanted)
    )


def judge_pinning(ours: Sequence[NodeFacts], version: str, *, only_rest: bool) -> tuple[Finding, ...]:
    """Whether slurmrestd can pin a job to nodes: before v0.0.39 only by features named like the nodes."""
    number = version.rpartition(".")[2]
    if not number.isdigit() or int(number) >= NAMES_NODES_FROM:
        return ()
    unnamed = [node.name for node in ours if node.name not in node.features]
    needs = "each node's own name among its features"
    if not unnamed:
        return (Finding("nodes/Feature name", Verdict.OK, "each node has its own name", needs),)
    why = f"slurmrestd {version} takes no node names for a job; it can pin by features alone"
    why += "" if only_rest else "; until then jobs are submitted by sbatch"
    verdict = Verdict.BLOCKS if only_rest else Verdict.WISH
    remedy = f"NodeName={unnamed[0]} Feature=...,{unnamed[0]}"
    return (Finding("nodes/Feature name", verdict, f"missing on {name_some(unnamed)}", needs, why, remedy),)


def nodes_of(facts: ClusterFacts, wanted: Wanted) -> tuple[NodeFacts, ...]:
    """The nodes in the platform's partitions."""
    if not wanted.partitions:
        return facts.nodes
    return tuple(node for node in facts.nodes if node.partitions & wanted.partitions)


def name_some(names: Iterable[str]) -> str:
    """The first few names and how many more there are."""
    found = sorted(names)
    more = len(found) - NAMED_MAX
    return ", ".join(found[:NAMED_MAX]) + (f" and {more} more" if more > 0 else "")


def _judge_partition(partition: PartitionFacts, wanted: Wanted) -> list[Finding]:
    name = f"partition/{partition.name}"
    line = f"PartitionName={partition.name} ..."
    findings = []
    if partition.state != "UP":
        why = "nothing starts in it"
        findings.append(
            Finding(f"{name}/State", Verdict.BLOCKS, partition.state, "UP", why, f"{line} State=UP")
        )
    if partition.seconds_max is not None and partition.seconds_max < wanted.job_seconds_max:
        why = "Slurm refuses jobs with a longer time limit, and the platform always sets one"
        has, needs = clock(partition.seconds_max), f"{clock(wanted.job_seconds_max)} or more, or UNLIMITED"
        findings.append(
            Finding(f"{name}/MaxTime", Verdict.WARN, has, needs, why, f"{line} MaxTime=UNLIMITED")
        )
    if partition.seconds_max is None and partition.seconds_default is None:
        why = "a job that somebody submits by hand without --time holds its node for ever"
        remedy = f"{line} DefaultTime=01:00:00"
        findings.append(
            Finding(f"{name}/DefaultTime", Verdict.WISH, "no time limit", "a time limit", why, remedy)
        )
    if partition.over_subscribe.startswith("FORCE"):
        why = "cores are given to several jobs at once, so that they slow each other"
        findings.append(
            Finding(
                f"{name}/OverSubscribe",
                Verdict.WARN,
                partition.over_subscribe,
                "NO",
                why,
                f"{line} OverSubscribe=NO",
            )
        )
    if partition.over_subscribe == "EXCLUSIVE":
        why = "each allocation takes a whole node, so cards beside it cannot be given out"
        findings.append(
            Finding(
                f"{name}/OverSubscribe", Verdict.BLOCKS, "EXCLUSIVE", "NO", why, f"{line} OverSubscribe=NO"
            )
        )
    if partition.restricted:
        why = "the Unix users of the platform must be among those allowed"
        has = ", ".join(partition.restricted)
        findings.append(Finding(f"{name}/Allow", Verdict.WISH, has, "open to the platform's users", why))
    if not findings:
        findings.append(Finding(name, Verdict.OK, "up, with a time limit", "up, with a time limit"))
    return findings


def _overlaps(facts: ClusterFacts, wanted: Wanted) -> list[Finding]:
    """Nodes that others can also use: the platform and Slurm would each give the same cards away."""
    if not wanted.partitions:
        why = (
            "the platform takes all partitions, so jobs of others may hold cards that it counts as "
            "its own; give it partitions of its own"
        )
        return [
            Finding("slurm.partitions", Verdict.WARN, "all partitions", "names", why, "[slurm] partitions")
        ]
    shared: dict[str, list[str]] = defaultdict(list)
    for node in nodes_of(facts, wanted):
        for other in sorted(node.partitions - wanted.partitions):
            shared[other].append(node.name)
    if not shared:
        return [Finding("overlap", Verdict.OK, "no other partition uses these nodes", "none")]
    why = "others start jobs there that the platform does not know of; it leaves such nodes out"
    return [
        Finding(
            f"overlap/{other}",
            Verdict.BLOCKS,
            f"also uses {name_some(nodes)}",
            "nodes of its own",
            why,
            f"PartitionName={other} Nodes=... without these",
        )
        for other, nodes in sorted(shared.items())
    ]


_Nodes = Sequence[NodeFacts]
_Rule = Callable[[_Nodes, ClusterFacts, Wanted], list[Finding]]


def _usable(ours: _Nodes, _: ClusterFacts, __: Wanted) -> list[Finding]:
    bad = [node for node in ours if not node.usable]
    has = f"{len(ours) - len(bad)} of {len(ours)} usable"
    if not bad:
        return [Finding("nodes/State", Verdict.OK, has, "usable")]
    reasons = Counter(node.reason or "+".join(sorted(node.states)) for node in bad)
    why = "; ".join(f"{count} x {reason}" for reason, count in reasons.most_common(3))
    verdict = Verdict.BLOCKS if len(bad) == len(ours) else Verdict.WARN
    names = name_some(node.name for node in bad)
    return [
        Finding(
            "nodes/State",
            verdict,
            f"{has}; not: {names}",
            "usable",
            why,
            "scontrol update node=NAME state=resume",
        )
    ]


def _cards(ours: _Nodes, _: ClusterFacts, __: Wanted) -> list[Finding]:
    cards = Counter[str]()
    for node in ours:
        for card in node.cards:
            cards[card.model or "without a type"] += card.count
    has = ", ".join(f"{count} x {model}" for model, count in sorted(cards.items())) or "no cards"
    findings = []
    if not cards:
        why = "the platform gives out cards (gres/gpu)"
        return [
            Finding(
                "nodes/Gres",
                Verdict.BLOCKS,
                has,
                "Gres=gpu:MODEL:COUNT",
                why,
                "NodeName=... Gres=gpu:rtx4090:8",
            )
        ]
    bare = [node.name for node in ours if not node.cards]
    untyped = [node.name for node in ours if any(not card.kind for card in node.cards)]
    if untyped:
        why = f"the price depends on the model, and gres.conf names none on {name_some(untyped)}"
        findings.append(
            Finding(
                "nodes/Gres type",
                Verdict.BLOCKS,
                has,
                "gpu:MODEL:COUNT",
                why,
                "Name=gpu Type=rtx4090 File=... in gres.conf",
            )
        )
    if bare:
        why = f"nothing is placed on nodes without cards: {name_some(bare)}"
        findings.append(
            Finding("nodes/Gres missing", Verdict.WISH, f"{len(bare)} without cards", "cards", why)
        )
    return findings or [Finding("nodes/Gres", Verdict.OK, has, "cards with their model")]


def _models(ours: _Nodes, _: ClusterFacts, wanted: Wanted) -> list[Finding]:
    if not wanted.card_models:
        return []
    found = {card.model for node in ours for card in node.cards if card.kind}
    unsold = sorted(found - wanted.card_models)
    if not unsold:
        return []
    why = "nobody can use a card without a price"
    remedy = 'slurm.models = "TYPE=MODEL", or `starverse admin price set`'
    needs = f"in the price book: {', '.join(sorted(wanted.card_models))}"
    return [Finding("nodes/model", Verdict.WARN, ", ".join(unsold), needs, why, remedy)]


def _fabrics(ours: _Nodes, _: ClusterFacts, __: Wanted) -> list[Finding]:
    said = Counter(next(iter(sorted(node.features & FABRICS)), "") for node in ours)
    has = ", ".join(f"{count} x {fabric or 'none named'}" for fabric, count in sorted(said.items()))
    several = [node.name for node in ours if len(node.features & FABRICS) > 1]
    if several:
        why = f"a node is in one pool; the first name counts on {name_some(several)}"
        return [Finding("nodes/Feature", Verdict.WARN, has, "one of ib, roce, eth", why)]
    if said[""]:
        why = "a pool's fabric comes from the feature of its nodes; without one it is eth"
        return [
            Finding("nodes/Feature", Verdict.WISH, has, "ib, roce or eth", why, "NodeName=... Feature=ib")
        ]
    return [Finding("nodes/Feature", Verdict.OK, has, "ib, roce or eth")]


def _memory(ours: _Nodes, _: ClusterFacts, __: Wanted) -> list[Finding]:
    small = [node.name for node in ours if node.memory_mib <= 1024]
    if not small:
        return [Finding("nodes/RealMemory", Verdict.OK, "set", "set")]
    why = f"jobs ask for memory, and these have next to none: {name_some(small)}"
    return [
        Finding(
            "nodes/RealMemory",
            Verdict.BLOCKS,
            "not set (1 MiB)",
            "the node's memory in MiB",
            why,
            "NodeName=... RealMemory=512000",
        )
    ]


def _versions(ours: _Nodes, facts: ClusterFacts, _: Wanted) -> list[Finding]:
    controller = facts.settings.get("SLURM_VERSION", "")
    other = Counter(node.version for node in ours if node.version and node.version != controller)
    if not other:
        return [Finding("nodes/Version", Verdict.OK, controller, "that of the controller")]
    has = ", ".join(f"{count} x {version}" for version, count in sorted(other.items()))
    why = "Slurm bears one or two releases apart, for the time of an upgrade"
    return [
        Finding(
            "nodes/Version", Verdict.WISH, f"{has}; controller {controller}", "that of the controller", why
        )
    ]


def clock(seconds: int) -> str:
    """As Slurm writes times: ``1-00:10:00``."""
    days, rest = divmod(seconds, 86_400)
    hours, rest = divmod(rest, 3600)
    text = f"{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"
    return f"{days}-{text}" if days else text
