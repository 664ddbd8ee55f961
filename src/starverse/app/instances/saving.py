"""An instance's home as an image."""

from __future__ import annotations

from starverse.app.idempotency import Once
from starverse.app.identity import Identity
from starverse.app.images import save_instance
from starverse.app.instances.finding import find
from starverse.app.platform import Platform
from starverse.domain.catalog.images import Image


def save_image(
    platform: Platform, identity: Identity, ref: str, name: str, once: Once | None = None
) -> Image:
    """Have a stopped instance's home copied into an image of this name; the answer is ``queued``."""
    with platform.database.read() as connection:
        instance = find(connection, identity, ref)
    return save_instance(platform, identity, instance, name, once)
