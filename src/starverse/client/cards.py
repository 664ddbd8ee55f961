"""Offers, quotes and nodes: what there is and what it costs."""

from __future__ import annotations

from typing import Any, cast

from starverse.client.shapes import Node, Offer
from starverse.client.transport import Call, Transport


class Cards:
    """What the pools have."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def offers(
        self,
        *,
        card: str | None = None,
        cards: int | None = None,
        fabric: str | None = None,
        zone: str | None = None,
    ) -> list[Offer]:
        query = {"card": card, "cards": cards, "fabric": fabric, "zone": zone}
        return [cast(Offer, item) for item in self._transport.pages(Call("GET", "/offers", query))]

    def heat_maps(
        self, *, cards: int, hours: int, card: str | None = None, fabric: str | None = None
    ) -> list[dict[str, Any]]:
        """When ``cards`` will be free together for a job of ``hours``: an entry for each pool that fits."""
        query = {"card": card, "cards": cards, "hours": hours, "fabric": fabric}
        return list(self._transport.pages(Call("GET", "/heatmap", query)))

    def quote(self, request: dict[str, Any]) -> dict[str, Any]:
        """A quote with this team's wallet; ``request`` as in the API's ``POST /quotes``."""
        return self._transport.send(Call("POST", "/quotes", body=request))

    def nodes(self) -> list[Node]:
        return [cast(Node, item) for item in self._transport.pages(Call("GET", "/nodes"))]
