"""Which cards of one node: linked cards first, then the choice that breaks the fewest other links.

Cards are bits of a mask, in the order of their index on the node. A choice of *k* cards is judged by its
weakest link, then by the sum of its links, then by the links it leaves among the cards that stay free
(so that a single card never splits a linked pair while a lone one is free), then by the lowest indices.

Where an idle node could give *k* cards that are all linked to each other, *k* unlinked ones are not
accepted: the job waits and is told so, rather than being placed badly in silence. Nodes that report no
links ask for none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

from starverse.domain.scheduling.snapshot import Card, Node

COMBINATIONS_MAX = 5000
"""Above this many choices (more than 8 of 14 cards) the group is grown greedily instead."""


@dataclass(frozen=True, slots=True)
class CardChoice:
    """Cards as a mask; ``quality_min`` is their weakest link (0 for one card), ``broken`` the sum of the
    links between them and the cards left free."""

    mask: int
    quality_min: int
    quality_sum: int
    broken: int


class LinkGraph:
    """The links of one node layout; remembers each choice, so that equal nodes are thought about once.

    Compared by identity: get it from :func:`link_graph`, which gives equal layouts the same graph.
    """

    __slots__ = ("_choices", "_links", "size")

    def __init__(self, size: int, links: tuple[tuple[int, int, int], ...]) -> None:
        self.size = size
        matrix = [[0] * size for _ in range(size)]
        for a, b, quality in links:
            matrix[a][b] = matrix[b][a] = quality
        self._links = matrix
        self._choices: dict[tuple[int, int], CardChoice | None] = {}

    @property
    def linked(self) -> bool:
        """Whether any link is known at all."""
        return any(map(any, self._links))

    def best(self, free: int, count: int) -> CardChoice | None:
        """The best ``count`` cards of the mask ``free``; ``None`` when there are too few."""
        key = (free, count)
        if key not in self._choices:
            self._choices[key] = self._choose(free, count)
        return self._choices[key]

    def links_needed(self, idle: int, count: int) -> bool:
        """Whether ``count`` of the cards ``idle`` (all usable ones of a model) can be linked throughout."""
        choice = self.best(idle, count) if count > 1 else None
        return choice is not None and choice.quality_min > 0

    def _choose(self, free: int, count: int) -> CardChoice | None:
        cards = positions(free)
        if len(cards) < count:
            return None
        if not self.linked or count == 0 or count == len(cards):
            return self._judged(cards[:count], cards)
        if math.comb(len(cards), count) <= COMBINATIONS_MAX:
            groups = list(combinations(cards, count))
        else:
            groups = [self._grown(first, cards, count) for first in cards]
        return max((self._judged(group, cards) for group in groups), key=_merit)

    def _judged(self, group: tuple[int, ...], free: tuple[int, ...]) -> CardChoice:
        links = self._links
        inside = [links[a][b] for a, b in combinations(group, 2)]
        chosen = set(group)
        broken = sum(links[a][b] for a in group for b in free if b not in chosen)
        return CardChoice(
            mask=sum(1 << card for card in group),
            quality_min=min(inside, default=0),
            quality_sum=sum(inside),
            broken=broken,
        )

    def _grown(self, first: int, cards: tuple[int, ...], count: int) -> tuple[int, ...]:
        links, group = self._links, [first]
        while len(group) < count:
            rest = (card for card in cards if card not in group)
            group.append(max(rest, key=lambda c: (min(links[c][g] for g in group), -c)))
        return tuple(sorted(group))


def _merit(choice: CardChoice) -> tuple[int, int, int, int]:
    # All links of the free cards = own ones + broken ones + those left whole, so the fewest broken leave
    # the most. Mirrored bits make lower positions weigh more.
    lowest_first = sum(1 << (64 - position) for position in positions(choice.mask))
    return (choice.quality_min, choice.quality_sum, -choice.broken, lowest_first)


def positions(mask: int) -> tuple[int, ...]:
    """The positions of the bits of ``mask``, ascending."""
    return tuple(position for position in range(mask.bit_length()) if mask >> position & 1)


def ordered_cards(node: Node) -> tuple[Card, ...]:
    """The cards of a node in the order that masks use."""
    return tuple(sorted(node.cards, key=lambda card: (card.index, card.id)))


def link_graph(node: Node) -> LinkGraph:
    """The graph of a node's links; links that name an unknown index are passed over."""
    place = {card.index: position for position, card in enumerate(ordered_cards(node))}
    links = tuple(
        sorted(
            (place[link.a], place[link.b], link.quality)
            for link in node.links
            if link.a in place and link.b in place and link.a != link.b
        )
    )
    return _interned(len(node.cards), links)


@lru_cache(maxsize=4096)
def _interned(size: int, links: tuple[tuple[int, int, int], ...]) -> LinkGraph:
    return LinkGraph(size, links)
