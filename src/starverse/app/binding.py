"""The record of who has which card follows what launchers report, where the engine binds cards itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection

from starverse.app.platform import Platform
from starverse.db import allocations, inventory
from starverse.db.events import Event, record
from starverse.domain.workloads.launch import LauncherState
from starverse.domain.workloads.rebinding import (
    BindingFault,
    BoundCard,
    Place,
    Rebinding,
    cards_at,
    rebind,
    with_silent_nodes,
)
from starverse.domain.workloads.records import Allocation
from starverse.domain.workloads.states import AllocationState
from starverse.engines.base import Observation, Presence

Bound = Sequence[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Bindings:
    """Every card by its place, and which launcher says that it has it; empty where the platform binds."""

    cards: Mapping[Place, BoundCard] = field(default_factory=dict)
    reported_by: Mapping[Place, str] = field(default_factory=dict)


class _NotDone(Exception):
    """Nothing is written: no node has changed."""

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(why)


def read_bindings(
    connection: Connection,
    platform: Platform,
    seen: Mapping[str, Observation],
    open_ones: Sequence[Allocation],
) -> Bindings:
    """What living launchers report now: what a dead one had, its engine may have given to another already.

    Where two report one card, it counts as that of who runs already, or else of the older one.
    """
    if platform.engine.capabilities.binds_cards:
        return Bindings()
    in_order = sorted(open_ones, key=lambda a: a.state is AllocationState.STARTING)
    alive = [
        (a.id, seen[a.id].state) for a in in_order if a.id in seen and seen[a.id].presence is Presence.ALIVE
    ]
    told = [(key, state.bound) for key, state in alive if state is not None and state.bound is not None]
    cards = {card.place: card for card in inventory.cards_by_place(connection)}
    reported_by: dict[Place, str] = {}
    for key, bound in told:
        for node, indices in bound:
            for index in indices:
                reported_by.setdefault((node, index), key)
    return Bindings(cards, reported_by)


def follow_binding(
    platform: Platform, allocation: Allocation, state: LauncherState, bindings: Bindings
) -> str:
    """Record the cards that the engine bound; why that cannot be, in words, or ``""``.

    In one transaction for everybody whose cards change; a repeat changes nothing.
    """
    if state.bound is None or not bindings.cards:
        return ""
    bound = cards_at(state.bound, bindings.cards)
    if isinstance(bound, BindingFault):
        return bound.why
    told = {node for node, _ in state.bound}
    if {card.id for card in bound} == _on_nodes(allocation.cards, told, bindings.cards):
        return ""

    def act(connection: Connection) -> None:
        inventory.count_release(connection, allocation.nodes)  # nobody places there meanwhile
        current = allocations.get(connection, allocation.id)
        if current is None or not current.open:
            raise _NotDone("")
        held = _held_on(connection, current.nodes, bindings.cards)
        whole = with_silent_nodes(bound, told, held.get(current.id, ()))
        found = rebind(current.id, whole, held, bindings.reported_by)
        if isinstance(found, BindingFault):
            raise _NotDone(found.why)
        _write(connection, found, held)

    try:
        platform.database.write_retrying(act)
    except _NotDone as nothing:
        return nothing.why
    return ""


def is_proven(
    platform: Platform,
    allocation: Allocation,
    state: LauncherState,
    bindings: Bindings,
    open_ones: Sequence[Allocation],
) -> bool:
    """Whether a fault of a binding is none of the moment.

    Launchers are looked at one after another: what one had as it was looked at may have come free, and been
    given to the next, before that one was. So whoever else has a card of it is looked at once more, after it;
    where that one is gone, its end is recorded first, and the binding with the next round.
    """
    places = {(node, index) for node, indices in state.bound or () for index in indices}

    def rivals(of: Bindings) -> set[str]:
        return {key for place in places if (key := of.reported_by.get(place, "")) not in ("", allocation.id)}

    suspects = rivals(bindings)
    if not suspects:
        return True
    others = [a for a in open_ones if a.id in suspects]
    seen = platform.engine.observe(sorted(suspects))
    with platform.database.read() as connection:
        return bool(rivals(read_bindings(connection, platform, seen, others)))


def note_fault(platform: Platform, allocation: Allocation, why: str) -> None:
    """Tell operators what their engine did; the event stands in the order of all others."""
    with platform.database.write() as connection:
        now = platform.clock.now()
        record(connection, Event(now, "engine", platform.engine.capabilities.name, "fault", "binding", why))
        record(
            connection,
            Event(now, "job", allocation.job_id, "warning", "binding", why, allocation.team_id),
        )


def _on_nodes(card_ids: Sequence[str], nodes: set[str], cards: Mapping[Place, BoundCard]) -> set[str]:
    wanted = set(card_ids)
    return {card.id for card in cards.values() if card.id in wanted and card.node_id in nodes}


def _held_on(
    connection: Connection, node_ids: Sequence[str], cards: Mapping[Place, BoundCard]
) -> dict[str, tuple[BoundCard, ...]]:
    by_id = {card.id: card for card in cards.values()}
    return {
        a.id: tuple(by_id[card] for card in a.cards if card in by_id)
        for a in allocations.open_on(connection, node_ids)
        if a.cards
    }


def _write(connection: Connection, found: Rebinding, held: Mapping[str, tuple[BoundCard, ...]]) -> None:
    before = {key: tuple(card.id for card in held[key]) for key in found.cards}
    changed = {key: cards for key, cards in found.cards.items() if set(cards) != set(before[key])}
    allocations.set_cards(connection, changed)
