"""A new instance and its first start: understood, priced, checked, and written together, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from starverse.app import secrets
from starverse.app.idempotency import Once, claim, made_before
from starverse.app.identity import Identity
from starverse.app.images import choose_image
from starverse.app.instances import views
from starverse.app.instances.checks import card_faults, read_world, require_start
from starverse.app.instances.runs import insert_run
from starverse.app.platform import Platform
from starverse.db import datasets, disks, events, instances, jobs, workspaces
from starverse.db.events import Event
from starverse.domain.catalog.disks import mount_target
from starverse.domain.catalog.images import Image
from starverse.domain.errors import Conflict, FieldFault, Invalid, LimitExceeded
from starverse.domain.ids import AccountId
from starverse.domain.money import Money
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.instances import (
    NAME_EXPECTED,
    TARIFFS,
    IdleStop,
    Instance,
    InstanceReason,
    InstanceSpec,
    Policy,
    Restart,
    StartWish,
    is_name,
)
from starverse.domain.workloads.specs import DiskMount
from starverse.domain.workloads.states import InstanceState

GIB = 1024**3
SECONDS_MAX = 366 * 24 * 3600
INSTANCES_MAX = 1000
"""Of one team, released ones not counted."""


@dataclass(frozen=True, slots=True)
class DiskWish:
    """A disk of the team by name or id; ``path`` ``None``: ``/data/NAME``."""

    name: str
    path: str | None = None
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """What people ask for. ``name`` ``None``: one is made; ``wait``: for cards, if none are free.

    ``idle_stop`` is ``unset``, ``off``, ``default`` or seconds.
    """

    card: str
    cards: int = 1
    name: str | None = None
    image: str | None = None
    fabric: str | None = None
    zone: str | None = None
    tariff: str = Tariff.ON_DEMAND.value
    price_max: Money | None = None
    cpus: int | None = None
    memory_gib: int | None = None
    datasets: tuple[str, ...] = ()
    disks: tuple[DiskWish, ...] = ()
    secrets: tuple[str, ...] = ()
    ttl_seconds: int | None = None
    idle_stop: str | int = IdleStop.UNSET.value
    restart: str = Restart.STAY.value
    wait: bool = False
    once: Once | None = None


def launch(platform: Platform, identity: Identity, request: LaunchRequest) -> views.InstanceView:
    """Launch an instance. Raises ``Invalid`` with every fault, ``NoCapacity`` where no cards are free and
    nobody is to wait, ``NotEnoughMoney``; a repeat of a request is answered with what it made."""
    instance_id, workspace_id = platform.ids.uuid7(), platform.ids.uuid7()
    with platform.database.read() as connection:
        before = made_before(connection, identity.account_id, request.once)
        if before is not None:
            return views.one(platform, before)
        mounts, image = _understand(platform, connection, identity, request)
        planned = _planned(platform, identity, request, instance_id, workspace_id)
        planned = replace(planned, spec=on_image(planned.spec, image))
        wish = StartWish(identity.account_id, wait=request.wait)
        require_start(connection, platform, planned, wish, mounts)

    def act(connection: Connection) -> str:
        now = platform.clock.now()
        made = claim(connection, AccountId(identity.account_id), request.once, instance_id, now)
        if made is not None:
            return made
        require_few(connection, identity)
        workspaces.insert_workspace(connection, workspace_id, identity.team_id, None, now)
        number = jobs.next_number(connection, "job")
        name = request.name or _free_name(connection, identity, request.card, number)
        new = replace(planned, number=number, name=name)
        instances.insert_instance(connection, new, policy_of(request), mounts)
        text = f"launched as {name}"
        happened = Event(now, "instance", new.id, "launch", "", text, new.team_id, identity.account_id)
        events.record(connection, happened)
        insert_run(connection, platform, new, wish, now)
        return new.id

    try:
        made_id = platform.database.write_retrying(act)
    except IntegrityError as error:
        raise Conflict(
            f"there is an instance {request.name} already; choose another name, or `starverse start` it"
        ) from error
    platform.wakeups.wake("schedule")
    return views.one(platform, made_id)


def policy_of(request: LaunchRequest) -> Policy:
    """What the request wants beyond a size; its values were checked."""
    kind, seconds = read_idle_stop(request.idle_stop)
    return Policy(kind, seconds, request.ttl_seconds, Restart(request.restart))


def read_idle_stop(value: str | int) -> tuple[IdleStop, int | None]:
    """``unset``, ``off``, ``default`` or seconds as stored; raises ``ValueError`` for anything else."""
    if isinstance(value, bool) or (isinstance(value, int) and not 0 <= value <= SECONDS_MAX):
        raise ValueError(value)
    if isinstance(value, int):
        return IdleStop.AFTER, value
    kind = IdleStop(value)
    if kind is IdleStop.AFTER:
        raise ValueError(value)
    return kind, None


def policy_faults(
    idle_stop: str | int | None, ttl_seconds: int | None, restart: str | None
) -> list[FieldFault]:
    """What is wrong with the parts of a policy; ``None``: not given."""
    faults = []
    if idle_stop is not None:
        try:
            read_idle_stop(idle_stop)
        except ValueError:
            expected = f"unset, off, default, or seconds from 0 to {SECONDS_MAX}"
            faults.append(FieldFault("idle_stop", str(idle_stop)[:40], expected))
    if ttl_seconds is not None and not 1 <= ttl_seconds <= SECONDS_MAX:
        faults.append(FieldFault("ttl_seconds", str(ttl_seconds), f"1 to {SECONDS_MAX}"))
    if restart is not None and restart not in set(Restart):
        faults.append(FieldFault("restart", restart[:40], "elsewhere or stay"))
    return faults


def name_faults(name: str | None) -> list[FieldFault]:
    if name is None or is_name(name):
        return []
    shown = name[:80].encode("utf-8", "backslashreplace").decode()
    return [FieldFault("name", shown, NAME_EXPECTED)]


def _understand(
    platform: Platform, connection: Connection, identity: Identity, request: LaunchRequest
) -> tuple[tuple[DiskMount, ...], Image | None]:
    """The disks and the image it asks for; raises ``Invalid`` naming everything that is wrong."""
    world = read_world(platform, connection, identity.account_id)
    faults = name_faults(request.name)
    faults += policy_faults(request.idle_stop, request.ttl_seconds, request.restart)
    faults += card_faults(world, request.card, request.cards)
    if request.tariff not in {tariff.value for tariff in TARIFFS}:
        expected = f"{' or '.join(tariff.value for tariff in TARIFFS)}"
        faults.append(FieldFault("tariff", request.tariff[:40], expected))
    zones = {node.zone for node in world.kinds}
    if request.zone is not None and zones and request.zone not in zones:
        faults.append(FieldFault("zone", request.zone[:80], f"one of {', '.join(sorted(zones))}"))
    for name in request.datasets:
        if datasets.find_verified(connection, name) is None:
            faults.append(FieldFault("datasets", name[:80], "a verified dataset of `starverse dataset ls`"))
    for name in secrets.missing_names(connection, identity.team_id, request.secrets):
        faults.append(FieldFault("secrets", name[:80], "a secret of `starverse secret ls`"))
    image = None
    if request.image:
        image = choose_image(connection, platform, identity.team_id, request.image)
    if isinstance(image, str):
        faults.append(FieldFault("image", str(request.image)[:80], image))
    mounts, wrong = read_disks(connection, identity, request.disks)
    if faults or wrong or isinstance(image, str):
        raise Invalid(faults=[*faults, *wrong])
    return mounts, image


def on_image(spec: InstanceSpec, image: Image | None) -> InstanceSpec:
    """The same on an image, with the driver that it needs; ``None``: on the host's programs alone."""
    if image is None:
        return replace(spec, image=None, image_name="", driver_min="")
    return replace(spec, image=image.id, image_name=image.name, driver_min=image.driver_min)


