"""Submitting a batch script: understand it, price it, check it against the world, queue it.

Nothing is half accepted: every fault is named at once and nothing is written unless there is none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from sqlalchemy import Connection

from starverse.app import job_views, secrets, start_estimate
from starverse.app.disks.naming import name_disks
from starverse.app.funding import sources_of
from starverse.app.idempotency import claim, made_before
from starverse.app.identity import Identity
from starverse.app.images.using import choose_for_job, with_image
from starverse.app.lint import lint_result
from starverse.app.platform import Platform
from starverse.app.submission_prices import World, pool_of, price_of, ways_that_fit
from starverse.app.views import PriceView, SubmitRequest, SubmitResult
from starverse.db import datasets, events, folders, jobs, ledger, metering, workspaces
from starverse.db.events import Event
from starverse.domain.errors import FieldFault, Invalid, LimitExceeded, NoCapacity, NotEnoughMoney, NotFound
from starverse.domain.ids import AccountId, TeamId
from starverse.domain.pricing.first_hour import (
    Affordable,
    NotFunded,
    Unfunded,
    Wanted,
    afford,
    candidate_starts,
)
from starverse.domain.pricing.open_hours import window_opening
from starverse.domain.pricing.paying import Sources
from starverse.domain.pricing.rating import HOUR_SECONDS, Terms
from starverse.domain.sbatch import submission as sbatch
from starverse.domain.sbatch.card_models import ModelChoices, resolve_model
from starverse.domain.sbatch.cards import Vocabulary
from starverse.domain.scheduling.fit import impossible, pools_asked
from starverse.domain.workloads.reasons import WaitReason
from starverse.domain.workloads.records import Job
from starverse.domain.workloads.specs import DependencyKind, JobSpec, Network
from starverse.domain.workloads.states import JobState


def submit(platform: Platform, identity: Identity, request: SubmitRequest) -> SubmitResult:
    """Queue the job, or all tasks of the array; with ``lint`` only say what would happen.

    Raises ``Invalid`` with every fault, ``NotEnoughMoney`` with what would fit, ``NoCapacity`` for what no
    node here could ever run. A repeat of a request that was accepted is checked no more: it runs already.
    """
    now, capabilities = platform.clock.now(), platform.engine.capabilities
    with platform.database.read() as connection:
        nodes = platform.nodes.read(connection)
        world = World(
            now,
            nodes,
            platform.nodes.kinds(nodes),
            metering.load_books(connection),
            metering.member_changes(connection, identity.account_id),
            capabilities,
        )
        understood = _understand(platform, world, request)
        made = None if request.lint else made_before(connection, identity.account_id, request.once)
        if made is not None:
            return _repeated(platform, connection, world, understood, made)
        spec, faults = understood.spec, [fault.field_fault() for fault in understood.faults]
        if spec is not None:
            faults += [] if spec.resources.cards else [_without_cards(understood)]
            spec, more = _check(connection, platform, identity, world, spec, request)
            faults += more
        price = price_of(world, spec) if spec is not None and not faults else None
        sources = sources_of(ledger.team_wallet(connection, TeamId(identity.team_id)))
    if request.lint:
        found = lint_result(understood, faults, _notices(platform, understood), price)
        if not request.when or spec is None or price is None:
            return found
        return replace(found, start_estimate=start_estimate.of_new(platform, identity, spec, now))
    if faults or spec is None or price is None:
        raise Invalid(faults=faults)
    of_one_node = spec.resources.nodes == 1 and not spec.resources.nodelist and not spec.resources.exclude
    misfit = impossible(world.kinds if of_one_node else world.nodes, spec.resources)
    if misfit is not None:
        raise NoCapacity(
            f"this cluster can never run it: {misfit.message}",
            hint="see `starverse offers` for what there is",
        )
    _require_money(platform, identity, world, spec, sources)
    return _insert(platform, identity, world, _Accepted(request, understood, spec, price))


def _repeated(
    platform: Platform, connection: Connection, world: World, understood: sbatch.Submission, job_id: str
) -> SubmitResult:
    job = jobs.get(connection, job_id)
    if job is None:
        raise NotFound(f"There is no job {job_id} any more.")
    return SubmitResult(
        job=job_views.with_allocations(platform, connection, [job])[0],
        jobs_count=len(jobs.by_number(connection, job.number, None)),
        notices=_all_notices(platform, understood),
        price=price_of(world, job.spec),
    )


def _understand(platform: Platform, world: World, request: SubmitRequest) -> sbatch.Submission:
    models = tuple(sorted({card.model for node in world.kinds for card in node.cards}))
    zones = tuple(sorted({node.zone for node in world.kinds}))
    asked = sbatch.SubmitRequest(
        script=request.script,
        script_name=request.script_name,
        arguments=request.arguments,
        command_line=request.argv,
        environment=request.environment,
    )
    zone = _zone(request.environment.get("TZ")) or ZoneInfo(platform.settings.timezone)
    return sbatch.build(asked, world.now, zone, Vocabulary(models, zones))


def _without_cards(understood: sbatch.Submission) -> FieldFault:
    """A job without a card is none that is run here."""
    asked = [option for option in understood.options if option.name.startswith(("--gres", "--gpus"))]
    field, value = (f"{asked[-1].name} ({asked[-1].origin})", asked[-1].value) if asked else ("--gres", "")
    return FieldFault(field, value, "at least one card, such as --gres=gpu:rtx4090:1")


def _zone(name: str | None) -> ZoneInfo | None:
    """The caller's zone, in which times without one are read; ``None``: not named, or not known here."""
    try:
        return ZoneInfo(name) if name else None
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _check(
    connection: Connection,
    platform: Platform,
    identity: Identity,
    world: World,
    spec: JobSpec,
    request: SubmitRequest,
) -> tuple[JobSpec, list[FieldFault]]:
    """What only the platform knows: prices, datasets, dependencies, the engine."""
    faults: list[FieldFault] = []
    prices = _list_prices(world, spec)
    if spec.resources.cards and world.kinds:
        resolved = resolve_model(spec, prices)
        if isinstance(resolved, ModelChoices):
            faults.append(_unsold(world, spec) or resolved.fault())
        else:
            spec = resolved
    if spec.defer_until is not None:
        expected = "--begin TIME; starting in the cheapest window comes with the forecast, in a later version"
        faults.append(FieldFault("--defer-until", spec.defer_until.isoformat(), expected))
    windows = world.books.books.at(world.now).windows
    if spec.window is not None and spec.window not in windows:
        faults.append(
            FieldFault("--window", spec.window, f"a window of the price book: {', '.join(windows)}")
        )
    if spec.resources.nodes > 1 and not world.engine.multi_node:
        expected = f"1: the {world.engine.name} engine runs a job on one node"
        faults.append(FieldFault("--nodes", str(spec.resources.nodes), expected))
    if not platform.settings.host_network_allowed:
        faults += _without_host_network(spec)
    if spec.image is not None:
        chosen = choose_for_job(connection, platform, identity.team_id, spec.image)
        if isinstance(chosen, str):
            faults.append(FieldFault("--image", spec.image, chosen))
        else:
            spec = with_image(spec, chosen)
    mounts, wrong = name_disks(connection, identity.team_id, spec.disks, spec.resources.nodes, world.engine)
    faults += wrong
    spec = replace(spec, disks=mounts)
    if not faults and spec.resources.cards and pool_of(world, spec) is None:
        known = ", ".join(world.books.books.at(world.now).models)
        faults.append(
            FieldFault("--gres", spec.resources.card_model or "", f"a card that has a price: {known}")
        )
    if not faults:
        faults += _limit_faults(platform, world, spec)
    faults += _check_names(connection, identity, spec, request)
    return spec, faults


