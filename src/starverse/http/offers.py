"""What there is and what it costs: offers, quotes, nodes."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from starverse.app import offers
from starverse.app.offers import OfferFilter
from starverse.app.views import Page
from starverse.http.routing import make_router
from starverse.http.schemas_shelf import DiskPricesOut, NodeOut, OfferOut, QuoteIn, QuoteOut
from starverse.http.security import AnyCaller, PlatformDep
from starverse.http.shapes import Items, items_of

router = make_router("offers")


@router.get("/offers")
def list_offers(
    platform: PlatformDep,
    identity: AnyCaller,
    card: Annotated[str | None, Query(max_length=100)] = None,
    cards: Annotated[int | None, Query(ge=0, le=1_000_000, description="At least so many free")] = None,
    fabric: Annotated[str | None, Query(max_length=20)] = None,
    zone: Annotated[str | None, Query(max_length=100)] = None,
) -> Items[OfferOut]:
    """Free cards and the price now per tariff, and when the price changes next."""
    wanted = OfferFilter(card, cards, fabric, zone)
    return items_of(OfferOut, Page(offers.list_offers(platform, identity, wanted)))


@router.get("/disk-prices")
def show_disk_prices(platform: PlatformDep, _: AnyCaller) -> DiskPricesOut:
    """What a GiB of a disk costs for a calendar month now, and how many GiB of a team are free."""
    return DiskPricesOut.of(offers.disk_prices(platform))


@router.post("/quotes")
def make_quote(body: QuoteIn, platform: PlatformDep, identity: AnyCaller) -> QuoteOut:
    """A price, segment by segment; nothing is booked."""
    return QuoteOut.model_validate(offers.make_quote(platform, identity, body.request()).to_json())


@router.get("/nodes")
def list_nodes(platform: PlatformDep, identity: AnyCaller) -> Items[NodeOut]:
    """Every node with its cards; who uses a card is shown to its own team only."""
    return items_of(NodeOut, Page(offers.list_nodes(platform, identity)))
