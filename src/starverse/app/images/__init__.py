"""Images: ordered, built by the reconciler, listed, verified, removed when nobody uses them, and saved."""

from __future__ import annotations

from starverse.app.images.saving import lay_home, save_instance
from starverse.app.images.using import choose_image, image_path

__all__ = ["choose_image", "image_path", "lay_home", "save_instance"]
