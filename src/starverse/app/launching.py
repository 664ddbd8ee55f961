"""From a placed allocation to a running launcher: prepare its folders, build the launch spec, submit.

Row and hold exist before the engine is called. Every step may be repeated: unpacking is skipped where it
was done, and the launcher claims its allocation id exclusively.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from starverse.app import auth, checkpoints, folders, funding, secrets
from starverse.app.disks.attachments import wanted_plugs
from starverse.app.endings import End, record_end
from starverse.app.gateway_keys import keep_gateway_keys
from starverse.app.images import image_path, lay_home
from starverse.app.platform import Platform
from starverse.db import allocations, datasets, instances, inventory, jobs, metering
from starverse.db import checkpoints as checkpoint_rows
from starverse.db import folders as folder_rows
from starverse.db.folders import Workspace
from starverse.domain.errors import InvariantBroken, Unavailable
from starverse.domain.ids import AccountId, AllocationId, TeamId
from starverse.domain.recovery.checkpoint_interval import reclaim_rate
from starverse.domain.sbatch.hostlists import fold_hosts
from starverse.domain.sbatch.patterns import PatternContext, workspace_file
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.launch import GrantedCard, LaunchSpec, Limits, Mount, Plug, Template
from starverse.domain.workloads.reasons import EndCause
from starverse.domain.workloads.records import Allocation, Job
from starverse.domain.workloads.shares import rate_of_workload
from starverse.domain.workloads.specs import ArraySpec, JobSpec, Network, OpenMode
from starverse.domain.workloads.states import AllocationState
from starverse.domain.workloads.sub_ids import sub_ids_first

RESTORE_BYTES_PER_SECOND = 20_000_000
RESTORE_SECONDS_MAX = 3600
"""What the checkpoint template puts back before the script is ready takes time; so much is allowed for."""


RECLAIMS_SEEN_DAYS = 7


@dataclass(frozen=True, slots=True)
class _Ground:
    """What the launch spec needs beside the job and the allocation."""

    cards: tuple[GrantedCard, ...]
    workspace: Workspace
    mounts: tuple[Mount, ...]
    held_seconds: int
    ttl_seconds: int = 0
    secrets: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    plugs: tuple[Plug, ...] = ()
    image: str = ""
    places: tuple[tuple[int, int], ...] = ()
    """For each of its nodes, how many cards it has there, and how many the node has."""
    reclaims_per_second: float = 0.0
    """What is expected of its pool, where the checkpoint template saves a run that may be reclaimed."""


def start(platform: Platform, allocation: Allocation) -> bool:
    """Prepare an allocation, mark it as starting and hand it to the engine; a repeat is harmless.

    False when it is not to be started any more. Preparing comes first: until it is done nothing was
    submitted, and the engine is not asked for it.
    """
    with platform.database.read() as connection:
        job = jobs.get(connection, allocation.job_id)
        if job is None:
            raise InvariantBroken(f"allocation {allocation.id} belongs to no job")
        ground = _read_ground(connection, platform, allocation, job)
    prepare_files(platform, job, ground.workspace)
    ground = replace(ground, image=image_path(platform, job.spec.image))
    may_resume = job.resume_allowed and (allocation.attempt > 1 or job.checkpoints_id != job.id)
    resume_from = checkpoints.choose_resume(platform, job.checkpoints_id) if may_resume else ""

    def hand_over(connection: Connection) -> tuple[Allocation, str] | None:
        current = _mark_starting(connection, platform, allocation, resume_from)
        if current is None:
            return None
        owner, team = AccountId(job.account_id), TeamId(job.team_id)
        token = auth.issue_workload_token(platform, connection, owner, team, AllocationId(current.id))
        return current, token

    handed = platform.database.write_retrying(hand_over)
    if handed is None:
        return False
    platform.engine.submit(launch_spec(platform, job, handed[0], ground, handed[1]))
    return True


def _mark_starting(
    connection: Connection, platform: Platform, allocation: Allocation, resume_from: str
) -> Allocation | None:
    current = allocations.get(connection, allocation.id)
    if current is None or current.stop_requested_at is not None:
        return None
    if current.state is AllocationState.PLACED:
        return allocations.change(
            connection,
            current,
            state=AllocationState.STARTING,
            submitted_at=platform.clock.now(),
            resume_from=resume_from,
        )
    if current.state is not AllocationState.STARTING:
        return None
    if current.resume_from == resume_from:
        return current
    return allocations.change(connection, current, resume_from=resume_from)


def start_within_seconds(connection: Connection, platform: Platform, job: Job) -> int:
    """How long after its placement a job may become ready: its money is held for a start within that time.

    Longer where the checkpoint template has something to put back first.
    """
    seconds = platform.settings.start_timeout_seconds
    if job.spec.checkpoint_folder is None or not job.resume_allowed or not job.attempts:
        return seconds
    newest = checkpoint_rows.newest_verified(connection, [job.checkpoints_id]).get(job.checkpoints_id)
    restores = 0 if newest is None else newest.bytes // RESTORE_BYTES_PER_SECOND
    return seconds + min(RESTORE_SECONDS_MAX, restores)


def is_too_late(
    platform: Platform, allocation: Allocation, slack_seconds: float = 0, *, seen_at: datetime | None = None
) -> bool:
    """Whether its time to start is over, counted as its money is held: from the placement.

    ``seen_at``: when its engine was asked, for judging by the answer; ``None`` is now.
    """
    now = platform.clock.now() if seen_at is None else seen_at
    passed = now - allocation.placed_at - timedelta(seconds=slack_seconds)
    if passed < timedelta(seconds=platform.settings.start_timeout_seconds):
        return False
    with platform.database.read() as connection:
        job = jobs.get(connection, allocation.job_id)
        within = 0 if job is None else start_within_seconds(connection, platform, job)
    return passed >= timedelta(seconds=within)


def _read_ground(connection: Connection, platform: Platform, allocation: Allocation, job: Job) -> _Ground:
    by_id = inventory.load_cards(connection, allocation.cards)
    cards = sorted((by_id[card] for card in allocation.cards), key=lambda card: (card.node_id, card.index))
    workspace = folder_rows.get_workspace(connection, job.workspace_id)
    if workspace is None:
        raise InvariantBroken(f"job {job.display_number} has no workspace")
    mounts = []
    for name in job.spec.datasets:
        dataset = datasets.find_verified(connection, name)
        if dataset is None:
            raise Unavailable(f"the dataset {name} is not verified any more")
        mounts.append(Mount(str(platform.paths.dataset(dataset.id)), f"/dataset/{name}"))
    nodes = inventory.load_nodes_named(connection, allocation.nodes)
    held = Counter(card.node_id for card in cards)
    return _Ground(
        places=tuple((held[name], len(node.cards)) for name, node in nodes.items()),
        cards=tuple(GrantedCard(c.id, c.index, c.uuid, c.model, c.declared, c.node_id) for c in cards),
        workspace=workspace,
        mounts=tuple(mounts),
        held_seconds=metering.held_seconds(connection, allocation.id),
        secrets=secrets.values_of(connection, platform, job.team_id, job.spec.secret_names),
        plugs=wanted_plugs(connection, platform, allocation.id),
        ttl_seconds=ttl_left(connection, allocation, job) or 0,
        reclaims_per_second=_expected_reclaims(connection, platform, allocation, job),
    )


def _expected_reclaims(connection: Connection, platform: Platform, allocation: Allocation, job: Job) -> float:
    """Reclaims per second of a run on this pool, by the last days; 0 where none is saved or reclaimed."""
    reclaimable = allocation.tariff in (Tariff.SPOT, Tariff.IDLE) and allocation.card_model is not None
    if job.spec.checkpoint_folder is None or not reclaimable:
        return 0.0
    since = platform.clock.now() - timedelta(days=RECLAIMS_SEEN_DAYS)
    model, fabric = allocation.card_model or "", allocation.fabric
    return reclaim_rate(*allocations.reclaims_seen(connection, model, fabric, since))


def ttl_left(connection: Connection, allocation: Allocation, job: Job) -> int | None:
    """What is left of an instance's time to live from this run's *ready* (from its placement, while it is not
    ready) on, 0: it has none; ``None``: the job is no instance's start."""
    if job.instance_id is None:
        return None
    first = allocations.first_ready(connection, [job.id]).get(job.id)
    counted_from = allocation.ready_at or allocation.placed_at
    return instances.policy_of(connection, job.instance_id).ttl_left(first, counted_from)


