"""Images: the root environments that workloads start with."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import quote

from starverse.client.shapes import Image
from starverse.client.transport import Call, Transport, new_key

VERIFY_TIMEOUT_SECONDS = 3600.0
"""Verifying reads every byte."""


class Images:
    """Of the platform and of the team; named by name or id."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def list(self) -> list[Image]:
        return [cast(Image, item) for item in self._transport.pages(Call("GET", "/images"))]

    def get(self, ref: str) -> Image:
        return cast(Image, self._transport.send(Call("GET", _image(ref))))

    def build(self, name: str, recipe: dict[str, Any] | None, *, shared: bool = False) -> Image:
        """Ordered, not yet built: ask again until its state is ``ready`` or ``failed``.

        ``recipe`` ``None``: the shipped one of this name; ``shared``: for everybody, of operators only."""
        body: dict[str, Any] = {"name": name, "recipe": recipe} | ({"shared": True} if shared else {})
        return cast(Image, self._transport.send(Call("POST", "/images", body=body, key=new_key())))

    def verify(self, ref: str) -> dict[str, Any]:
        """The image with ``faults`` after every byte was read and compared."""
        return self._transport.send(
            Call("POST", f"{_image(ref)}:verify", timeout_seconds=VERIFY_TIMEOUT_SECONDS)
        )

    def remove(self, ref: str) -> None:
        self._transport.send(Call("DELETE", _image(ref)))

    def pause(self, seconds: float) -> None:
        self._transport.pause(seconds)


def _image(ref: str) -> str:
    return f"/images/{quote(ref, safe='')}"
