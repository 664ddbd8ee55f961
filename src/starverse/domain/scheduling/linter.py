"""Checks a decision against its snapshot, by rules that share nothing with how it was made but ``fits()``.

Run on every decision before it is applied, in tests and in the simulator. Each fault reads
``rule: what is wrong``; the rules are the functions named in :data:`RULES`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from starverse.domain.ids import NodeId
from starverse.domain.scheduling.decision import Decision, Placement
from starverse.domain.scheduling.fit import Fit, Free, fits, free_of, share_fits
from starverse.domain.scheduling.snapshot import (
    RECLAIMABLE_CLAIMS,
    Node,
    NodeShare,
    RunningAllocation,
    Snapshot,
    WaitingJob,
)


class _Facts:
    """The snapshot and the decision, indexed once for all rules."""

    def __init__(self, snapshot: Snapshot, decision: Decision) -> None:
        self.snapshot, self.decision = snapshot, decision
        self.nodes: dict[str, Node] = {node.id: node for node in snapshot.nodes}
        self.jobs: dict[str, WaitingJob] = {job.job_id: job for job in snapshot.waiting}
        self.running: dict[str, RunningAllocation] = {a.id: a for a in snapshot.running}
        self.held: dict[str, list[NodeShare]] = {}
        for allocation in snapshot.running:
            for share in allocation.shares:
                self.held.setdefault(share.node_id, []).append(share)
        going = {reclaim.allocation_id for reclaim in decision.reclaims}
        staying = (a for a in snapshot.running if a.notice_deadline is None and a.id not in going)
        self.later: dict[str, list[NodeShare]] = {}
        for shares in [a.shares for a in staying] + [p.shares for p in decision.placements]:
            for share in shares:
                self.later.setdefault(share.node_id, []).append(share)

    def free(self, node_id: NodeId, besides: list[NodeShare]) -> Free:
        """Free on a node beside what runs and these shares."""
        return free_of(self.nodes[node_id], [*self.held.get(node_id, ()), *besides])


def lint(snapshot: Snapshot, decision: Decision) -> list[str]:
    """Every fault found, as ``rule: text``; empty for a sound decision. Linear but for the fits."""
    facts = _Facts(snapshot, decision)
    return [f"{rule}: {text}" for rule, check in RULES.items() for text in check(facts)]


def _answered_once(f: _Facts) -> Iterator[str]:
    d = f.decision
    answered = Counter([x.job_id for answers in (d.placements, d.waits, d.refusals) for x in answers])
    for job_id in f.jobs.keys() - answered.keys():
        yield f"job {f.jobs[job_id].number} got no answer"
    for job_id, times in sorted(answered.items()):
        if job_id not in f.jobs:
            yield f"{job_id} is not waiting"
        elif times > 1:
            yield f"job {f.jobs[job_id].number} got {times} answers"


def _known_nodes(f: _Facts) -> Iterator[str]:
    for placement, share in _shares(f):
        if share.node_id not in f.nodes:
            yield f"job {placement.number}: there is no node {share.node_id}"
        elif share.generation != f.nodes[share.node_id].generation:
            yield f"job {placement.number}: another generation of {share.node_id}"


def _card_once(f: _Facts) -> Iterator[str]:
    taken = Counter(c for shares in f.held.values() for share in shares for c in share.card_ids)
    held = set(taken)
    for placement, share in _shares(f):
        for card_id in share.card_ids:
            taken[card_id] += 1
            if card_id in held:
                yield f"job {placement.number}: card {card_id} is held by an allocation"
            elif taken[card_id] > 1:
                yield f"job {placement.number}: card {card_id} is given twice"


def _shares_fit(f: _Facts) -> Iterator[str]:
    """Node, model, count, CPUs, memory, links, exclusions: one share after the other."""
    placed: dict[str, list[NodeShare]] = {}
    for placement, share in _shares(f):
        job, node = f.jobs.get(placement.job_id), f.nodes.get(share.node_id)
        if job is None or node is None:
            continue
        earlier = placed.setdefault(node.id, [])
        misfit = share_fits(node, job.resources, share, f.free(node.id, earlier))
        if misfit is not None:
            yield f"job {placement.number}: {misfit.reason.value}, {misfit.message}"
        earlier.append(share)


def _gang_whole(f: _Facts) -> Iterator[str]:
    for placement in f.decision.placements:
        job = f.jobs.get(placement.job_id)
        if job is None:
            continue
        on = {share.node_id for share in placement.shares}
        if len(on) != job.resources.nodes or len(placement.shares) != job.resources.nodes:
            yield f"job {placement.number}: {len(on)} nodes of {job.resources.nodes}"
        if not on.issuperset(job.resources.nodelist):
            yield f"job {placement.number}: not on every node of its node list"


def _one_pool(f: _Facts) -> Iterator[str]:
    for placement, share in _shares(f):
        node = f.nodes.get(share.node_id)
        if node is None:
            continue
        models = {card.model for card in node.cards if card.id in share.card_ids}
        pools = {node.pool(model) for model in models} or {node.pool("")}
        if pools != {placement.pool}:
            names = ", ".join(sorted(map(str, pools)))
            yield f"job {placement.number}: {share.node_id} gives cards of {names}, not {placement.pool}"


def _may_start(f: _Facts) -> Iterator[str]:
    for placement in f.decision.placements:
        job = f.jobs.get(placement.job_id)
        if job is None:
            continue
        if job.blocked is not None:
            yield f"job {placement.number} may not start: {job.blocked.message}"
        if placement.tariff is not job.tariff:
            yield f"job {placement.number}: tariff {placement.tariff.value} instead of {job.tariff.value}"
        price = f.snapshot.prices.get((placement.pool, placement.tariff))
        if price is not None and job.bid is not None and price * job.member_factor > job.bid:
            yield f"job {placement.number}: the price is above its limit"


def _array_limit(f: _Facts) -> Iterator[str]:
    active = Counter(a.array_group for a in f.snapshot.running if a.array_group is not None)
    for placement in f.decision.placements:
        job = f.jobs.get(placement.job_id)
        if job is None or job.array_group is None or job.array_running_max is None:
            continue
        active[job.array_group] += 1
        if active[job.array_group] > job.array_running_max:
            yield f"job {placement.number}: more than {job.array_running_max} tasks of its array"


def _reclaims_allowed(f: _Facts) -> Iterator[str]:
    seen: set[str] = set()
    for reclaim in f.decision.reclaims:
        victim = f.running.get(reclaim.allocation_id)
        if victim is None:
            yield f"{reclaim.allocation_id} is not running"
            continue
        if reclaim.allocation_id in seen or victim.notice_deadline is not None:
            yield f"{reclaim.allocation_id} is reclaimed twice"
        seen.add(reclaim.allocation_id)
        if reclaim.for_job_id is None:
            continue
        claimant = f.jobs.get(reclaim.for_job_id)
        if claimant is None or claimant.blocked is not None:
            yield f"{reclaim.allocation_id} is reclaimed for a job that may not start"
        elif victim.claim >= claimant.claim or victim.claim not in RECLAIMABLE_CLAIMS:
            yield f"{reclaim.allocation_id} is reclaimed for a claim that is not greater"


def _claimant_fits(f: _Facts) -> Iterator[str]:
    """Each claimant has a hold, and after the notices every node of it takes its share."""
    claimants = {r.for_job_id for r in f.decision.reclaims if r.for_job_id is not None}
    holds = {hold.job_id: hold for hold in f.decision.holds if not hold.shadow}
    for job_id in sorted(claimants):
        hold, job = holds.get(job_id), f.jobs.get(job_id)
        if hold is None or job is None:
            yield f"cards are reclaimed for {job_id}, and nothing is held for it"
            continue
        if len(set(hold.node_ids)) != job.resources.nodes:
            yield f"cards are reclaimed for job {job.number}, and its gang is not whole"
        for node_id in hold.node_ids:
            free = _after_notices(f, node_id)
            if not isinstance(fits(f.nodes[node_id], job.resources, free, hold.pool.model or None), Fit):
                yield f"cards are reclaimed for job {job.number}, and it does not fit on {node_id}"


def _holds_do_not_overlap(f: _Facts) -> Iterator[str]:
    """All jobs that wait for cards coming free find them, together: counted per node."""
    for node_id in sorted({n for hold in f.decision.holds if not hold.shadow for n in hold.node_ids}):
        free = _after_notices(f, node_id)
        node = f.nodes[node_id]
        counts = Counter(card.model for card in node.cards if card.id in free.card_ids)
        cpus, memory = free.cpus, free.memory_bytes
        for hold in f.decision.holds:
            job = f.jobs.get(hold.job_id)
            if hold.shadow or job is None or node_id not in hold.node_ids:
                continue
            counts[hold.pool.model] -= job.resources.cards_per_node
            cpus, memory = cpus - job.resources.cpus_per_node, memory - job.resources.memory_bytes
        if min(counts.values(), default=0) < 0 or cpus < 0 or memory < 0:
            yield f"more is promised on {node_id} than will be free"


def _nothing_superfluous(f: _Facts) -> Iterator[str]:
    """A reclaim touches a node that is held for its claimant."""
    holds = {hold.job_id: set(hold.node_ids) for hold in f.decision.holds if not hold.shadow}
    for reclaim in f.decision.reclaims:
        victim = f.running.get(reclaim.allocation_id)
        if reclaim.for_job_id is None or victim is None:
            continue
        if not holds.get(reclaim.for_job_id, set()) & {share.node_id for share in victim.shares}:
            yield f"{reclaim.allocation_id} is reclaimed, and its cards are not for its claimant"


def _after_notices(f: _Facts, node_id: NodeId) -> Free:
    """Free on a node once everyone under notice, old or new, is gone and the placements have started."""
    return free_of(f.nodes[node_id], f.later.get(node_id, ()))


def _shares(f: _Facts) -> Iterator[tuple[Placement, NodeShare]]:
    for placement in f.decision.placements:
        for share in placement.shares:
            yield placement, share


RULES: dict[str, Callable[[_Facts], Iterator[str]]] = {
    "answered_once": _answered_once,
    "known_nodes": _known_nodes,
    "card_once": _card_once,
    "shares_fit": _shares_fit,
    "gang_whole": _gang_whole,
    "one_pool": _one_pool,
    "may_start": _may_start,
    "array_limit": _array_limit,
    "reclaims_allowed": _reclaims_allowed,
    "claimant_fits": _claimant_fits,
    "holds_do_not_overlap": _holds_do_not_overlap,
    "nothing_superfluous": _nothing_superfluous,
}