def _template(platform: Platform, spec: JobSpec, ground: _Ground) -> Template | None:
    if spec.checkpoint_folder is None:
        return None
    longest = platform.settings.checkpoint_interval_seconds
    return Template(spec.checkpoint_folder, longest, ground.reclaims_per_second)


def launch_spec(
    platform: Platform, job: Job, allocation: Allocation, ground: _Ground, api_token: str
) -> LaunchSpec:
    """Everything the launcher needs. Pure but for the paths, which are made from ids."""
    spec, paths, settings = job.spec, platform.paths, platform.settings
    context = PatternContext(
        job_number=job.own_number,
        job_name=spec.name,
        node=allocation.nodes[0],
        array_number=None if job.array_index is None else job.number,
        array_index=job.array_index,
    )
    signal = spec.signal
    append = spec.open_mode is OpenMode.APPEND or allocation.attempt > 1
    return LaunchSpec(
        allocation_id=allocation.id,
        job_id=job.id,
        job_number=job.display_number,
        own_number=job.own_number,
        team_id=job.team_id,
        account_id=job.account_id,
        attempt=allocation.attempt,
        node=allocation.nodes[0],
        cards=ground.cards,
        script=spec.script,
        arguments=spec.arguments,
        environment=tuple(job_variables(job, allocation).items()),
        folder=str(paths.allocation(allocation.id)),
        workspace=str(paths.workspace(job.workspace_id)),
        checkpoints=str(paths.checkpoints(job.checkpoints_id)),
        logs=str(paths.logs(job.id)),
        output=workspace_file(spec.output, context, spec.chdir) or "",
        error=None if spec.error is None else workspace_file(spec.error, context, spec.chdir) or "",
        open_mode=(OpenMode.APPEND if append else OpenMode.TRUNCATE).value,
        chdir=spec.chdir,
        mounts=ground.mounts,
        limits=_limits(platform, spec, allocation, ground.places),
        resume_from=allocation.resume_from,
        template=_template(platform, spec, ground),
        driver=settings.driver,
        network=network_of(spec).value,
        network_reachable=settings.network_reachable,
        **_of_user(platform, ground.workspace),
        time_limit_seconds=spec.time_limit_seconds,
        funded_seconds=funding.seconds_to_stop(
            ground.held_seconds, spec.time_limit_seconds, settings.kill_after_seconds
        ),
        grace_seconds=settings.grace_seconds,
        signal_name=signal.name if signal else None,
        signal_seconds_before_end=signal.seconds_before_end if signal else 0,
        signal_to_batch_shell=signal.to_batch_shell if signal else False,
        log_cap_bytes=settings.log_cap_bytes,
        channel=platform.channel_addresses(),
        channel_token=allocation.channel_token,
        channel_ca=platform.channel_ca,
        api_socket=platform.api_addresses(),
        api_token=api_token,
        kill_after_seconds=settings.kill_after_seconds,
        nodes=allocation.nodes,
        binds_cards=platform.engine.capabilities.binds_cards,
        fabric=allocation.fabric,
        disk_reserve_bytes=settings.disk_reserve_bytes,
        secrets=ground.secrets,
        **_of_instance(platform, job),
        plugs=ground.plugs,
        image=ground.image,
        ttl_seconds=ground.ttl_seconds,
    )


