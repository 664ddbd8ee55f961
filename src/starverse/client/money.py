"""Wallet, top-ups, refunds, bills and the explanation of a charge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast
from urllib.parse import quote

from starverse.client.shapes import Bill, Wallet
from starverse.client.transport import Call, Transport, new_key


class Money:
    """A team's money. Amounts are decimal strings of yuan, such as ``"50.00"``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def wallet(self) -> Wallet:
        return cast(Wallet, self._transport.send(Call("GET", "/wallet")))

    def transfers(self) -> Iterator[dict[str, Any]]:
        return self._transport.pages(Call("GET", "/wallet/transfers"))

    def set_auto_top_up(self, *, below: str, amount: str) -> dict[str, Any]:
        body = {"below": below, "amount": amount}
        return self._transport.send(Call("PUT", "/wallet/auto-topup", body=body))

    def auto_top_up(self) -> dict[str, Any]:
        return self._transport.send(Call("GET", "/wallet/auto-topup"))

    def stop_auto_top_up(self) -> None:
        self._transport.send(Call("DELETE", "/wallet/auto-topup"))

    def top_up(self, amount: str, *, provider: str = "mock", key: str | None = None) -> dict[str, Any]:
        body = {"amount": amount, "provider": provider}
        return self._transport.send(Call("POST", "/topups", body=body, key=key or new_key()))

    def refund(self, top_up: str, *, amount: str | None = None, key: str | None = None) -> dict[str, Any]:
        """Pay back to the source; ``amount`` ``None``: all that is left of the top-up."""
        body = {} if amount is None else {"amount": amount}
        path = f"/topups/{quote(top_up, safe='')}/refunds"
        return self._transport.send(Call("POST", path, body=body, key=key or new_key()))

    def bill(self, *, job: str | None = None, month: str | None = None, label: str | None = None) -> Bill:
        query = {"job": job, "month": month, "label": label}
        return cast(Bill, self._transport.send(Call("GET", "/bill", query)))

    def explain(self, charge: str) -> dict[str, Any]:
        return self._transport.send(Call("GET", f"/charges/{quote(charge, safe='')}"))
