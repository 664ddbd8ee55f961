"""Saving an instance's state as an image; laying a saved home into that of a new instance.

A saved image is the image that the instance ran on (``base``) and a copy of its home: packages that its owner
put there with ``pip install --user`` or in a virtual environment, settings, notebooks. ``.cache`` and the
workspace are left out. A new instance of it begins with that copy; afterwards the two share nothing.

Of an instance on a container image what it wrote over it and that image become a container image of its own.
"""

from __future__ import annotations

from pathlib import Path

from starverse.app.disk_space import require_space
from starverse.app.idempotency import Once
from starverse.app.identity import Identity
from starverse.app.images.ordering import NewImage, place_order
from starverse.app.images.using import image_path
from starverse.app.platform import Platform
from starverse.db import images
from starverse.domain.catalog.image_recipes import Recipe, read_recipe
from starverse.domain.catalog.images import Image, ImageKind, name_fault
from starverse.domain.errors import Conflict, Invalid, Unavailable
from starverse.domain.workloads.instances import Instance
from starverse.domain.workloads.states import InstanceState

HOME = "home"
"""The folder of a saved image that holds the copy."""
BASE = "base"


def save_instance(
    platform: Platform, identity: Identity, instance: Instance, name: str, once: Once | None = None
) -> Image:
    """Have a stopped instance's home copied into an image of this name; the answer is ``queued``.

    Raises ``Conflict`` for one that runs: its files change. The caller has looked that it is the caller's.
    """
    fault = name_fault(name)
    if fault is not None:
        raise Invalid(faults=[fault])
    if instance.state is not InstanceState.STOPPED:
        raise Conflict(
            f"The instance {instance.name} is {instance.state.value}: its files change while they are read.",
            hint=f"Stop it first: starverse stop {instance.name}",
        )
    if not platform.paths.instance_home(instance.id).is_dir():
        raise Conflict(f"The instance {instance.name} was never started: there is nothing to save.")
    base = _base_of(platform, instance)
    recipe = Recipe(
        kind=ImageKind.OCI if base is not None and base.kind is ImageKind.OCI else ImageKind.SAVED,
        instance=instance.id,
        base="" if base is None else base.id,
        cuda="" if base is None else base.cuda,
        driver_min="" if base is None else base.driver_min,
        python="" if base is None else base.python,
    )
    require_space(platform, 0)
    return place_order(platform, identity, NewImage(name, once=once), recipe)


def layers_of(platform: Platform, image: Image) -> tuple[tuple[str, str], ...]:
    """The folders that an image is copied from, the container image below an instance first; none for what
    is not saved."""
    recipe = read_recipe(image.recipe)
    if not recipe.instance:
        return ()
    home = (HOME, str(platform.paths.instance_home(recipe.instance)))
    return (home,) if image.kind is ImageKind.SAVED else ((BASE, image_path(platform, recipe.base)), home)


def lay_home(platform: Platform, image_id: str | None, home: Path, owner: int | None) -> bool:
    """Make ``home`` the saved image's copy, unless it is there already; whether it was made now.

    All of it or nothing: it is copied aside and renamed. ``owner``: the Unix user it is given to, ``None``:
    one's own. Any other image leaves ``home`` to the caller. Raises :class:`Unavailable`.
    """
    image = None
    if image_id is not None and not home.exists():
        with platform.database.read() as connection:
            image = images.get(connection, image_id)
    if image is None or image.kind is not ImageKind.SAVED or image.digest is None:
        return False
    if not platform.images.is_sound(image.digest):
        raise Unavailable(f"The image {image.name} is not whole on the platform's disk; save it again.")
    require_space(platform, image.bytes or 0)
    platform.images.lay(image.digest, HOME, home, owner)
    return True


def _base_of(platform: Platform, instance: Instance) -> Image | None:
    """What the instance runs on: of an instance made from a saved image that one's base."""
    if instance.spec.image is None:
        return None
    with platform.database.read() as connection:
        image = images.get(connection, instance.spec.image)
        if image is not None and image.kind is ImageKind.SAVED:
            base = read_recipe(image.recipe).base
            image = images.get(connection, base) if base else None
    return image
