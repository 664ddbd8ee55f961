"""Starting a stopped instance again: with its cards or without, on the same files, or not at all."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sqlalchemy import Connection

from starverse.app.idempotency import Once, claim, made_before
from starverse.app.identity import Identity
from starverse.app.instances import views
from starverse.app.instances.checks import card_faults, read_world, require_start
from starverse.app.instances.finding import find
from starverse.app.instances.runs import insert_run
from starverse.app.instances.stopping import STANDING, stop_run
from starverse.app.platform import Platform
from starverse.db import events, folders, instances, jobs
from starverse.db.events import Event
from starverse.domain.errors import Conflict, FieldFault, Invalid
from starverse.domain.ids import AccountId
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.instances import (
    TARIFFS,
    Afterwards,
    Instance,
    InstanceReason,
    Next,
    StartWish,
)
from starverse.domain.workloads.records import Job
from starverse.domain.workloads.specs import DiskMount
from starverse.domain.workloads.states import InstanceState


@dataclass(frozen=True, slots=True)
class StartRequest:
    """``tariff`` ``None``: the instance's own. ``no_gpu``: the same instance without its cards."""

    no_gpu: bool = False
    tariff: str | None = None
    wait: bool = False
    once: Once | None = None


@dataclass(frozen=True, slots=True)
class ResizeRequest:
    """Other cards from the next start on; what runs is stopped and started with them. ``card`` ``None``: as
    it was."""

    cards: int
    card: str | None = None
    wait: bool = False
    once: Once | None = None


def start(platform: Platform, identity: Identity, ref: str, request: StartRequest) -> views.InstanceView:
    """Start a stopped instance, on the same files, disks and cards. One that is being stopped is started as
    soon as it has stopped. Raises ``Conflict`` rather than give it anything else."""
    wish = _wish(identity, request)
    with platform.database.read() as connection:
        before = made_before(connection, identity.account_id, request.once)
        if before is not None:
            return views.one(platform, before)
        instance = find(connection, identity, ref)
        if instance.state is InstanceState.STOPPED:
            _require_files(platform, connection, instance)
            mounts = mounts_of(connection, instance)
            require_start(connection, platform, instance, wish, mounts, instance.run_id)

    def act(connection: Connection) -> str:
        now = platform.clock.now()
        current = find(connection, identity, ref)
        made = claim(connection, AccountId(identity.account_id), request.once, current.id, now)
        if made is not None:
            return made
        if current.state in STANDING and _is_ending(connection, current):
            instances.change(connection, current, afterwards=Afterwards(Next.START, wish))
        elif current.state is not InstanceState.STOPPED:
            raise Conflict(f"instance {current.name} is {current.state.value} already")
        else:
            _require_files(platform, connection, current)
            insert_run(connection, platform, current, wish, now)
        return current.id

    instance_id = platform.database.write_retrying(act)
    platform.wakeups.wake("schedule")
    return views.one(platform, instance_id)


def resize(platform: Platform, identity: Identity, ref: str, request: ResizeRequest) -> views.InstanceView:
    """Other cards, the same files and disks: a new allocation. What runs is stopped and started again as one
    wish, which no crash splits."""
    with platform.database.read() as connection:
        before = made_before(connection, identity.account_id, request.once)
        if before is not None:
            return views.one(platform, before)
        found = find(connection, identity, ref)
        job = _present_job(connection, found)
        world = read_world(platform, connection, identity.account_id)
        faults = card_faults(world, request.card or found.spec.card, request.cards)
        if request.cards < 1:
            faults.append(
                FieldFault("cards", str(request.cards), "at least 1; without cards: start --no-gpu")
            )
        if faults:
            raise Invalid(faults=faults)
        resized = _resized(found, request)
        wish = StartWish(
            identity.account_id, tariff=None if job is None else job.spec.tariff, wait=request.wait
        )
        if found.state in STANDING:
            wish = replace(wish, tariff=None if wish.tariff is Tariff.NO_GPU else wish.tariff)
            without = None if job is None else job.id
            require_start(connection, platform, resized, wish, mounts_of(connection, found), without)

    def act(connection: Connection) -> str:
        now = platform.clock.now()
        current = find(connection, identity, ref)
        made = claim(connection, AccountId(identity.account_id), request.once, current.id, now)
        if made is not None:
            return made
        if current.state is InstanceState.RELEASED:
            raise Conflict(f"instance {current.name} is released")
        if (current.state in STANDING) != (found.state in STANDING):
            raise Conflict(f"instance {current.name} was started or stopped at this moment; try again")
        text = f"{request.cards} x {request.card or current.spec.card}, resized by {identity.email}"
        happened = Event(
            now, "instance", current.id, "resize", "asked", text, current.team_id, identity.account_id
        )
        events.record(connection, happened)
        changed = instances.change(connection, current, spec=_resized(current, request).spec)
        if changed.state in STANDING:
            after = Afterwards(Next.START, wish)
            stop_run(connection, platform, changed, InstanceReason.RESIZED, text, after)
        return changed.id

    instance_id = platform.database.write_retrying(act)
    platform.wakeups.wake("observe", "schedule")
    return views.one(platform, instance_id)


def mounts_of(connection: Connection, instance: Instance) -> tuple[DiskMount, ...]:
    """The disks that it has at each start."""
    return tuple(disk.mount for disk in instances.disks_of(connection, [instance.id])[instance.id])


def _wish(identity: Identity, request: StartRequest) -> StartWish:
    known = {tariff.value for tariff in TARIFFS}
    if request.tariff is not None and request.tariff not in known:
        raise Invalid(faults=[FieldFault("tariff", request.tariff[:40], " or ".join(sorted(known)))])
    if request.no_gpu and request.tariff is not None:
        raise Invalid(faults=[FieldFault("tariff", request.tariff, "none: without cards it is no_gpu")])
    tariff = None if request.tariff is None else Tariff(request.tariff)
    return StartWish(identity.account_id, request.no_gpu, tariff, request.wait)


def _resized(instance: Instance, request: ResizeRequest) -> Instance:
    """Its share of the node follows its cards, unless people chose it themselves."""
    spec = replace(instance.spec, cards=request.cards, card=request.card or instance.spec.card)
    return replace(instance, spec=spec)


def _present_job(connection: Connection, instance: Instance) -> Job | None:
    return None if instance.run_id is None else jobs.get(connection, instance.run_id)


def _is_ending(connection: Connection, instance: Instance) -> bool:
    job = _present_job(connection, instance)
    return job is not None and job.cancel_requested_at is not None


def _require_files(platform: Platform, connection: Connection, instance: Instance) -> None:
    """The files that it had: it is not started on others (scenario 15)."""
    if instance.reason == InstanceReason.CLONING.value:
        raise Conflict(
            f"the files of instance {instance.name} are being copied; start it when they are there"
        )
    if instances.clones_of(connection, instance):
        raise Conflict(f"instance {instance.name} is being cloned; start it when its files are copied")
    workspace = folders.get_workspace(connection, instance.workspace_id)
    kept = workspace is not None and workspace.removed_at is None
    if instance.first_ready_at is None and kept:
        return
    for place, shown in (
        (platform.paths.instance_home(instance.id), "/root"),
        (platform.paths.workspace(instance.workspace_id), "/workspace"),
    ):
        if not kept or not place.is_dir():
            raise Conflict(
                f"the files of instance {instance.name} ({shown}) are gone; it is not started without them",
                hint="the operator may restore them from a backup",
            )
