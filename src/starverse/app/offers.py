"""What pools sell now, what a request would cost, and the nodes as a team may see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction

from starverse.app.fabric import shown_by_pool
from starverse.app.funding import sources_of
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.db import ledger, nodes
from starverse.db.metering import load_books, member_changes
from starverse.db.nodes import NodeUse
from starverse.domain.errors import Invalid
from starverse.domain.fabric.summary import ShownFigure
from starverse.domain.money import decimal_string
from starverse.domain.pricing.price_book import METERED, PriceBooks, StoragePrices
from starverse.domain.pricing.quote import Quote, QuoteRequest, quote
from starverse.domain.pricing.rating import MemberChange, Terms, rate_at
from starverse.domain.pricing.windows import window_edges
from starverse.domain.tariff import Tariff
from starverse.domain.timespan import Timespan
from starverse.domain.workloads.shares import rate_of_workload


@dataclass(frozen=True, slots=True)
class PriceLine:
    """The rate of one card on a tariff now; ``rate`` is in yuan per card-hour."""

    tariff: Tariff
    rate_micro_per_card_hour: str
    rate: str


@dataclass(frozen=True, slots=True)
class CardShare:
    """Bytes a second on a node's disk and network that come with one card of it: more cards bring as many
    times that. ``None``: as much as there is."""

    disk_bytes_per_second: int | None = None
    network_bytes_per_second: int | None = None


@dataclass(frozen=True, slots=True)
class OfferView:
    """What a pool sells now. ``largest_node_free`` is how many cards one node can give at once;
    ``declared``: some of its cards are not really there. ``fabric_measured`` is empty where nobody measured
    its network, ``prices`` where the book has none. ``card_share`` is the least of its nodes'."""

    pool: str
    zone: str
    card: str
    fabric: str
    cards_total: int
    cards_free: int
    largest_node_free: int
    declared: bool
    fabric_measured: tuple[ShownFigure, ...]
    prices: tuple[PriceLine, ...]
    next_price_change_at: datetime | None
    card_share: CardShare


@dataclass(frozen=True, slots=True)
class OfferFilter:
    """``cards``: only pools with so many free cards; ``None``: not restricted by this."""

    card: str | None = None
    cards: int | None = None
    fabric: str | None = None
    zone: str | None = None


@dataclass(frozen=True, slots=True)
class CardOfNode:
    """``state`` is free, busy, quarantined or unhealthy; ``job`` is named to its own team only."""

    id: str
    index: int
    model: str
    state: str
    declared: bool
    memory_bytes: int
    message: str
    job: str | None


@dataclass(frozen=True, slots=True)
class NodeView:
    """``state`` is up, drained (by the engine) or down; ``drained``: an operator's wish."""

    id: str
    zone: str
    fabric: str
    state: str
    drained: bool
    message: str
    cpus: int
    memory_bytes: int
    cards: tuple[CardOfNode, ...]
    card_share: CardShare


def list_offers(platform: Platform, identity: Identity, wanted: OfferFilter) -> tuple[OfferView, ...]:
    """The pools that fit, by name, at the caller's own prices (an education membership counts)."""
    with platform.database.read() as connection:
        books = load_books(connection).books
        members = member_changes(connection, identity.account_id)
        found = nodes.all_nodes(connection)
        now = platform.clock.now()
        pools: dict[tuple[str, str, str], list[NodeUse]] = defaultdict(list)
        for node in found:
            for model in sorted({card.model for card in node.cards}):
                pools[(node.zone, model, node.fabric)].append(node)
        names = {"/".join(key): frozenset(node.id for node in pool) for key, pool in pools.items()}
        measured = shown_by_pool(connection, names)
    offers = [
        replace(
            _offer(key, pool, books, members, now),
            fabric_measured=measured["/".join(key)],
            card_share=card_share(platform, pool),
        )
        for key, pool in sorted(pools.items())
    ]
    return tuple(
        offer
        for offer in offers
        if wanted.card in (None, offer.card)
        and wanted.fabric in (None, offer.fabric)
        and wanted.zone in (None, offer.zone)
        and (wanted.cards is None or offer.cards_free >= wanted.cards)
    )


