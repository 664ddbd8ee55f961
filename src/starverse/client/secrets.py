"""A team's secrets: written, listed by name, removed; never read back."""

from __future__ import annotations

from typing import cast
from urllib.parse import quote

from starverse.client.shapes import Secret
from starverse.client.transport import Call, Transport


class Secrets:
    """Values that workloads find as files."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> list[Secret]:
        """Names and times alone."""
        return [cast(Secret, item) for item in self._transport.pages(Call("GET", "/secrets"))]

    def set(self, name: str, value: str) -> Secret:
        return cast(Secret, self._transport.send(Call("PUT", _secret(name), body={"value": value})))

    def remove(self, name: str) -> None:
        self._transport.send(Call("DELETE", _secret(name)))


def _secret(name: str) -> str:
    return f"/secrets/{quote(name, safe='')}"
