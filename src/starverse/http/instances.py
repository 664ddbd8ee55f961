"""Instances: launch, look at, start, stop, resize, copy, keep longer, release."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Body, Query, Response

from starverse.app.etags import version_of
from starverse.app.instances import changing, launching, saving, starting, stopping, views
from starverse.app.instances.changing import settings_of
from starverse.app.instances.views import InstanceFilter, InstanceView
from starverse.app.views import Page
from starverse.domain.workloads.states import InstanceState
from starverse.http.admin import VersionDep
from starverse.http.routing import make_router
from starverse.http.schemas_images import ImageOut
from starverse.http.schemas_instances import (
    CloneIn,
    EvidenceOut,
    ExtendIn,
    InstanceChangeIn,
    InstanceOut,
    LaunchIn,
    NoWishIn,
    ResizeIn,
    SaveImageIn,
    StartIn,
)
from starverse.http.security import AnyCaller, OnceDep, PlatformDep, TeamCaller
from starverse.http.shapes import LIMIT_DEFAULT, Items, LimitParam, items_of, written

router = make_router("instances", "/instances")

StateParam = Literal["stopped", "queued", "running", "released"]


@router.post("", status_code=201, response_model=InstanceOut)
def launch_instance(body: LaunchIn, platform: PlatformDep, identity: TeamCaller, once: OnceDep) -> Response:
    """A new instance and its first start; 507 where no cards are free and nobody is to wait."""
    view = launching.launch(platform, identity, body.request(once))
    return written(InstanceOut.made(view), 201, {"ETag": _etag(view)})


@router.get("")
def list_instances(
    platform: PlatformDep,
    identity: AnyCaller,
    state: Annotated[list[StateParam] | None, Query()] = None,
    all_: Annotated[bool, Query(alias="all", description="Released ones too")] = False,
    limit: Annotated[LimitParam, Query()] = LIMIT_DEFAULT,
    cursor: Annotated[str | None, Query(max_length=200)] = None,
) -> Items[InstanceOut]:
    """The team's instances, newest first; released ones where they are asked for."""
    states = tuple(InstanceState(word) for word in state or ())
    page = views.list_instances(platform, identity, InstanceFilter(states, all_, limit, cursor))
    return items_of(InstanceOut, page)


@router.get("/{instance_ref}")
def get_instance(
    instance_ref: str, platform: PlatformDep, identity: AnyCaller, response: Response
) -> InstanceOut:
    """An instance with its ETag; ``instance_ref`` is a name, a number or an id."""
    return _shown(response, views.get(platform, identity, instance_ref))


@router.get("/{instance_ref}/activity")
def list_activity(instance_ref: str, platform: PlatformDep, identity: AnyCaller) -> Items[EvidenceOut]:
    """The evidence of the idle verdict, source by source; nothing while it does not run."""
    return items_of(EvidenceOut, Page(views.activity(platform, identity, instance_ref)))


@router.patch("/{instance_ref}")
def change_instance(
    instance_ref: str,
    body: InstanceChangeIn,
    platform: PlatformDep,
    identity: TeamCaller,
    version: VersionDep,
    response: Response,
) -> InstanceOut:
    """Change its name or what its owner wants; what runs follows at once."""
    return _shown(response, changing.change(platform, identity, instance_ref, body.change(), version))


@router.delete("/{instance_ref}", status_code=204)
def release_instance(instance_ref: str, platform: PlatformDep, identity: TeamCaller) -> Response:
    """Release it with its own files; a running one is stopped first. Disks of the team stay."""
    stopping.remove(platform, identity, instance_ref)
    return Response(status_code=204)


@router.post("/{instance_ref}:start", status_code=202)
def start_instance(
    instance_ref: str,
    platform: PlatformDep,
    identity: TeamCaller,
    once: OnceDep,
    response: Response,
    body: Annotated[StartIn | None, Body()] = None,
) -> InstanceOut:
    """Start it on the same files, disks and cards, or with ``no_gpu`` without cards; or a refusal."""
    request = (body or StartIn()).request(once)
    return _shown(response, starting.start(platform, identity, instance_ref, request))


@router.post("/{instance_ref}:stop", status_code=202)
def stop_instance(
    instance_ref: str,
    platform: PlatformDep,
    identity: TeamCaller,
    response: Response,
    body: Annotated[NoWishIn | None, Body()] = None,
) -> InstanceOut:
    """Stop it; its files and disks stay."""
    return _shown(response, stopping.stop(platform, identity, instance_ref))


@router.post("/{instance_ref}:resize", status_code=202)
def resize_instance(
    instance_ref: str,
    body: ResizeIn,
    platform: PlatformDep,
    identity: TeamCaller,
    once: OnceDep,
    response: Response,
) -> InstanceOut:
    """Other cards, the same files and disks; what runs is stopped and started with them."""
    return _shown(response, starting.resize(platform, identity, instance_ref, body.request(once)))


@router.post("/{instance_ref}:clone", status_code=201)
def clone_instance(
    instance_ref: str,
    platform: PlatformDep,
    identity: TeamCaller,
    once: OnceDep,
    response: Response,
    body: Annotated[CloneIn | None, Body()] = None,
) -> InstanceOut:
    """A stopped copy of a stopped instance, with a copy of its files."""
    name = None if body is None else body.name
    return _shown(response, changing.clone(platform, identity, instance_ref, name, once))


@router.post("/{instance_ref}:extend", status_code=202)
def extend_instance(
    instance_ref: str,
    body: ExtendIn,
    platform: PlatformDep,
    identity: TeamCaller,
    once: OnceDep,
    response: Response,
) -> InstanceOut:
    """Keep a stopped instance some days longer."""
    return _shown(response, changing.extend(platform, identity, instance_ref, body.days, once))


@router.post("/{instance_ref}:save-image", status_code=201)
def save_image(
    instance_ref: str, body: SaveImageIn, platform: PlatformDep, identity: TeamCaller, once: OnceDep
) -> ImageOut:
    """Have a stopped instance's home copied into an image."""
    return ImageOut.made(saving.save_image(platform, identity, instance_ref, body.name, once), identity)


def _shown(response: Response, view: InstanceView) -> InstanceOut:
    response.headers["ETag"] = _etag(view)
    return InstanceOut.made(view)


def _etag(view: InstanceView) -> str:
    return f'"{version_of(settings_of(view))}"'