def read_disks(
    connection: Connection, identity: Identity, wishes: Sequence[DiskWish]
) -> tuple[tuple[DiskMount, ...], list[FieldFault]]:
    """The disks that are named, and what is wrong with the others."""
    mounts: list[DiskMount] = []
    faults: list[FieldFault] = []
    for wish in wishes:
        disk = disks.find(connection, identity.team_id, wish.name)
        if disk is None or disk.deleted_at is not None:
            faults.append(FieldFault("disks", wish.name[:80], "a disk of `starverse disk ls`"))
            continue
        try:
            mount = DiskMount(disk.id, mount_target(disk.name, wish.path), wish.read_only)
        except ValueError as error:
            faults.append(FieldFault("disks.path", str(wish.path)[:80], str(error)))
            continue
        if any(mount.disk_id == other.disk_id or mount.target == other.target for other in mounts):
            faults.append(FieldFault("disks", wish.name[:80], "each disk and each path once"))
        mounts.append(mount)
    return tuple(mounts), faults


def _planned(
    platform: Platform, identity: Identity, request: LaunchRequest, instance_id: str, workspace_id: str
) -> Instance:
    spec = InstanceSpec(
        card=request.card,
        cards=request.cards,
        fabric=request.fabric,
        zone=request.zone,
        tariff=Tariff(request.tariff),
        price_max=request.price_max,
        cpus=request.cpus,
        memory_bytes=None if request.memory_gib is None else request.memory_gib * GIB,
        datasets=request.datasets,
        secrets=request.secrets,
    )
    return Instance(
        id=instance_id,
        number=0,
        team_id=identity.team_id,
        account_id=identity.account_id,
        name=request.name or "instance",
        workspace_id=workspace_id,
        spec=spec,
        state=InstanceState.STOPPED,
        reason=InstanceReason.NEW.value,
        message="",
        created_at=platform.clock.now(),
    )


def _free_name(connection: Connection, identity: Identity, card: str, number: int) -> str:
    """A name made for it, which nobody has."""
    stem = f"{card}-{number}"
    name = stem if is_name(stem) else f"host-{number}"
    taken = instances.by_name(connection, identity.team_id, name) is not None
    return f"{name}-{identity.team_id[-6:]}" if taken else name


def require_few(connection: Connection, identity: Identity) -> None:
    """A team has so many instances at most."""
    if instances.count_of(connection, identity.team_id) >= INSTANCES_MAX:
        raise LimitExceeded(
            f"team {identity.team_name} has {INSTANCES_MAX} instances",
            hint="remove some: `starverse rm NAME`",
        )
