"""Images: the root environments of workloads."""

from __future__ import annotations

from starverse.app.images import ordering
from starverse.app.images.ordering import NewImage
from starverse.http.routing import make_router
from starverse.http.schemas_images import ImageIn, ImageOut, VerifiedImageOut
from starverse.http.security import AnyCaller, OnceDep, PlatformDep, TeamCaller
from starverse.http.shapes import Items

router = make_router("images", "/images")


@router.get("")
def list_images(platform: PlatformDep, identity: AnyCaller) -> Items[ImageOut]:
    """The team's images and those of the platform, by name."""
    found = ordering.list_images(platform, identity)
    return Items[ImageOut](items=[ImageOut.made(image, identity) for image in found])


@router.get("/{image_id}")
def get_image(image_id: str, platform: PlatformDep, identity: AnyCaller) -> ImageOut:
    """One image, by id or name, with its packages."""
    return ImageOut.made(ordering.get_image(platform, identity, image_id), identity)


@router.post("", status_code=201)
def order_image(body: ImageIn, platform: PlatformDep, identity: TeamCaller, once: OnceDep) -> ImageOut:
    """Have an image built; without a recipe, the shipped one of this name. It is `queued` at first."""
    recipe = None if body.recipe is None else body.recipe.asked()
    made = ordering.order_image(platform, identity, NewImage(body.name, recipe, body.shared, once))
    return ImageOut.made(made, identity)


@router.post("/{image_id}:verify")
def verify_image(image_id: str, platform: PlatformDep, identity: TeamCaller) -> VerifiedImageOut:
    """Read every byte of an image and compare it with what was sealed."""
    return VerifiedImageOut.found(ordering.verify_image(platform, identity, image_id), identity)


@router.delete("/{image_id}", status_code=204)
def remove_image(image_id: str, platform: PlatformDep, identity: TeamCaller) -> None:
    """Give an image up; 409 while a job, an instance or a saved image needs it."""
    ordering.remove_image(platform, identity, image_id)
