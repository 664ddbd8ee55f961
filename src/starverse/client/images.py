"""Images: the root environments that workloads start with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast
from urllib.parse import quote

from starverse.client.errors import ClientError
from starverse.client.shapes import Image
from starverse.client.transport import Call, Transport, new_key
from starverse.client.waiting import Patience, wait_until

VERIFY_TIMEOUT_SECONDS = 3600.0
"""Verifying reads every byte."""
MADE_STATES = frozenset({"ready", "failed", "removed"})
PATIENCE = Patience(pause_seconds_first=0.1, pause_seconds_max=1.0)


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

    def wait(
        self,
        image: Image,
        *,
        on_wait: Callable[[Image], None],
        on_break: Callable[[ClientError], None],
    ) -> Image:
        """The image once it is built, has failed or is gone; asks again and again, also while the server is
        away for a while."""
        if image["state"] in MADE_STATES:
            return image
        on_wait(image)
        return wait_until(
            self._transport,
            lambda: self.get(image["id"]),
            lambda found: found["state"] in MADE_STATES,
            PATIENCE,
            on_wait=on_wait,
            on_break=on_break,
        )


def _image(ref: str) -> str:
    return f"/images/{quote(ref, safe='')}"