def _offer(
    key: tuple[str, str, str],
    pool: Iterable[NodeUse],
    books: PriceBooks,
    members: tuple[MemberChange, ...],
    now: datetime,
) -> OfferView:
    zone, model, fabric = key
    cards = {node.id: [card for card in node.cards if card.model == model] for node in pool}
    free = {
        node.id: sum(card.state == "free" for card in cards[node.id]) if node.takes_work else 0
        for node in pool
    }
    return OfferView(
        pool=f"{zone}/{model}/{fabric}",
        zone=zone,
        card=model,
        fabric=fabric,
        cards_total=sum(len(own) for own in cards.values()),
        cards_free=sum(free.values()),
        largest_node_free=max(free.values(), default=0),
        declared=any(card.declared for own in cards.values() for card in own),
        fabric_measured=(),
        prices=_prices(model, fabric, books, members, now),
        next_price_change_at=next_price_change(books, now),
        card_share=CardShare(),
    )


def card_share(platform: Platform, pool: Iterable[NodeUse]) -> CardShare:
    """What a workload with one card has of a node's disk and network, wherever in the pool it starts."""
    settings = platform.settings
    places = [(1, len(node.cards)) for node in pool]
    return CardShare(
        rate_of_workload(settings.disk_bytes_per_second, settings.disk_node_bytes_per_second, places),
        rate_of_workload(settings.network_bytes_per_second, settings.network_node_bytes_per_second, places),
    )


def _prices(
    model: str, fabric: str, books: PriceBooks, members: tuple[MemberChange, ...], now: datetime
) -> tuple[PriceLine, ...]:
    lines = []
    for tariff in METERED:
        try:
            rate, _ = rate_at(Terms(tariff, model, fabric, members=members), now, books)
        except Invalid:
            continue  # the book does not price this model, or has no such tariff
        lines.append(_line(tariff, rate))
    return tuple(lines)


def _line(tariff: Tariff, rate: Fraction) -> PriceLine:
    yuan = decimal_string(rate / 1_000_000, places=24)
    whole, _, places = yuan.partition(".")
    return PriceLine(tariff, decimal_string(rate, places=24), f"{whole}.{places.ljust(2, '0')}")


def next_price_change(books: PriceBooks, now: datetime) -> datetime | None:
    """The next edge of a window, or the next price-book version; ``None``: no change is known."""
    horizon = now + timedelta(days=2)
    span = Timespan(now, horizon)
    book = books.at(now)
    edges = list(books.edges(now, now + timedelta(days=3660)))
    used = {window.name: window for tariff in book.metered for window in book.windows_of(tariff)}
    for window in used.values():
        edges += window_edges(window, span, book.timezone)
    return min(edges, default=None)


def disk_prices(platform: Platform) -> StoragePrices:
    """What a GiB of a disk costs for a month now, and how many of a team's cost nothing."""
    with platform.database.read() as connection:
        return load_books(connection).books.at(platform.clock.now()).storage


def make_quote(platform: Platform, identity: Identity, request: QuoteRequest) -> Quote:
    """A priced request, paid as the team's wallet would pay it; the caller's membership counts."""
    with platform.database.read() as connection:
        books = load_books(connection).books
        now = platform.clock.now()
        members = member_changes(connection, identity.account_id)
        sources = sources_of(ledger.team_wallet(connection, identity.team_id))
    if request.member is None and members and members[-1].member in books.at(now).members:
        request = replace(request, member=members[-1].member)
    return quote(request, books, replace(sources, cash=None))


def list_nodes(platform: Platform, identity: Identity) -> tuple[NodeView, ...]:
    """Every node with its cards; who uses a card is shown to the card's own team and to the operator."""
    with platform.database.read() as connection:
        found = nodes.all_nodes(connection)
    return tuple(node_view(platform, node, identity) for node in found)


def node_view(platform: Platform, node: NodeUse, identity: Identity) -> NodeView:
    """One node as the caller may see it."""
    return NodeView(
        id=node.id,
        zone=node.zone,
        fabric=node.fabric,
        state=node.state,
        drained=node.drained,
        message=node.message,
        cpus=node.cpus,
        memory_bytes=node.memory_bytes,
        cards=tuple(
            CardOfNode(
                id=card.id,
                index=card.index,
                model=card.model,
                state=card.state,
                declared=card.declared,
                memory_bytes=card.memory_bytes,
                message=card.message,
                job=card.job_number if identity.operator or card.team_id == identity.team_id else None,
            )
            for card in node.cards
        ),
        card_share=card_share(platform, (node,)),
    )