def _check_names(
    connection: Connection, identity: Identity, spec: JobSpec, request: SubmitRequest
) -> list[FieldFault]:
    faults = []
    for name in spec.datasets:
        if datasets.find_verified(connection, name) is None:
            faults.append(FieldFault("--dataset", name, "a verified dataset of `starverse dataset ls`"))
    for name in secrets.missing_names(connection, identity.team_id, spec.secret_names):
        faults.append(FieldFault("--secret", name, "a secret of `starverse secret ls`"))
    for condition in spec.dependencies.conditions:
        if condition.kind is DependencyKind.SINGLETON or condition.job_number is None:
            continue
        found = jobs.by_number(connection, condition.job_number, condition.array_index)
        if not any(job.team_id == identity.team_id for job in found):
            faults.append(
                FieldFault("--dependency", str(condition.job_number), "the number of a job of your team")
            )
    if request.folder_id is not None and not folders.exists(connection, identity.team_id, request.folder_id):
        faults.append(FieldFault("folder_id", request.folder_id, "a folder that was uploaded before"))
    return faults


def _list_prices(world: World, spec: JobSpec) -> Mapping[str, Fraction]:
    """List price by model, over the pools that the job may use; models without a price are left out."""
    book = world.books.books.at(world.now)
    prices: dict[str, Fraction] = {}
    for model, fabric in pools_asked(world.kinds, replace(spec.resources, card_model=None)):
        if book.sells(model, fabric):
            rate = Fraction(book.list_price_of(model, fabric).micro)
            prices[model] = max(rate, prices.get(model, rate))
    return prices


