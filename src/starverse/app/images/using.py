"""What a start needs of images: the one that was named, whether it is there, where it lies."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from starverse.app.images.shipped import shipped_names
from starverse.app.platform import Platform
from starverse.db import images
from starverse.domain.catalog.image_recipes import read_recipe
from starverse.domain.catalog.images import Image, ImageKind, ImageState
from starverse.domain.errors import Unavailable
from starverse.domain.workloads.specs import JobSpec


def choose_image(connection: Connection, platform: Platform, team_id: str, text: str) -> Image | str:
    """The image of this id or name that the team may use and that is ready; else what would be right."""
    if platform.settings.driver == "process":
        return "none: this server runs workloads without a sandbox, which could show an image"
    found = images.find(connection, team_id, text)
    if found is None:
        if text in shipped_names():
            return f"an image that is built: `starverse image build {text}` builds this one"
        return "an image of `starverse image ls`"
    if found.state is not ImageState.READY:
        said = f" ({found.message})" if found.message else ""
        return f"an image that is ready; {found.name} is {found.state.value}{said}"
    return found


def choose_for_job(connection: Connection, platform: Platform, team_id: str, text: str) -> Image | str:
    """:func:`choose_image` for a batch job, which has no home that a saved one could be laid into."""
    found = choose_image(connection, platform, team_id, text)
    if isinstance(found, Image) and found.kind is ImageKind.SAVED:
        return f"an image that is no saved one; {found.name} is for instances"
    return found


def with_image(spec: JobSpec, image: Image) -> JobSpec:
    """The specification with this image, and with the driver that it needs of a node."""
    return replace(spec, image=image.id, resources=replace(spec.resources, driver_min=image.driver_min))


def image_path(platform: Platform, image_id: str | None) -> str:
    """The host folder to be shown at ``/opt/image``; ``""``: none, of no image or of a saved one without.

    Raises :class:`Unavailable` when it is not there as a whole.
    """
    if image_id is None:
        return ""
    with platform.database.read() as connection:
        image = images.get(connection, image_id)
        if image is not None and image.kind is ImageKind.SAVED:
            base = read_recipe(image.recipe).base
            if not base:
                return ""
            image = images.get(connection, base)
    if image is None or image.digest is None:
        raise Unavailable("The image is not there any more; choose another one.")
    if not platform.images.is_sound(image.digest):
        raise Unavailable(f"The image {image.name} is not whole on the platform's disk; build it again.")
    return str(platform.images.place(image.digest))
