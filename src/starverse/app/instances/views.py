"""Instances as people see them: what is wanted, what is, and when it stops or is released by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import Connection

from starverse.app import job_views
from starverse.app.identity import Identity
from starverse.app.instances.finding import find
from starverse.app.platform import Platform
from starverse.app.views import JobView, Page
from starverse.db import accounts, allocations, attachments, disks, instances, jobs, metering, teams
from starverse.db.attachments import Attachment
from starverse.db.instances import IdleClock, WantedDisk
from starverse.domain.errors import FieldFault, Invalid, NotFound
from starverse.domain.money import ZERO, Money, total
from starverse.domain.pricing.first_hour import cost_of, dearest_pool
from starverse.domain.pricing.rating import Terms
from starverse.domain.scheduling.fit import pools_asked
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.idleness import Evidence, Idleness, Verdict, judge
from starverse.domain.workloads.instances import IdleStop, Instance, Policy
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.specs import Resources
from starverse.domain.workloads.states import AllocationState, InstanceState

_SHOWN = (AllocationState.STARTING, AllocationState.RUNNING, AllocationState.STOPPING, AllocationState.PLACED)


@dataclass(frozen=True, slots=True)
class DiskView:
    """A disk at an instance. ``state`` is that of its attachment, ``None``: it is not plugged in now."""

    name: str
    target: str
    kind: str
    read_only: bool
    state: str | None = None
    message: str = ""


@dataclass(frozen=True, slots=True)
class PolicyView:
    """``idle_stop`` is ``unset``, ``off``, ``default``, or seconds (0 is one of them)."""

    idle_stop: str | int
    ttl_seconds: int | None
    restart: str


@dataclass(frozen=True, slots=True)
class IdleView:
    """``since``: the last activity; ``stops_at`` ``None``: idleness does not stop it."""

    verdict: str
    since: datetime
    stops_at: datetime | None
    warned: bool


@dataclass(frozen=True, slots=True)
class SshView:
    """How people come in."""

    host: str
    port: int
    user: str
    command: str


@dataclass(frozen=True, slots=True)
class InstanceView:
    """``INSTANCE`` of the API. ``tariff`` and ``no_gpu`` are of its present start or the next, ``price_hour``
    is one hour of that, ``None``: it has no price now. ``stops_at``: the end of its time to live."""

    id: str
    number: int
    name: str
    team: str
    account: str
    state: InstanceState
    reason: str
    message: str
    image: str | None
    card: str
    cards: int
    fabric: str | None
    zone: str | None
    tariff: Tariff
    no_gpu: bool
    node: str | None
    price_hour: Money | None
    cost_so_far: Money
    cards_declared: bool
    disks: tuple[DiskView, ...]
    datasets: tuple[str, ...]
    secrets: tuple[str, ...]
    policy: PolicyView
    idle: IdleView | None
    created_at: datetime
    started_at: datetime | None
    ready_at: datetime | None
    stops_at: datetime | None
    stopped_at: datetime | None
    release_at: datetime | None
    ssh: SshView


@dataclass(frozen=True, slots=True)
class InstanceFilter:
    """Which instances of the team; empty ``states``: all but released ones, with ``released`` those too."""

    states: tuple[InstanceState, ...] = ()
    released: bool = False
    limit: int = 100
    cursor: str | None = None


def one(platform: Platform, instance_id: str) -> InstanceView:
    with platform.database.read() as connection:
        found = instances.get(connection, instance_id)
        if found is None:
            raise NotFound(f"There is no instance {instance_id}.")
        return _views(platform, connection, [found])[0]


def get(platform: Platform, identity: Identity, ref: str) -> InstanceView:
    with platform.database.read() as connection:
        return _views(platform, connection, [find(connection, identity, ref)])[0]


def list_instances(platform: Platform, identity: Identity, wanted: InstanceFilter) -> Page[InstanceView]:
    """Of the team, newest first."""
    before = _read_cursor(wanted.cursor)
    states = wanted.states or (tuple(InstanceState) if wanted.released else ())
    with platform.database.read() as connection:
        search = instances.Search(identity.team_id, states, before)
        found = instances.search(connection, search, wanted.limit + 1)
        page = found[: wanted.limit]
        cursor = str(page[-1].number) if len(found) > wanted.limit else None
        return Page(tuple(_views(platform, connection, page)), cursor)


def activity(platform: Platform, identity: Identity, ref: str) -> tuple[Evidence, ...]:
    """The evidence behind the idle verdict, source by source; nothing while it does not run."""
    with platform.database.read() as connection:
        found = find(connection, identity, ref)
        run = _open_run(connection, found)
        return () if run is None else instances.evidence_of(connection, [run.id])[run.id]


@dataclass(frozen=True, slots=True)
class _Around:
    """What stands around a batch of instances, by instance id unless said otherwise."""

    policies: dict[str, Policy]
    clocks: dict[str, IdleClock]
    wanted: dict[str, tuple[WantedDisk, ...]]
    jobs: dict[str, list[Job]]
    shown: dict[str, JobView]
    """By job id."""
    runs: dict[str, Allocation]
    attached: dict[str, tuple[Attachment, ...]]
    disk_names: dict[str, tuple[str, str]]
    """Disk id -> its name and kind."""
    evidence: dict[str, tuple[Evidence, ...]]
    """By allocation id."""
    emails: dict[str, str]
    team_names: dict[str, str]


def _views(platform: Platform, connection: Connection, found: Sequence[Instance]) -> list[InstanceView]:
    around = _read_around(platform, connection, found)
    now = platform.clock.now()
    return [_view(platform, connection, instance, around, now) for instance in found]


def _read_around(platform: Platform, connection: Connection, found: Sequence[Instance]) -> _Around:
    ids = [instance.id for instance in found]
    of_instance = jobs.of_instances(connection, ids)
    every = [job for own in of_instance.values() for job in own]
    plain = job_views.plain(platform, connection, every)
    runs = {instance.id: run for instance in found if (run := _open_run(connection, instance)) is not None}
    attached = {key: attachments.open_of_allocation(connection, run.id) for key, run in runs.items()}
    named = disks.get_many(connection, {a.disk_id for own in attached.values() for a in own})
    return _Around(
        policies=instances.policies_of(connection, ids),
        clocks=instances.idle_clocks(connection, ids),
        wanted=instances.disks_of(connection, ids),
        jobs=of_instance,
        shown={view.id: view for view in plain},
        runs=runs,
        attached=attached,
        disk_names={disk.id: (disk.name, disk.kind.value) for disk in named.values()},
        evidence=instances.evidence_of(connection, [run.id for run in runs.values()]),
        emails=accounts.emails_of(connection, {instance.account_id for instance in found}),
        team_names=teams.names_of(connection, {instance.team_id for instance in found}),
    )


def _open_run(connection: Connection, instance: Instance) -> Allocation | None:
    if instance.run_id is None:
        return None
    found = allocations.of_jobs(connection, [instance.run_id])[instance.run_id]
    return next((run for run in reversed(found) if run.state in _SHOWN), None)


def _view(
    platform: Platform, connection: Connection, instance: Instance, around: _Around, now: datetime
) -> InstanceView:
    spec, policy, run = instance.spec, around.policies[instance.id], around.runs.get(instance.id)
    own = around.jobs[instance.id]
    job = next((job for job in own if job.id == instance.run_id), None)
    shown = None if job is None else around.shown[job.id]
    stands = instance.state in (InstanceState.QUEUED, InstanceState.RUNNING)
    waits = instance.state is InstanceState.QUEUED and job is not None and not instance.reason
    ready_at = run.ready_at if run is not None else None
    no_gpu = job is not None and stands and job.spec.tariff is Tariff.NO_GPU
    return InstanceView(
        id=instance.id,
        number=instance.number,
        name=instance.name,
        team=around.team_names.get(instance.team_id, ""),
        account=around.emails.get(instance.account_id, ""),
        state=instance.state,
        reason=job.reason if waits and job is not None else instance.reason,
        message=job.message if waits and job is not None else instance.message,
        image=spec.image_name or None,
        card=spec.card,
        cards=spec.cards,
        fabric=spec.fabric or (run.fabric if run else None),
        zone=spec.zone or (run.zone if run else None),
        tariff=job.spec.tariff if job is not None and stands else spec.tariff,
        no_gpu=no_gpu,
        node=run.nodes[0] if run is not None else None,
        price_hour=shown.price_hour
        if shown is not None and stands
        else _price(connection, platform, instance),
        cost_so_far=total([around.shown[job.id].cost_so_far for job in own]) if own else ZERO,
        cards_declared=shown is not None and shown.cards_declared,
        disks=_disks(instance, around),
        datasets=spec.datasets,
        secrets=spec.secrets,
        policy=policy_view(policy),
        idle=_idle(platform, instance, around, now),
        created_at=instance.created_at,
        started_at=job.submitted_at if job is not None and stands else None,
        ready_at=ready_at,
        stops_at=stops_at(policy, ready_at),
        stopped_at=instance.stopped_at,
        release_at=instance.release_at,
        ssh=_ssh(platform, instance),
    )


def policy_view(policy: Policy) -> PolicyView:
    after = policy.idle_stop is IdleStop.AFTER
    idle: str | int = (policy.idle_seconds or 0) if after else policy.idle_stop.value
    return PolicyView(idle, policy.ttl_seconds, policy.restart.value)


def stops_at(policy: Policy, ready_at: datetime | None) -> datetime | None:
    """The end of its time to live; ``None``: it has none, or is not ready."""
    if policy.ttl_seconds is None or ready_at is None:
        return None
    return ready_at + timedelta(seconds=policy.ttl_seconds)


def idleness(
    platform: Platform,
    policy: Policy,
    clock: IdleClock | None,
    run: Allocation | None,
    evidence: Sequence[Evidence],
    now: datetime,
) -> Idleness | None:
    """The verdict about a run that is ready; ``None``: there is none."""
    if run is None or run.ready_at is None:
        return None
    began = run.ready_at
    if clock is not None and clock.allocation_id == run.id:
        began = max(began, clock.counts_from)
    return judge(policy, platform.settings.instance_idle_seconds, began, run.alive_at, evidence, now)


def is_warned(clock: IdleClock | None, idle: Idleness) -> bool:
    """Whether its owner was warned of this very idleness: activity since then takes that back."""
    return clock is not None and clock.warned_at is not None and clock.warned_at > idle.since


def _idle(platform: Platform, instance: Instance, around: _Around, now: datetime) -> IdleView | None:
    run = around.runs.get(instance.id)
    evidence = around.evidence.get(run.id, ()) if run is not None else ()
    clock = around.clocks.get(instance.id)
    found = idleness(platform, around.policies[instance.id], clock, run, evidence, now)
    if found is None:
        return None
    verdict = Verdict.WARNED if found.verdict is Verdict.DUE else found.verdict
    return IdleView(verdict.value, found.since, found.stops_at, is_warned(clock, found))


def _disks(instance: Instance, around: _Around) -> tuple[DiskView, ...]:
    """What it has at each start, and what else is attached now."""
    attached = {a.disk_id: a for a in around.attached.get(instance.id, ())}
    shown = []
    for disk in around.wanted[instance.id]:
        mount, now = disk.mount, attached.pop(disk.mount.disk_id, None)
        state, message = (now.state.value, now.message) if now is not None else (None, "")
        shown.append(DiskView(disk.name, mount.target, disk.kind, mount.read_only, state, message))
    for a in attached.values():
        name, kind = around.disk_names[a.disk_id]
        shown.append(DiskView(name, a.target, kind, a.read_only, a.state.value, a.message))
    return tuple(sorted(shown, key=lambda disk: disk.target))


def _price(connection: Connection, platform: Platform, instance: Instance) -> Money | None:
    """An hour of its next start, at the dearest pool that it may land in."""
    if instance.state is InstanceState.RELEASED:
        return None
    spec, books = instance.spec, metering.load_books(connection).books
    now = platform.clock.now()
    asked = Resources(card_model=spec.card, cards_per_node=spec.cards, fabric=spec.fabric, zone=spec.zone)
    kinds = platform.nodes.kinds(platform.nodes.read(connection))
    pool = dearest_pool(pools_asked(kinds, asked), books.at(now))
    if pool is None:
        return None
    members = metering.member_changes(connection, instance.account_id)
    return cost_of(Terms(spec.tariff, *pool, members=members), spec.cards, now, books)


def _ssh(platform: Platform, instance: Instance) -> SshView:
    host, port = platform.settings.ssh_host, platform.settings.ssh_port
    at = "" if port == 22 else f" -p {port}"
    return SshView(host, port, instance.name, f"ssh {instance.name}@{host}{at}")


def _read_cursor(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if cursor.isascii() and cursor.isdecimal() and len(cursor) <= 18:
        return int(cursor)
    raise Invalid(faults=[FieldFault("cursor", cursor[:40], "the next_cursor of the page before")])