def _without_host_network(spec: JobSpec) -> list[FieldFault]:
    """What an operator who forbids the host's network forbids with it."""
    if spec.network is Network.HOST:
        return [FieldFault("--net", "host", "none: the operator does not allow the host's network")]
    if spec.resources.nodes > 1:
        expected = "1: ranks on several nodes need the host's network, which the operator does not allow"
        return [FieldFault("--nodes", str(spec.resources.nodes), expected)]
    return []


def _unsold(world: World, spec: JobSpec) -> FieldFault | None:
    """Cards such as are asked for are here, but not with its network or in its zone, or without a price."""
    resources = spec.resources
    anywhere = pools_asked(world.kinds, replace(resources, fabric=None, zone=None))
    if not anywhere or not (resources.fabric or resources.zone or resources.card_model):
        return None
    what = resources.card_model or "cards"
    pools = pools_asked(world.kinds, resources)
    if pools:
        book = world.books.books.at(world.now)
        if any(book.sells(*pool) for pool in pools):
            return None
        names = ", ".join("/".join(pool) for pool in sorted(pools))
        typed = f"gpu:{resources.card_model or ''}:{resources.cards_per_node}".replace("::", ":")
        return FieldFault("--gres", typed, f"cards with a price: the price book has none for {names}")
    in_zone = pools_asked(world.kinds, replace(resources, fabric=None))
    if resources.fabric and in_zone:
        fabrics = " or ".join(sorted({fabric for _, fabric in in_zone}))
        return FieldFault("--constraint", resources.fabric, f"{fabrics}, which {what} have here")
    zones = {
        node.zone for node in world.kinds if pools_asked([node], replace(resources, zone=None, fabric=None))
    }
    return FieldFault("--partition", resources.zone or "", f"{' or '.join(sorted(zones))}, which has {what}")


def first_hour(
    platform: Platform, world: World, spec: JobSpec, sources: Sources
) -> Affordable | NotFunded | None:
    """The scheduler's question, asked now, or for when its window opens next; ``None`` without a pool."""
    pool, books = pool_of(world, spec), world.books.books
    if pool is None or not spec.cards_priced:
        return None
    wanted = Wanted(
        Terms(spec.tariff, *pool, members=world.members),
        spec.cards_priced,
        spec.time_limit_seconds,
        window=spec.window,
        cost_left=spec.cost_max,
    )
    within = platform.settings.start_timeout_seconds
    found = afford(wanted, candidate_starts(world.now, within, books), sources, books)
    if spec.window is not None and isinstance(found, NotFunded) and found.why is Unfunded.WINDOW_CLOSED:
        opens = window_opening(books, spec.window, world.now)
        if opens is not None:
            found = afford(wanted, candidate_starts(opens, within, books), sources, books)
    return found


def _limit_faults(platform: Platform, world: World, spec: JobSpec) -> list[FieldFault]:
    """Limits of its own that would keep it waiting for ever, however much money there is."""
    if spec.cost_max is None and spec.window is None:
        return []
    found = first_hour(platform, world, spec, Sources())
    if not isinstance(found, NotFunded):
        return []
    if found.why is Unfunded.COST_MAX and spec.cost_max is not None:
        return [FieldFault("--cost-max", spec.cost_max.decimal(), "enough for its first second at least")]
    if found.why is Unfunded.WINDOW_CLOSED and spec.window is not None:
        return [FieldFault("--window", spec.window, "a window that is open long enough to start in")]
    return []


