"""What the reconciler of images does: one build after another, each outside of any transaction.

The steps are given the images as they were read, once while nothing happens; a change is made only where
nobody made one meanwhile.

An image is marked ``building`` before its builder is started, so that a server that dies in between leaves an
image without a builder, which is built again, and never a builder without an image.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from starverse.app.images.saving import layers_of
from starverse.app.platform import Platform
from starverse.db import images, teams
from starverse.db.events import Event, record
from starverse.domain.catalog.image_builds import BuildOrder, BuildPhase, BuildResult
from starverse.domain.catalog.image_recipes import read_recipe
from starverse.domain.catalog.images import (
    Image,
    ImageState,
    cuda_of_contents,
    driver_of_cuda,
)
from starverse.domain.errors import Unavailable
from starverse.domain.ids import TeamId
from starverse.domain.workloads.sub_ids import sub_ids_first

BUILDER_UID_BELOW_TEAMS = 1
"""A root platform builds as the user just below those of teams."""


_ALIVE = (ImageState.QUEUED, ImageState.BUILDING, ImageState.READY)


def read_alive(platform: Platform) -> tuple[Image, ...]:
    """Every image that is, or is to be, there, the one asked for first leading."""
    with platform.database.read() as connection:
        return images.in_states(connection, *_ALIVE)


def follow_builds(platform: Platform, alive: Collection[Image]) -> str:
    """Record how builds ended; clear away those that nobody waits for. What was done, in words."""
    building = {image.id: image for image in alive if image.state is ImageState.BUILDING}
    said = [_follow(platform, image) for image in building.values()]
    for image_id in platform.images.builds():
        if image_id not in building and platform.images.end(image_id):
            said.append(f"cleared the build of {image_id}")
    return ", ".join(text for text in said if text)


def begin_next(platform: Platform, alive: Collection[Image]) -> str:
    """Start the build that was asked for first, unless one is under way."""
    if any(image.state is ImageState.BUILDING for image in alive):
        return ""
    waiting = [image for image in alive if image.state is ImageState.QUEUED]
    if not waiting or platform.images.builds():
        return ""
    with platform.database.write() as connection:
        image = images.change(connection, waiting[0], ImageState.BUILDING, message="is being built")
    try:
        platform.images.begin(_order(platform, image))
    except Unavailable as error:
        _record(platform, image, BuildResult(message=error.detail))
        return ""
    return f"building {image.id}"


def find_missing(platform: Platform, alive: Collection[Image]) -> str:
    """Have images built again whose bytes are gone, as after a restore without them."""
    ready = [image for image in alive if image.state is ImageState.READY]
    gone = [image for image in ready if not platform.images.is_sound(str(image.digest))]
    for image in gone:
        saved = bool(read_recipe(image.recipe).instance)
        state = ImageState.FAILED if saved else ImageState.QUEUED
        text = "its files are gone" if saved else "its files are gone; it is built again"
        with platform.database.write() as connection:
            images.change(connection, image, state, message=text)
    return ", ".join(f"the files of {image.id} are gone" for image in gone)


def remove_unused(platform: Platform, _alive: Collection[Image]) -> str:
    """Delete stores that no image names and nothing open uses, unless a build may just be making one.

    Nothing is deleted by what was read before.
    """
    store = platform.images
    swept = store.sweep()
    said = [f"removed {swept} leftovers"] if swept else []
    kept = set(store.digests())
    if not kept:
        return ", ".join(said)
    with platform.database.read() as connection:
        if images.in_states(connection, ImageState.BUILDING):
            return ", ".join(said)
        named = images.named_digests(connection)
        idle = kept - named
        if idle:
            idle -= images.digests_of(connection, images.used_by_open_jobs(connection).keys())
    if store.builds():
        return ", ".join(said)
    for digest in sorted(idle):
        store.remove(digest)
        said.append(f"removed {digest}")
    return ", ".join(said)


def _follow(platform: Platform, image: Image) -> str:
    look = platform.images.look(image.id)
    if look.phase is BuildPhase.RUNNING:
        return ""
    if look.result is not None:
        done = _record(platform, image, look.result)
        platform.images.end(image.id)
        return f"{done.state.value} {image.id}"
    if not platform.images.end(image.id):
        return ""
    with platform.database.write() as connection:
        text = "its builder was killed; it is built again"
        images.change(connection, image, ImageState.QUEUED, message=text)
    return f"the builder of {image.id} is gone"


def _record(platform: Platform, image: Image, result: BuildResult) -> Image:
    now = platform.clock.now()
    with platform.database.write() as connection:
        if not result.digest:
            done = images.change(connection, image, ImageState.FAILED, message=result.message)
        else:
            cuda = image.cuda or cuda_of_contents(result.contents)
            done = images.change(
                connection,
                image,
                ImageState.READY,
                message="",
                digest=result.digest,
                bytes=result.bytes,
                contents=result.contents,
                python=result.python or image.python,
                cuda=cuda,
                driver_min=image.driver_min or driver_of_cuda(cuda),
                built_at=now,
            )
        event = Event(now, "image", image.id, "state", done.state.value, done.message, image.team_id)
        record(connection, event)
    return done


def _order(platform: Platform, image: Image) -> BuildOrder:
    settings = platform.settings
    uid = settings.unix_uid_first - BUILDER_UID_BELOW_TEAMS if settings.drops_to_team_uid else None
    return BuildOrder(
        image_id=image.id,
        recipe=image.recipe,
        installer=settings.image_installer,
        uid=uid,
        seconds_max=settings.image_build_seconds_max,
        bytes_max=settings.image_bytes_max,
        disk_reserve_bytes=settings.disk_reserve_bytes,
        conda_base=settings.conda_base,
        layers=layers_of(platform, image),
        **_owners(platform, image),
    )


def _owners(platform: Platform, image: Image) -> dict[str, Any]:
    """Who wrote what is saved, on a platform where each team is a user of its own."""
    settings = platform.settings
    if image.team_id is None or not settings.drops_to_team_uid:
        return {}
    with platform.database.read() as connection:
        team = teams.get_team(connection, TeamId(image.team_id))
    if team is None:
        return {}
    uid = team.unix_uid
    return {"layer_owner": uid, "sub_ids_first": sub_ids_first(uid, settings.unix_uid_first)}
