"""Whether a start can be had: cards with a price, money for an hour, free cards, disks, files that are there.

Asked before anything is written, so that a refusal changes nothing. Placement asks the same again on the rows
of its moment.
"""

from __future__ import annotations

from sqlalchemy import Connection

from starverse.app import secrets
from starverse.app.apply_decision import allocation_shares
from starverse.app.disks import attachments
from starverse.app.disks.finding import require_served
from starverse.app.funding import sources_of
from starverse.app.images import choose_image
from starverse.app.instances.runs import run_spec
from starverse.app.platform import Platform
from starverse.app.submission import first_hour
from starverse.app.submission_prices import World, pool_of, ways_that_fit
from starverse.db import allocations, datasets, disks, ledger, metering, syncs
from starverse.domain.catalog.disks import AttachFacts, attach_refusal
from starverse.domain.errors import Conflict, FieldFault, NoCapacity, NotEnoughMoney
from starverse.domain.ids import TeamId
from starverse.domain.pricing.first_hour import NotFunded, Unfunded
from starverse.domain.scheduling.fit import Fit, fits, free_of, impossible
from starverse.domain.scheduling.snapshot import RECLAIMABLE_CLAIMS, claim_of
from starverse.domain.workloads.instances import Instance, StartWish
from starverse.domain.workloads.specs import DiskMount, JobSpec
from starverse.engines.base import Capabilities


def read_world(platform: Platform, connection: Connection, account_id: str) -> World:
    """What prices and places depend on now."""
    nodes = platform.nodes.read(connection)
    return World(
        platform.clock.now(),
        nodes,
        platform.nodes.kinds(nodes),
        metering.load_books(connection),
        metering.member_changes(connection, account_id),
        platform.engine.capabilities,
    )


def require_start(
    connection: Connection,
    platform: Platform,
    instance: Instance,
    wish: StartWish,
    mounts: tuple[DiskMount, ...],
    without_run: str | None = None,
) -> JobSpec:
    """What would be run; raises what stands against it.

    ``without_run``: a job of its own that would be over by then, whose cards count as free.
    """
    world = read_world(platform, connection, wish.account_id)
    spec = run_spec(platform, world.kinds, instance, wish, mounts)
    _require_names(connection, platform, instance)
    require_disks(connection, world.engine, instance, mounts)
    if world.nodes:
        _require_pool(world, spec, wait=wish.wait)
    _require_money(connection, platform, world, spec, instance.team_id)
    if not wish.wait and not is_room(connection, world, spec, without_run):
        what = f"{spec.resources.cards} x {instance.spec.card}" if spec.resources.cards else "room for it"
        raise NoCapacity(
            f"no node has {what} free now",
            hint="see `starverse offers`, or queue for them with `--wait`",
        )
    return spec


def is_room(connection: Connection, world: World, spec: JobSpec, without_run: str | None) -> bool:
    """Whether some node could take it now, or as soon as lower claims gave their cards back."""
    node_of = {card.id: node.id for node in world.nodes for card in node.cards}
    mine = claim_of(spec.tariff)
    standing = [
        allocation
        for allocation in allocations.open_ones(connection)
        if allocation.job_id != without_run
        and not (claim_of(allocation.tariff) in RECLAIMABLE_CLAIMS and claim_of(allocation.tariff) < mine)
    ]
    shares = [share for allocation in standing for share in allocation_shares(allocation, node_of)]
    return any(isinstance(fits(node, spec.resources, free_of(node, shares)), Fit) for node in world.nodes)


def require_disks(
    connection: Connection, engine: Capabilities, instance: Instance, mounts: tuple[DiskMount, ...]
) -> None:
    """Every disk is there and nobody else writes it; raises ``Conflict`` naming the first that is not so."""
    found = disks.get_many(connection, [mount.disk_id for mount in mounts])
    for mount in mounts:
        disk = found.get(mount.disk_id)
        if disk is None or disk.team_id != instance.team_id:
            raise Conflict(f"the disk at {mount.target} is gone")
        require_served(engine, disk.kind)
        taken_by = attachments.taken_by(connection, disk, but_for=instance.id)
        syncing = syncs.runs_on(connection, disk.id)
        facts = AttachFacts(disk.kind, disk.state, taken_by=taken_by, syncing=syncing)
        why = attach_refusal(facts)
        if why is not None:
            raise Conflict(f"disk {disk.name}: {why}", hint="see `starverse disk ls`")


def _require_names(connection: Connection, platform: Platform, instance: Instance) -> None:
    spec = instance.spec
    for name in spec.datasets:
        if datasets.find_verified(connection, name) is None:
            raise Conflict(f"the dataset {name} is not there any more", hint="see `starverse dataset ls`")
    image = spec.image and choose_image(connection, platform, instance.team_id, spec.image)
    if isinstance(image, str):
        raise Conflict(f"the image {spec.image_name} is not there any more", hint="see `starverse image ls`")
    for name in secrets.missing_names(connection, instance.team_id, spec.secrets):
        raise Conflict(f"the secret {name} is not there any more", hint="set it: `starverse secret set`")


def _require_pool(world: World, spec: JobSpec, *, wait: bool) -> None:
    """Cards that are not here, or have no price, can never be had."""
    if pool_of(world, spec) is None:
        models = ", ".join(world.books.books.at(world.now).models)
        asked = spec.priced_resources.card_model or ""
        raise NoCapacity(f"{asked[:80]} has no price here", hint=f"there are {models}")
    misfit = impossible(world.nodes, spec.resources)
    if misfit is not None:
        raise NoCapacity(
            f"it can never run here: {misfit.message}", hint="see `starverse offers` for what there is"
        )


def _require_money(
    connection: Connection, platform: Platform, world: World, spec: JobSpec, team_id: str
) -> None:
    sources = sources_of(ledger.team_wallet(connection, TeamId(team_id)))
    found = first_hour(platform, world, spec, sources)
    if isinstance(found, NotFunded) and found.why is Unfunded.NO_MONEY:
        ways = [way for way in ways_that_fit(world, spec, sources) if not way.startswith("--window")]
        fits_ = f"What would fit: {'; '.join(ways)}. " if ways else ""
        raise NotEnoughMoney(
            f"one hour costs CNY {found.needed.decimal()}, CNY {found.available.decimal()} is free",
            hint=f"{fits_}Top up with `starverse topup AMOUNT`.",
        )


def card_faults(world: World, card: str, cards: int) -> list[FieldFault]:
    """What is wrong with a card model and a count, by field."""
    faults = []
    models = sorted({one.model for node in world.kinds for one in node.cards})
    if models and card not in models:
        faults.append(FieldFault("card", card[:80], f"one of {', '.join(models)}"))
    most = max((sum(one.model == card for one in node.cards) for node in world.kinds), default=0)
    if card in models and cards > most:
        faults.append(FieldFault("cards", str(cards), f"at most {most}: an instance is on one node"))
    return faults