def _require_money(
    platform: Platform, identity: Identity, world: World, spec: JobSpec, sources: Sources
) -> None:
    """One hour of one task has to be there (pricing.md, Holds)."""
    found = first_hour(platform, world, spec, sources)
    if isinstance(found, NotFunded) and found.why is Unfunded.NO_MONEY:
        ways = ways_that_fit(world, spec, sources)
        fits = f"What would fit: {'; '.join(ways)}. " if ways else ""
        what = "one hour costs" if spec.time_limit_seconds >= HOUR_SECONDS else "its time limit costs"
        raise NotEnoughMoney(
            f"{what} CNY {found.needed.decimal()}, CNY {found.available.decimal()} is free in the "
            f"wallet of team {identity.team_name}",
            hint=f"{fits}Top up with `starverse topup AMOUNT`.",
        )


@dataclass(frozen=True, slots=True)
class _Accepted:
    """A submission that nothing stands against."""

    request: SubmitRequest
    understood: sbatch.Submission
    spec: JobSpec
    price: PriceView


def _insert(platform: Platform, identity: Identity, world: World, accepted: _Accepted) -> SubmitResult:
    request, spec = accepted.request, accepted.spec
    indices: tuple[int | None, ...] = spec.array.indices if spec.array else (None,)
    first_id = platform.ids.uuid7()

    def act(connection: Connection) -> Job | str:
        """The first of the new jobs, or the id of what this very request made before."""
        now = platform.clock.now()
        before = claim(connection, AccountId(identity.account_id), request.once, first_id, now)
        if before is not None:
            return before
        if request.folder_id is not None and not folders.exists(
            connection, identity.team_id, request.folder_id
        ):
            raise Invalid(faults=[FieldFault("folder_id", request.folder_id, "a folder that is still kept")])
        _require_room(platform, connection, identity, len(indices))
        workspace_id = platform.ids.uuid7()
        workspaces.insert_workspace(connection, workspace_id, identity.team_id, request.folder_id, now)
        number = jobs.next_number(connection, "job", many=1 if spec.array is None else 1 + len(indices))
        job_ids = [first_id, *(platform.ids.uuid7() for _ in indices[1:])]
        new = [
            Job(
                id=job_id,
                number=number,
                array_index=index,
                team_id=identity.team_id,
                account_id=identity.account_id,
                workspace_id=workspace_id,
                checkpoints_id=job_id,
                spec=spec,
                state=JobState.QUEUED,
                reason=WaitReason.NEW.value,
                message="waits for the scheduler",
                submitted_at=now,
                task_number=None if index is None else own,
            )
            for own, (job_id, index) in enumerate(zip(job_ids, indices, strict=True), number + 1)
        ]
        jobs.insert_jobs(connection, new)
        text = accepted.price.text
        events.record(
            connection,
            *(Event(now, "job", job.id, "state", "queued", text, job.team_id, job.account_id) for job in new),
        )
        return new[0]

    made = platform.database.write_retrying(act)
    platform.wakeups.wake("schedule")
    if isinstance(made, Job):
        view = job_views.of_new(made, identity, world.members, world.books, made.submitted_at)
    else:
        view = job_views.one(platform, made)
    return SubmitResult(
        job=view,
        jobs_count=len(indices),
        notices=_all_notices(platform, accepted.understood),
        price=accepted.price,
    )


def _require_room(platform: Platform, connection: Connection, identity: Identity, more: int) -> None:
    """Each round looks at every job that waits, so a team has a share of them."""
    waiting, most = jobs.count_queued(connection, identity.team_id), platform.settings.queued_jobs_max
    if waiting + more > most:
        raise LimitExceeded(
            f"{waiting} jobs of team {identity.team_name} wait; with {more} more it is over {most}.",
            hint="Let some start first, cancel some, or ask the operator to raise policy.queued_jobs_max.",
        )


def _notices(platform: Platform, understood: sbatch.Submission) -> tuple[str, ...]:
    """What the script's options call for, and what this server does not isolate where it has no sandbox."""
    gaps = platform.engine.capabilities.cannot if platform.settings.driver == "process" else ()
    told = (f"this server runs jobs without a sandbox; {'; '.join(gaps)}",) if gaps else ()
    return (*(str(notice) for notice in understood.notices), *told)


def _all_notices(platform: Platform, understood: sbatch.Submission) -> tuple[str, ...]:
    return _notices(platform, understood) + tuple(
        f"line {line.line} is ignored: {line.text.strip()} ({line.reason})"
        for line in understood.ignored_lines
    )