def _of_user(platform: Platform, workspace: Workspace) -> dict[str, Any]:
    """Whom a platform that runs as root becomes; any other stays who it is, and its launchers look up which
    ids that user has."""
    uid, settings = workspace.unix_uid, platform.settings
    if not settings.drops_to_team_uid:
        return {"unix_uid": None}
    return {"unix_uid": uid, "sub_ids_first": sub_ids_first(uid, settings.unix_uid_first)}


def _limits(
    platform: Platform, spec: JobSpec, allocation: Allocation, places: tuple[tuple[int, int], ...]
) -> Limits:
    """Its part of each node; without cards less than a whole CPU, of which the record counts one."""
    settings = platform.settings
    return Limits(
        cpus=settings.no_gpu_cpus if spec.tariff is Tariff.NO_GPU else float(allocation.cpus),
        memory_bytes=allocation.memory_bytes,
        disk_bytes_per_second=rate_of_workload(
            settings.disk_bytes_per_second, settings.disk_node_bytes_per_second, places
        ),
        network_bytes_per_second=rate_of_workload(
            settings.network_bytes_per_second, settings.network_node_bytes_per_second, places
        ),
    )


def prepare_files(platform: Platform, job: Job, workspace: Workspace) -> None:
    """The job's folder, and of an instance what it has as ``/root``.

    Raises ``Unavailable`` where the files of an instance that ran before are gone: it is not given others.
    """
    if job.instance_id is None:
        folders.unpack_workspace(platform, workspace)
        return
    with platform.database.read() as connection:
        instance = instances.get(connection, job.instance_id)
    home = platform.paths.instance_home(job.instance_id)
    if instance is None or instance.first_ready_at is not None:
        for place, shown in ((platform.paths.workspace(workspace.id), "/workspace"), (home, "/root")):
            if not place.is_dir():
                raise Unavailable(f"the instance's files are gone: {shown}")
        return
    folders.unpack_workspace(platform, workspace)
    owner = workspace.unix_uid if platform.settings.drops_to_team_uid else None
    lay_home(platform, job.spec.image, home, owner)
    folders.make_home(home, workspace.unix_uid)


