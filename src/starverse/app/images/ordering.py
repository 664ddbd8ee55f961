"""Ordering, listing, verifying and removing images. Building is the reconciler's."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from starverse.app.disk_space import require_space
from starverse.app.idempotency import Once, claim, made_before
from starverse.app.identity import Identity
from starverse.app.images.shipped import shipped_recipe
from starverse.app.platform import Platform
from starverse.db import images
from starverse.db.events import Event, record
from starverse.domain.catalog.image_recipes import Recipe, RecipeRequest, make_recipe
from starverse.domain.catalog.image_trees import TreeFault
from starverse.domain.catalog.images import Image, ImageState, name_fault
from starverse.domain.errors import Conflict, Forbidden, Invalid, LimitExceeded, NotFound

IMAGES_PER_TEAM_MAX = 100
FAULTS_SHOWN = 100


@dataclass(frozen=True, slots=True)
class NewImage:
    """``recipe`` ``None``: the shipped one of this name. ``shared``: for everybody, an operator's to make."""

    name: str
    recipe: RecipeRequest | None = None
    shared: bool = False
    once: Once | None = None


@dataclass(frozen=True, slots=True)
class VerifiedImage:
    """What reading every byte of an image found; at most a hundred faults are named."""

    image: Image
    faults: tuple[TreeFault, ...]

    @property
    def state(self) -> str:
        return "damaged" if self.faults else "verified"


def order_image(platform: Platform, identity: Identity, new: NewImage) -> Image:
    """Have an image built. One of this name that failed is tried again with what is asked for now.

    Raises ``Invalid`` with every fault of name and recipe, ``Conflict`` when the name is taken.
    """
    if new.shared and not identity.operator:
        raise Forbidden("Only the operator makes images for everybody.", hint="Leave `shared` out.")
    fault = name_fault(new.name)
    if fault is not None:
        raise Invalid(faults=[fault])
    recipe = make_recipe(new.recipe or shipped_recipe(new.name))
    with platform.database.read() as connection:
        earlier = made_before(connection, identity.account_id, new.once)
        if earlier is not None:
            return _require(images.get(connection, earlier), new.name)
    require_space(platform, 0)
    return place_order(platform, identity, new, recipe)


def place_order(platform: Platform, identity: Identity, new: NewImage, recipe: Recipe) -> Image:
    """Record the image as ``queued`` and wake the builders."""
    team_id = None if new.shared else identity.team_id
    image_id = platform.ids.uuid7()

    def act(connection: Connection) -> Image:
        now = platform.clock.now()
        earlier = claim(connection, identity.account_id, new.once, image_id, now)
        if earlier is not None:
            return _require(images.get(connection, earlier), new.name)
        if images.count_of_team(connection, team_id) >= IMAGES_PER_TEAM_MAX:
            raise LimitExceeded(
                f"There are {IMAGES_PER_TEAM_MAX} images already; remove one: `starverse image rm NAME`."
            )
        _clear_failed(connection, platform, identity, new)
        image = Image(
            id=image_id,
            team_id=team_id,
            account_id=identity.account_id,
            name=new.name,
            kind=recipe.kind,
            state=ImageState.QUEUED,
            message="waits for a builder",
            generation=0,
            recipe=recipe.to_text(),
            recipe_digest=recipe.digest,
            digest=None,
            bytes=None,
            contents=(),
            python=recipe.python,
            cuda=recipe.cuda,
            driver_min=recipe.driver_min,
            asked_at=now,
        )
        images.add(connection, image)
        _tell(connection, platform, identity, image, "ordered")
        return image

    try:
        made = platform.database.write_retrying(act)
    except IntegrityError as error:
        raise Conflict(
            f"There is an image {new.name} already.", hint="Remove it, or take another name."
        ) from error
    platform.wakeups.wake("images")
    return made


def list_images(platform: Platform, identity: Identity) -> tuple[Image, ...]:
    """The team's images and those of the platform, by name."""
    with platform.database.read() as connection:
        return images.visible(connection, identity.team_id)


def get_image(platform: Platform, identity: Identity, text: str) -> Image:
    """An image by id or name; another team's is not found."""
    with platform.database.read() as connection:
        return _require(images.find(connection, identity.team_id, text), text)


def verify_image(platform: Platform, identity: Identity, text: str) -> VerifiedImage:
    """Read every byte of it and compare with what was sealed."""
    image = get_image(platform, identity, text)
    if image.digest is None:
        raise Conflict(f"The image {image.name} is {image.state.value}: there is nothing to verify yet.")
    found = VerifiedImage(image, platform.images.verify(image.digest)[:FAULTS_SHOWN])
    with platform.database.write() as connection:
        _tell(connection, platform, identity, image, found.state)
    return found


def remove_image(platform: Platform, identity: Identity, text: str) -> None:
    """Give an image up. Raises ``Conflict`` while a job, an instance or another image of it needs it.

    Its bytes go once no image names them and nothing runs on them: the reconciler sees to that.
    """

    def act(connection: Connection) -> None:
        image = _require(images.find(connection, identity.team_id, text), text)
        if image.team_id is None and not identity.operator:
            raise Forbidden(f"The image {image.name} is the platform's; only the operator removes it.")
        _require_unused(connection, image)
        now = platform.clock.now()
        removed = images.change(connection, image, ImageState.REMOVED, removed_at=now, message="")
        _tell(connection, platform, identity, removed, "removed")

    platform.database.write_retrying(act)
    platform.wakeups.wake("images")


def _require_unused(connection: Connection, image: Image) -> None:
    uses = {
        "jobs that have not ended": images.used_by_open_jobs(connection),
        "instances": images.used_by_instances(connection),
        "saved images": images.used_as_base(connection),
    }
    told = [f"{len(used[image.id])} {what}" for what, used in uses.items() if used.get(image.id)]
    if told:
        raise Conflict(
            f"The image {image.name} is used by {' and '.join(told)}.",
            hint="Cancel or remove them first, or keep the image.",
        )


def _clear_failed(connection: Connection, platform: Platform, identity: Identity, new: NewImage) -> None:
    """A failed image makes room for the next try of its name."""
    for image in images.visible(connection, identity.team_id):
        same_owner = image.team_id == (None if new.shared else identity.team_id)
        if image.name == new.name and same_owner and image.state is ImageState.FAILED:
            images.change(connection, image, ImageState.REMOVED, removed_at=platform.clock.now())


def _require(image: Image | None, text: str) -> Image:
    if image is None:
        raise NotFound(f"There is no image {text[:80]!r}; see `starverse image ls`.")
    return image


def _tell(connection: Connection, platform: Platform, identity: Identity, image: Image, kind: str) -> None:
    event = Event(
        platform.clock.now(),
        "image",
        image.id,
        kind,
        image.state.value,
        image.name,
        image.team_id,
        identity.account_id,
    )
    record(connection, event)
