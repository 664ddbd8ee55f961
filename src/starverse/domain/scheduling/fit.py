"""Does it fit: the one rule for deciding and for the applier's re-check.

A misfit is *permanent* when waiting cannot help (nine cards on an eight-card node) and *for now* when it
can (cards in use, a drained node). All figures are per node; a gang needs ``resources.nodes`` nodes of
one pool.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum

from starverse.domain.cluster import is_older_driver
from starverse.domain.ids import CardId
from starverse.domain.scheduling.snapshot import NO_MODEL, Node, NodeShare, NodeState, Pool
from starverse.domain.scheduling.topology import link_graph, ordered_cards, positions
from starverse.domain.workloads.specs import MEMORY_BYTES_PER_CPU_DEFAULT, Resources

GIB = 1024**3


class MisfitReason(StrEnum):
    """Why a node cannot take a share, in the order of the checks: the later, the closer it was."""

    NODES_TOO_FEW = "nodes_too_few"
    ZONE = "zone"
    FABRIC = "fabric"
    NO_SUCH_MODEL = "no_such_model"
    EXCLUDED = "excluded"
    NOT_LISTED = "not_listed"
    CARDS_TOO_MANY = "cards_too_many"
    CPUS_TOO_MANY = "cpus_too_many"
    MEMORY_TOO_MUCH = "memory_too_much"
    DRIVER_TOO_OLD = "driver_too_old"
    NODE_DOWN = "node_down"
    NODE_DRAINED = "node_drained"
    CARDS_IN_USE = "cards_in_use"
    CPUS_IN_USE = "cpus_in_use"
    MEMORY_IN_USE = "memory_in_use"
    NOT_LINKED = "not_linked"
    WRONG_SHARE = "wrong_share"


_ORDER = {reason: place for place, reason in enumerate(MisfitReason)}


@dataclass(frozen=True, slots=True)
class Misfit:
    """An expected outcome, not an error. ``permanent``: waiting cannot help."""

    reason: MisfitReason
    message: str
    permanent: bool = False


@dataclass(frozen=True, slots=True)
class Fit:
    """The cards to take on this node, the best by topology; ``link_quality_min`` 0: not linked."""

    card_ids: tuple[CardId, ...]
    link_quality_min: int = 0


@dataclass(frozen=True, slots=True)
class Free:
    """What nobody holds on a node."""

    card_ids: frozenset[CardId]
    cpus: int
    memory_bytes: int


def free_of(node: Node, shares: Iterable[NodeShare]) -> Free:
    """What is left of a node beside the shares that are held on it; faulty cards are not free."""
    held = [share for share in shares if share.node_id == node.id]
    taken = {card_id for share in held for card_id in share.card_ids}
    return Free(
        card_ids=frozenset(card.id for card in node.cards if card.usable and card.id not in taken),
        cpus=node.cpus - sum(share.cpus for share in held),
        memory_bytes=node.memory_bytes - sum(share.memory_bytes for share in held),
    )


def fits(node: Node, resources: Resources, free: Free, model: str | None = None) -> Fit | Misfit:
    """Whether one node's part of ``resources`` fits into ``free``, and on which cards.

    ``model`` narrows a request that leaves the model open (all nodes of a gang have the same one).
    """
    if resources.cards_per_node and resources.card_model is None and model is None:
        models = sorted({card.model for card in node.cards}) or [NO_MODEL]
        answers = [fits(node, resources, free, each) for each in models]
        return next((a for a in answers if isinstance(a, Fit)), answers[0])
    model = model or resources.card_model or NO_MODEL
    never = permanent_misfit(node, resources, model)
    if never is not None:
        return never
    if node.state is not NodeState.USABLE:
        down = node.state is NodeState.DOWN
        reason = MisfitReason.NODE_DOWN if down else MisfitReason.NODE_DRAINED
        return Misfit(reason, f"{node.id} is {node.state.value}")
    busy = _in_use(node, resources, free, model)
    return busy or _choose(node, resources, free.card_ids, model)


def share_fits(node: Node, resources: Resources, share: NodeShare, free: Free) -> Misfit | None:
    """Re-check a decided share on current rows: the same rule as :func:`fits`, for the cards it names."""
    by_id = {card.id: card for card in node.cards}
    models = {by_id[card_id].model for card_id in share.card_ids if card_id in by_id}
    if (
        share.node_id != node.id
        or len(set(share.card_ids)) != resources.cards_per_node
        or not all(card_id in by_id for card_id in share.card_ids)
        or len(models) > 1
        or share.cpus != resources.cpus_per_node
        or share.memory_bytes != resources.memory_bytes
    ):
        return Misfit(MisfitReason.WRONG_SHARE, f"the share on {node.id} is not what the job asks for")
    taken = sorted(by_id[c].index for c in share.card_ids if c not in free.card_ids)
    if taken and node.state is NodeState.USABLE:
        return Misfit(MisfitReason.CARDS_IN_USE, f"card {taken[0]} of {node.id} is not free any more")
    only = Free(frozenset(share.card_ids) & free.card_ids, free.cpus, free.memory_bytes)
    answer = fits(node, resources, only, next(iter(models), None))
    return answer if isinstance(answer, Misfit) else None


def permanent_reason(node: Node, resources: Resources, model: str) -> MisfitReason | None:
    """Why this node could not take the share even if it were idle and healthy; ``None``: it could."""
    r = resources
    having = sum(card.model == model for card in node.cards) if r.cards_per_node else 0
    if r.zone is not None and node.zone != r.zone:
        return MisfitReason.ZONE
    if r.fabric is not None and node.fabric != r.fabric:
        return MisfitReason.FABRIC
    if r.cards_per_node and not having:
        return MisfitReason.NO_SUCH_MODEL
    if node.id in r.exclude:
        return MisfitReason.EXCLUDED
    if r.nodelist and len(r.nodelist) >= r.nodes and node.id not in r.nodelist:
        return MisfitReason.NOT_LISTED
    if r.cards_per_node > having:
        return MisfitReason.CARDS_TOO_MANY
    if r.cpus_per_node > node.cpus:
        return MisfitReason.CPUS_TOO_MANY
    if r.memory_bytes > node.memory_bytes:
        return MisfitReason.MEMORY_TOO_MUCH
    return MisfitReason.DRIVER_TOO_OLD if is_older_driver(node.driver, r.driver_min) else None


def permanent_misfit(node: Node, resources: Resources, model: str) -> Misfit | None:
    """:func:`permanent_reason` in words."""
    r, reason = resources, permanent_reason(node, resources, model)
    if reason is None:
        return None
    having = sum(card.model == model for card in node.cards)
    has_gib = _gib(node.memory_bytes)
    texts = {
        MisfitReason.ZONE: f"{node.id} is in zone {node.zone}, not {r.zone}",
        MisfitReason.FABRIC: f"{node.id} has fabric {node.fabric}, not {r.fabric}",
        MisfitReason.NO_SUCH_MODEL: f"{node.id} has no {model or 'card'}",
        MisfitReason.EXCLUDED: f"{node.id} is excluded by the job",
        MisfitReason.NOT_LISTED: f"{node.id} is not in the job's node list",
        MisfitReason.CARDS_TOO_MANY: f"{r.cards_per_node} {model} on one node; {node.id} has {having}",
        MisfitReason.CPUS_TOO_MANY: f"{r.cpus_per_node} CPUs on one node; {node.id} has {node.cpus}",
        MisfitReason.MEMORY_TOO_MUCH: f"{memory_wanted(r)} on one node; {node.id} has {has_gib}",
        MisfitReason.DRIVER_TOO_OLD: f"its image needs NVIDIA driver {r.driver_min} or newer; "
        f"{node.id} has {node.driver}",
    }
    return Misfit(reason, texts[reason], permanent=True)


def memory_wanted(resources: Resources) -> str:
    """``64 GiB of memory``, and where it comes from when nobody named it."""
    text = f"{_gib(resources.memory_bytes)} of memory"
    if resources.memory_bytes_per_node is not None:
        return text
    each, cpus = _gib(MEMORY_BYTES_PER_CPU_DEFAULT), resources.cpus_per_node
    return f"{text} ({each} for each of {cpus} CPUs; --mem asks for less)"


def impossible(nodes: Collection[Node], resources: Resources) -> Misfit | None:
    """Why the request could never run on these nodes, idle and healthy; ``None``: it could.

    With no nodes at all nothing is known yet, and nothing is called impossible.
    """
    if not nodes:
        return None
    r = resources
    if len(r.nodelist) > r.nodes:
        text = f"the node list names {len(r.nodelist)} nodes, the job asks for {r.nodes}"
        return Misfit(MisfitReason.NODES_TOO_FEW, text, permanent=True)
    unknown = sorted(set(r.nodelist) - {node.id for node in nodes})
    if unknown:
        return Misfit(MisfitReason.NOT_LISTED, f"there is no node {', '.join(unknown)}", permanent=True)
    able: dict[Pool, set[str]] = {}
    nearest: tuple[tuple[int, int], Node, str] | None = None
    for node in nodes:
        for model in models_asked(node, r):
            reason = permanent_reason(node, r, model)
            if reason is None:
                able.setdefault(node.pool(model), set()).add(node.id)
                continue
            near = (_ORDER[reason], _how_much(node, reason, model))
            if nearest is None or near > nearest[0]:
                nearest = (near, node, model)
    whole = [ids for ids in able.values() if len(ids) >= r.nodes and ids.issuperset(r.nodelist)]
    if whole:
        return None
    if able:
        most = max(map(len, able.values()))
        if r.nodelist and set().union(*able.values()).issuperset(r.nodelist):
            text = f"the nodes {', '.join(sorted(r.nodelist))} are not all of one pool that fits the job"
        else:
            text = f"{r.nodes} nodes of one pool (zone, model, fabric); at most {most} could take a part"
        return Misfit(MisfitReason.NODES_TOO_FEW, text, permanent=True)
    assert nearest is not None, "every node either fits or misfits"
    misfit = permanent_misfit(nearest[1], r, nearest[2])
    assert misfit is not None, "the nearest of the misfits"
    return _for_cluster(nodes, r, misfit)


def models_asked(node: Node, resources: Resources) -> tuple[str, ...]:
    """The models of a node that the request may use (:data:`NO_MODEL` for a request without cards)."""
    if not resources.cards_per_node:
        return (NO_MODEL,)
    if resources.card_model is not None:
        return (resources.card_model,)
    return tuple(sorted({card.model for card in node.cards})) or (NO_MODEL,)


def kinds_of(nodes: Iterable[Node]) -> tuple[Node, ...]:
    """The first node of each kind: zone, network, size, driver and cards. What asks only for pools or for
    what one node has is answered by these as by all of them, at a cost that the cluster does not raise."""
    found: dict[tuple[object, ...], Node] = {}
    for node in nodes:
        models = tuple(sorted([card.model for card in node.cards]))
        kind = (node.zone, node.fabric, node.cpus, node.memory_bytes, node.driver, models)
        found.setdefault(kind, node)
    return tuple(found.values())


def pools_asked(nodes: Collection[Node], resources: Resources) -> frozenset[tuple[str, str]]:
    """(model, fabric) of the cards that the request may use, to price it by; none without cards."""
    return frozenset(
        (card.model, node.fabric)
        for node in nodes
        if resources.cards_per_node
        and resources.fabric in (None, node.fabric)
        and resources.zone in (None, node.zone)
        for card in node.cards
        if resources.card_model in (None, card.model)
    )


def _in_use(node: Node, resources: Resources, free: Free, model: str) -> Misfit | None:
    cards = sum(card.id in free.card_ids and card.model == model for card in node.cards)
    if cards < resources.cards_per_node:
        text = f"{resources.cards_per_node} {model} needed, {cards} free on {node.id}"
        return Misfit(MisfitReason.CARDS_IN_USE, text)
    if free.cpus < resources.cpus_per_node:
        text = f"{resources.cpus_per_node} CPUs needed, {max(0, free.cpus)} free on {node.id}"
        return Misfit(MisfitReason.CPUS_IN_USE, text)
    if free.memory_bytes < resources.memory_bytes:
        text = f"{memory_wanted(resources)} needed, {_gib(free.memory_bytes)} free on {node.id}"
        return Misfit(MisfitReason.MEMORY_IN_USE, text)
    return None


def _choose(node: Node, resources: Resources, free: frozenset[CardId], model: str) -> Fit | Misfit:
    cards = ordered_cards(node)
    of_model = [(1 << place, card) for place, card in enumerate(cards) if card.model == model]
    graph, count = link_graph(node), resources.cards_per_node
    choice = graph.best(sum(bit for bit, card in of_model if card.id in free), count)
    assert choice is not None, "the count was checked before"
    idle = sum(bit for bit, card in of_model if card.usable)
    if choice.quality_min == 0 and graph.links_needed(idle, count):
        text = f"{count} {model} are free on {node.id} but not linked to each other"
        return Misfit(MisfitReason.NOT_LINKED, text)
    return Fit(tuple(cards[place].id for place in positions(choice.mask)), choice.quality_min)


def _for_cluster(nodes: Collection[Node], resources: Resources, nearest: Misfit) -> Misfit:
    """The nearest misfit of a single node, told for the whole cluster."""
    r, text = resources, nearest.message
    if nearest.reason is MisfitReason.NO_SUCH_MODEL or (
        nearest.reason in (MisfitReason.ZONE, MisfitReason.FABRIC)
        and r.card_model is not None
        and not any(card.model == r.card_model for node in nodes for card in node.cards)
    ):
        models = sorted({card.model for node in nodes for card in node.cards})
        text = f"there is no {r.card_model or 'card'} here; there are {', '.join(models) or 'no cards'}"
        return Misfit(MisfitReason.NO_SUCH_MODEL, text, permanent=True)
    if nearest.reason is MisfitReason.ZONE:
        text = f"there is no zone {r.zone}; there are {', '.join(sorted({n.zone for n in nodes}))}"
    elif nearest.reason is MisfitReason.FABRIC:
        text = f"no node has fabric {r.fabric}; there are {', '.join(sorted({n.fabric for n in nodes}))}"
    elif nearest.reason is MisfitReason.EXCLUDED:
        text = "every node that could take the job is excluded by it"
    return Misfit(nearest.reason, text, permanent=True)


def _how_much(node: Node, reason: MisfitReason, model: str) -> int:
    if reason is MisfitReason.CARDS_TOO_MANY:
        return sum(card.model == model for card in node.cards)
    if reason is MisfitReason.CPUS_TOO_MANY:
        return node.cpus
    return node.memory_bytes if reason is MisfitReason.MEMORY_TOO_MUCH else 0


def _gib(size: int) -> str:
    return f"{size / GIB:.1f} GiB".replace(".0 GiB", " GiB")
