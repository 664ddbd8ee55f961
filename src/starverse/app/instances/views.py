"""Instances as people see them: what is wanted, what is, and when it stops or is released by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection

from starverse.app.identity import Identity
from starverse.app.instances.finding import find
from starverse.app.platform import Platform
from starverse.app.running_costs import uncharged
from starverse.app.views import Page
from starverse.db import (
    accounts,
    allocations,
    attachments,
    disks,
    instances,
    inventory,
    jobs,
    metering,
    teams,
)
from starverse.db.attachments import Attachment
from starverse.db.instances import IdleClock, WantedDisk
from starverse.domain.errors import FieldFault, Invalid, NotFound
from starverse.domain.money import ZERO, Money
from starverse.domain.pricing.first_hour import cost_of, dearest_pool
from starverse.domain.pricing.price_book import PriceBooks
from starverse.domain.pricing.rating import MemberChange, Terms
from starverse.domain.scheduling.fit import pools_asked
from starverse.domain.scheduling.snapshot import Node
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.idleness import Evidence, Idleness, Verdict, judge
from starverse.domain.workloads.instances import IdleStop, Instance, Policy
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.specs import Resources
from starverse.domain.workloads.states import InstanceState


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
        run = _open_runs(connection, [found]).get(found.id)
        return () if run is None else instances.evidence_of(connection, [run.id])[run.id]


@dataclass(frozen=True, slots=True)
class _Around:
    """What stands around a batch of instances, by instance id unless said otherwise."""

    policies: dict[str, Policy]
    clocks: dict[str, IdleClock]
    wanted: dict[str, tuple[WantedDisk, ...]]
    jobs: dict[str, Job]
    """The present or last start, by job id."""
    runs: dict[str, Allocation]
    first_ready: dict[str, datetime]
    """When the start was ready first, by job id."""
    attached: dict[str, tuple[Attachment, ...]]
    disk_names: dict[str, tuple[str, str]]
    """Disk id -> its name and kind."""
    evidence: dict[str, tuple[Evidence, ...]]
    """By allocation id."""
    charged: dict[str, Money]
    meters: dict[str, metering.Meter]
    """By allocation id."""
    members: dict[str, tuple[MemberChange, ...]]
    """By account id."""
    declared: set[str]
    """Cards that are not really there."""
    emails: dict[str, str]
    team_names: dict[str, str]
    books: PriceBooks
    kinds: Sequence[Node]
    now: datetime


def _views(platform: Platform, connection: Connection, found: Sequence[Instance]) -> list[InstanceView]:
    around = _read_around(platform, connection, found)
    return [_view(platform, instance, around) for instance in found]


def _read_around(platform: Platform, connection: Connection, found: Sequence[Instance]) -> _Around:
    ids = [instance.id for instance in found]
    present = jobs.get_many(connection, {i.run_id for i in found if i.run_id is not None})
    runs = _open_runs(connection, found)
    run_ids = [run.id for run in runs.values()]
    people = {i.account_id for i in found} | {job.account_id for job in present.values()}
    attached = attachments.open_of_allocations(connection, run_ids)
    named = disks.get_many(connection, {a.disk_id for own in attached.values() for a in own})
    cards = inventory.load_cards(connection, {card for run in runs.values() for card in run.cards})
    return _Around(
        policies=instances.policies_of(connection, ids),
        clocks=instances.idle_clocks(connection, ids),
        wanted=instances.disks_of(connection, ids),
        jobs=present,
        runs=runs,
        first_ready=allocations.first_ready(connection, list(present)),
        attached={key: attached.get(run.id, ()) for key, run in runs.items()},
        disk_names={disk.id: (disk.name, disk.kind.value) for disk in named.values()},
        evidence=instances.evidence_of(connection, run_ids),
        charged=instances.charged_of(connection, ids),
        meters=metering.load_meters(connection, run_ids),
        members={account_id: metering.member_changes(connection, account_id) for account_id in people},
        declared={card.id for card in cards.values() if card.declared},
        emails=accounts.emails_of(connection, {instance.account_id for instance in found}),
        team_names=teams.names_of(connection, {instance.team_id for instance in found}),
        books=metering.load_books(connection).books,
        kinds=platform.nodes.kinds(platform.nodes.read(connection)),
        now=platform.clock.now(),
    )


def _open_runs(connection: Connection, found: Sequence[Instance]) -> dict[str, Allocation]:
    """Instance id -> the allocation that its present start holds."""
    starts = {i.run_id: i.id for i in found if i.run_id is not None}
    of_jobs = allocations.of_jobs(connection, list(starts))
    return {starts[job_id]: run for job_id, own in of_jobs.items() for run in own if run.open}


def _view(platform: Platform, instance: Instance, around: _Around) -> InstanceView:
    spec, policy, run = instance.spec, around.policies[instance.id], around.runs.get(instance.id)
    job = around.jobs.get(instance.run_id or "")
    standing = job if instance.state in (InstanceState.QUEUED, InstanceState.RUNNING) else None
    waits = standing if instance.state is InstanceState.QUEUED and not instance.reason else None
    ready_at = run.ready_at if run is not None else None
    return InstanceView(
        id=instance.id,
        number=instance.number,
        name=instance.name,
        team=around.team_names.get(instance.team_id, ""),
        account=around.emails.get(instance.account_id, ""),
        state=instance.state,
        reason=instance.reason if waits is None else waits.reason,
        message=instance.message if waits is None else waits.message,
        image=spec.image_name or None,
        card=spec.card,
        cards=spec.cards,
        fabric=spec.fabric or (run.fabric if run else None),
        zone=spec.zone or (run.zone if run else None),
        tariff=spec.tariff if standing is None else standing.spec.tariff,
        no_gpu=standing is not None and standing.spec.tariff is Tariff.NO_GPU,
        node=run.nodes[0] if run is not None else None,
        price_hour=_price(instance, standing, run, around),
        cost_so_far=_cost_so_far(instance, run, around),
        cards_declared=run is not None and not around.declared.isdisjoint(run.cards),
        disks=_disks(instance, around),
        datasets=spec.datasets,
        secrets=spec.secrets,
        policy=policy_view(policy),
        idle=_idle(platform, instance, around),
        created_at=instance.created_at,
        started_at=None if standing is None else standing.submitted_at,
        ready_at=ready_at,
        stops_at=policy.stops_at(around.first_ready.get(standing.id)) if standing else None,
        stopped_at=instance.stopped_at,
        release_at=instance.release_at,
        ssh=_ssh(platform, instance),
    )


def _cost_so_far(instance: Instance, run: Allocation | None, around: _Around) -> Money:
    """Charges of all its starts, and what its open run would be charged now."""
    charged = around.charged.get(instance.id, ZERO)
    if run is None:
        return charged
    open_ = uncharged(run, around.meters.get(run.id), around.members, around.books, around.now)
    return charged if open_ is None else charged + open_.amount


def policy_view(policy: Policy) -> PolicyView:
    after = policy.idle_stop is IdleStop.AFTER
    idle: str | int = (policy.idle_seconds or 0) if after else policy.idle_stop.value
    return PolicyView(idle, policy.ttl_seconds, policy.restart.value)


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


def _idle(platform: Platform, instance: Instance, around: _Around) -> IdleView | None:
    run = around.runs.get(instance.id)
    evidence = around.evidence.get(run.id, ()) if run is not None else ()
    clock = around.clocks.get(instance.id)
    found = idleness(platform, around.policies[instance.id], clock, run, evidence, around.now)
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


def _price(instance: Instance, standing: Job | None, run: Allocation | None, around: _Around) -> Money | None:
    """An hour of its present start where it is, or of the next one at the dearest pool it may land in."""
    if instance.state is InstanceState.RELEASED:
        return None
    spec = instance.spec
    asked = Resources(card_model=spec.card, cards_per_node=spec.cards, fabric=spec.fabric, zone=spec.zone)
    tariff, cards, account_id = spec.tariff, spec.cards, instance.account_id
    if standing is not None:
        tariff, cards, account_id = standing.spec.tariff, standing.spec.cards_priced, standing.account_id
    pool = dearest_pool(pools_asked(around.kinds, asked), around.books.at(around.now))
    if run is not None and run.card_model is not None:
        pool = (run.card_model, run.fabric)
    if pool is None:
        return None
    try:
        terms = Terms(tariff, *pool, members=around.members[account_id])
        return cost_of(terms, cards, around.now, around.books)
    except Invalid:
        return None


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
