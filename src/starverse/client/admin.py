"""What operators do."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any, cast
from urllib.parse import quote

from starverse.client.shapes import Node
from starverse.client.transport import Call, Transport, new_key


class Admin:
    """Every method needs an operator's token."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def price_books(self) -> list[dict[str, Any]]:
        return list(self._transport.pages(Call("GET", "/admin/price-books")))

    def price_book(self, book_id: str) -> dict[str, Any]:
        return self._transport.send(Call("GET", f"/admin/price-books/{quote(book_id, safe='')}"))

    def set_price_book(self, yaml: str) -> dict[str, Any]:
        """Publish a new version; ``yaml`` is the whole book with its ``effective_from``."""
        headers = {"Content-Type": "text/yaml; charset=utf-8"}
        file = BytesIO(yaml.encode("utf-8"))
        return self._transport.send(
            Call("POST", "/admin/price-books", file=file, headers=headers, key=new_key())
        )

    def accounts(self) -> Iterator[dict[str, Any]]:
        return self._transport.pages(Call("GET", "/admin/accounts"))

    def set_account(self, email: str, changes: dict[str, Any]) -> dict[str, Any]:
        """``changes``: any of ``member``, ``disabled``, ``operator``, ``password``."""
        return self._transport.send(Call("PATCH", f"/admin/accounts/{quote(email, safe='')}", body=changes))

    def teams(self) -> Iterator[dict[str, Any]]:
        return self._transport.pages(Call("GET", "/admin/teams"))

    def grant(self, team: str, grant: dict[str, Any]) -> dict[str, Any]:
        """``grant``: ``{kind: credit|coupon, amount, expires_at?, reason}``."""
        path = f"/admin/teams/{quote(team, safe='')}/grants"
        return self._transport.send(Call("POST", path, body=grant, key=new_key()))

    def ledger_check(self) -> dict[str, Any]:
        return self._transport.send(Call("GET", "/admin/ledger/check", timeout_seconds=600.0))

    def ledger_accounts(self) -> Iterator[dict[str, Any]]:
        return self._transport.pages(Call("GET", "/admin/ledger/accounts"))

    def status(self) -> dict[str, Any]:
        return self._transport.send(Call("GET", "/admin/status"))

    def nodes(self) -> list[Node]:
        return [cast(Node, item) for item in self._transport.pages(Call("GET", "/admin/nodes"))]

    def node(self, node: str) -> Node:
        return cast(Node, self._transport.send(Call("GET", f"/admin/nodes/{quote(node, safe='')}")))

    def drain_node(self, node: str, *, drained: bool) -> dict[str, Any]:
        path = f"/admin/nodes/{quote(node, safe='')}"
        return self._transport.send(Call("PATCH", path, body={"drained": drained}))

    def quarantine_card(self, card: str, *, quarantined: bool) -> dict[str, Any]:
        path = f"/admin/cards/{quote(card, safe='')}"
        return self._transport.send(Call("PATCH", path, body={"quarantined": quarantined}))

    def stuck_attachments(self) -> list[dict[str, Any]]:
        """Disks that are stuck somewhere, the oldest first."""
        return list(self._transport.pages(Call("GET", "/admin/attachments")))

    def clear_attachment(self, attachment: str) -> None:
        """A stuck attachment is over: somebody looked that nothing has the disk."""
        path = f"/admin/attachments/{quote(attachment, safe='')}:clear"
        self._transport.send(Call("POST", path))

    def fabric(self) -> list[dict[str, Any]]:
        """Every pool with what was measured between its nodes."""
        return list(self._transport.pages(Call("GET", "/admin/fabric")))

    def ask_fabric_check(self, pool: str | None, pairs: int, *, lint: bool = False) -> dict[str, Any]:
        """Measure pairs of nodes; with ``lint`` only say which, and at what price."""
        body = {"pool": pool, "pairs": pairs, "lint": lint}
        return self._transport.send(Call("POST", "/admin/fabric/checks", body=body, key=new_key()))

    def fabric_check(self, check_id: str) -> dict[str, Any]:
        """How the pairs of a request fare."""
        return self._transport.send(Call("GET", f"/admin/fabric/checks/{quote(check_id, safe='')}"))

    def events(self) -> Iterator[dict[str, Any]]:
        return self._transport.pages(Call("GET", "/admin/events"))
