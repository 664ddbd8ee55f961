"""Cards as an engine bound them, where it picks the indices itself: who gets which card on record.

A placement fixes node, model and count. What was bound is told by each launcher in its own time, so what is
on record may be a permutation of the truth until all have spoken: whoever holds a card that another one
really has gets one that the other gives up. A card that two launchers say they have is the engine's fault.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

Place = tuple[str, int]
"""A node and the index of a card on it."""


@dataclass(frozen=True, slots=True)
class BoundCard:
    """A card where it is."""

    id: str
    node_id: str
    index: int
    model: str

    @property
    def place(self) -> Place:
        return self.node_id, self.index


@dataclass(frozen=True, slots=True)
class Rebinding:
    """The cards that allocations have from now on, by allocation; only those that change."""

    cards: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class BindingFault:
    """What an engine bound cannot be: why, for its operator."""

    why: str


def cards_at(
    reported: Sequence[tuple[str, tuple[int, ...]]], known: Mapping[Place, BoundCard]
) -> tuple[BoundCard, ...] | BindingFault:
    """The cards at the places that a launcher reports."""
    places = [(node, index) for node, indices in reported for index in indices]
    unknown = [f"{index} of {node}" for node, index in places if (node, index) not in known]
    if unknown:
        return BindingFault(f"the engine bound card {', '.join(unknown)}, which no node has")
    if len(set(places)) != len(places):
        return BindingFault("the engine bound one card twice to one allocation")
    return tuple(known[place] for place in places)


def with_silent_nodes(
    bound: Sequence[BoundCard], told: Collection[str], on_record: Sequence[BoundCard]
) -> tuple[BoundCard, ...]:
    """What an allocation has while launchers on some of its nodes have not spoken: there, what is on record.

    ``told`` are the nodes that were reported on.
    """
    return *bound, *(card for card in on_record if card.node_id not in told)


def rebind(
    allocation_id: str,
    bound: Sequence[BoundCard],
    held: Mapping[str, tuple[BoundCard, ...]],
    reported_by: Mapping[Place, str],
) -> Rebinding | BindingFault:
    """What changes on record when ``allocation_id`` has ``bound``.

    ``held``: the cards on record of every open allocation on these nodes, this one included. ``reported_by``:
    which other allocation's launcher says that it has the card at a place.
    """
    mine = held.get(allocation_id, ())
    if _kinds(bound) != _kinds(mine):
        said, asked = _in_words(bound), _in_words(mine)
        return BindingFault(f"the engine bound {said}, placed were {asked}")
    holder = {card.id: other for other, cards in held.items() for card in cards}
    wanted = {card.id for card in bound}
    leaving: dict[tuple[str, str], list[BoundCard]] = defaultdict(list)
    for card in sorted(mine, key=lambda card: card.place):
        if card.id not in wanted:
            leaving[card.node_id, card.model].append(card)
    changed: dict[str, dict[str, str]] = defaultdict(dict)
    for card in bound:
        other = holder.get(card.id)
        if other == allocation_id:
            continue
        rival = reported_by.get(card.place)
        if rival is not None and rival != allocation_id:
            return BindingFault(f"the engine bound card {card.id} to {rival} and to {allocation_id}")
        given = leaving[card.node_id, card.model].pop(0)
        if other is not None:
            changed[other][card.id] = given.id
    new = {allocation_id: tuple(card.id for card in bound)}
    for other, swaps in changed.items():
        new[other] = tuple(swaps.get(card.id, card.id) for card in held[other])
    return Rebinding(new)


def _kinds(cards: Sequence[BoundCard]) -> Counter[tuple[str, str]]:
    return Counter((card.node_id, card.model) for card in cards)


def _in_words(cards: Sequence[BoundCard]) -> str:
    kinds = sorted(_kinds(cards).items())
    return ", ".join(f"{count} x {model} on {node}" for (node, model), count in kinds) or "no card"