def _of_instance(platform: Platform, job: Job) -> dict[str, Any]:
    """What a start of an instance has beside what a job has: its home, and SSH by the gateway alone, which
    knows the people."""
    if job.instance_id is None:
        return {}
    return {
        "interactive": True,
        "gateway_keys": (keep_gateway_keys(platform.paths.gateway).client_public,),
        "home": str(platform.paths.instance_home(job.instance_id)),
    }


def network_of(spec: JobSpec) -> Network:
    """Ranks on several nodes reach each other by the host's network, whatever was asked for."""
    return Network.HOST if spec.resources.nodes > 1 else spec.network


def job_variables(job: Job, allocation: Allocation) -> dict[str, str]:
    """The variables that only the platform knows, over those that ``--export`` names."""
    spec, resources = job.spec, job.spec.resources
    variables = dict(spec.environment)
    variables |= {
        "SLURM_JOB_NAME": spec.name,
        "SLURM_JOB_PARTITION": allocation.zone,
        "SLURM_JOB_NODELIST": fold_hosts(allocation.nodes),
        "SLURM_NTASKS": str(resources.tasks),
        "SLURM_NPROCS": str(resources.tasks),
        "SLURM_NTASKS_PER_NODE": str(resources.tasks_per_node),
        "SLURM_CPUS_PER_TASK": str(resources.cpus_per_task),
        "SLURM_CPUS_ON_NODE": str(resources.cpus_per_node),
        "SLURM_GPUS": str(resources.cards),
        "SLURM_GPUS_PER_NODE": str(resources.cards_per_node),
        "SLURM_CLUSTER_NAME": "starverse",
        "STARVERSE_TARIFF": spec.tariff.value,
    }
    if resources.memory_bytes_per_node is not None:  # as in Slurm, only where it was asked for
        variables["SLURM_MEM_PER_NODE"] = str(resources.memory_bytes_per_node // 1024**2)
    if spec.cost_label:
        variables["SLURM_JOB_ACCOUNT"] = spec.cost_label
    if job.array_index is not None and spec.array is not None:
        variables |= array_variables(job.number, job.array_index, spec.array)
    return variables


def array_variables(number: int, index: int, array: ArraySpec) -> dict[str, str]:
    """``SLURM_ARRAY_*`` as the sbatch manual page gives them."""
    step = array.indices[1] - array.indices[0] if len(array.indices) > 1 else 1
    return {
        "SLURM_ARRAY_JOB_ID": str(number),
        "SLURM_ARRAY_TASK_ID": str(index),
        "SLURM_ARRAY_TASK_COUNT": str(len(array.indices)),
        "SLURM_ARRAY_TASK_MIN": str(array.indices[0]),
        "SLURM_ARRAY_TASK_MAX": str(array.indices[-1]),
        "SLURM_ARRAY_TASK_STEP": str(step),
    }


def withdraw(
    platform: Platform, allocation: Allocation, cause: EndCause, message: str, now: datetime
) -> None:
    """End an allocation that was placed and never handed to the engine."""
    record_end(platform, allocation.id, End(AllocationState.ENDED, cause, message, ended_at=now))


def fail(platform: Platform, allocation: Allocation, message: str) -> None:
    """End an allocation whose start failed before the engine had it; its hold is given back."""
    now = platform.clock.now()
    with platform.database.read() as connection:
        current = allocations.get(connection, allocation.id)
    if current is None or not current.open:
        return
    started = current.state is AllocationState.STARTING
    state = AllocationState.FAILED_TO_START if started else AllocationState.ENDED
    record_end(platform, allocation.id, End(state, EndCause.START_FAILED, message, ended_at=now))
