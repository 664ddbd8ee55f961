"""The dataset shelf."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

from starverse.client.shapes import Dataset
from starverse.client.transport import Call, Transport, new_key

VERIFY_TIMEOUT_SECONDS = 3600.0
"""Importing and verifying read every byte."""


class Shelf:
    """Read-only, checksummed data that every workload can mount."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def datasets(self) -> list[Dataset]:
        return [cast(Dataset, item) for item in self._transport.pages(Call("GET", "/datasets"))]

    def dataset(self, name: str) -> dict[str, Any]:
        return self._transport.send(Call("GET", f"/datasets/{quote(name, safe='')}"))

    def add_dataset(self, request: dict[str, Any]) -> dict[str, Any]:
        """Operators only: ``{name, title, source, licence, path}``; ``path`` is a folder of the host."""
        return self._transport.send(
            Call("POST", "/datasets", body=request, key=new_key(), timeout_seconds=VERIFY_TIMEOUT_SECONDS)
        )

    def verify_dataset(self, name: str) -> dict[str, Any]:
        """``{state, files, bytes, faults}`` after every byte was read and compared."""
        path = f"/datasets/{quote(name, safe='')}:verify"
        return self._transport.send(Call("POST", path, timeout_seconds=VERIFY_TIMEOUT_SECONDS))
