"""One start of an instance as a job, inserted in the caller's transaction."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime

from sqlalchemy import Connection

from starverse.app.platform import Platform
from starverse.db import events, instances, jobs
from starverse.db.events import Event
from starverse.domain.sbatch.patterns import DISCARD
from starverse.domain.scheduling.fit import permanent_reason
from starverse.domain.scheduling.snapshot import Node
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.instances import (
    RUN_SCRIPT,
    RUN_SECONDS_MAX,
    Instance,
    InstanceSpec,
    StartWish,
)
from starverse.domain.workloads.reasons import WaitReason
from starverse.domain.workloads.records import Job
from starverse.domain.workloads.specs import DiskMount, JobSpec, Network, Resources
from starverse.domain.workloads.states import InstanceState, JobState

GIB = 1024**3
MEMORY_BYTES_MIN = 2 * GIB
NODE_SHARE = (7, 8)
"""Of a node that is given away card by card; the rest is for instances without cards."""


def insert_run(
    connection: Connection, platform: Platform, instance: Instance, wish: StartWish, now: datetime
) -> Instance:
    """The instance queued, with the job that will run it."""
    wanted = instances.disks_of(connection, [instance.id])[instance.id]
    kinds = platform.nodes.kinds(platform.nodes.read(connection))
    spec = run_spec(platform, kinds, instance, wish, tuple(disk.mount for disk in wanted))
    job_id = platform.ids.uuid7()
    job = Job(
        id=job_id,
        number=jobs.next_number(connection, "job"),
        array_index=None,
        team_id=instance.team_id,
        account_id=wish.account_id,
        workspace_id=instance.workspace_id,
        checkpoints_id=job_id,
        spec=spec,
        state=JobState.QUEUED,
        reason=WaitReason.NEW.value,
        message="waits for the scheduler",
        submitted_at=now,
        resume_allowed=False,
        instance_id=instance.id,
    )
    jobs.insert_jobs(connection, [job])
    changed = instances.change(
        connection,
        instance,
        state=InstanceState.QUEUED,
        reason="",
        message="",
        run_id=job_id,
        starts=instance.starts + 1,
        stopped_at=None,
        release_at=None,
        release_warned_at=None,
        afterwards=None,
    )
    text = f"start {changed.starts}: {described(spec)}"
    happened = Event(now, "instance", instance.id, "state", "queued", text, instance.team_id, wish.account_id)
    events.record(connection, happened)
    return changed


def run_spec(
    platform: Platform,
    kinds: Collection[Node],
    instance: Instance,
    wish: StartWish,
    disks: tuple[DiskMount, ...],
) -> JobSpec:
    """What is run: the instance's cards on its tariff, or none of them (``no_gpu``)."""
    spec, settings = instance.spec, platform.settings
    tariff = Tariff.NO_GPU if wish.no_gpu else wish.tariff or spec.tariff
    return JobSpec(
        name=instance.name,
        script=RUN_SCRIPT,
        resources=_without_cards(spec, settings.no_gpu_memory_bytes)
        if wish.no_gpu
        else _with_cards(spec, kinds),
        tariff=tariff,
        price_max=spec.price_max if tariff is spec.tariff else None,
        time_limit_seconds=RUN_SECONDS_MAX,
        output=DISCARD,
        datasets=spec.datasets,
        network=Network.INTERNET,
        image=spec.image,
        disks=disks,
        interactive=True,
        priced_card=spec.card if wish.no_gpu else None,
        at_once=not wish.wait,
        secret_names=spec.secrets,
    )


def described(spec: JobSpec) -> str:
    """``2 x rtx4090 on_demand``, ``no card, no_gpu``."""
    asked = spec.resources
    cards = f"{asked.cards} x {asked.card_model}" if asked.cards else "no card"
    return f"{cards}, {spec.tariff.value}"


def _without_cards(spec: InstanceSpec, memory_bytes: int) -> Resources:
    return Resources(memory_bytes_per_node=memory_bytes, fabric=spec.fabric, zone=spec.zone)


def _with_cards(spec: InstanceSpec, kinds: Collection[Node]) -> Resources:
    asked = Resources(
        card_model=spec.card,
        cards_per_node=spec.cards,
        memory_bytes_per_node=spec.memory_bytes,
        fabric=spec.fabric,
        zone=spec.zone,
        driver_min=spec.driver_min,
    )
    bare = replace(asked, memory_bytes_per_node=0)
    able = [node for node in kinds if permanent_reason(node, bare, spec.card) is None]
    cpus = spec.cpus or max(1, min((_share(node, node.cpus, spec.cards) for node in able), default=1))
    memory = spec.memory_bytes
    if memory is None:
        shares = [_share(node, node.memory_bytes, spec.cards) for node in able]
        least = min((node.memory_bytes for node in able), default=MEMORY_BYTES_MIN)
        memory = min(max(MEMORY_BYTES_MIN, min(shares, default=0)), least)
    return replace(asked, cpus_per_task=cpus, memory_bytes_per_node=memory)


def _share(node: Node, whole: int, cards: int) -> int:
    part, of = NODE_SHARE
    return whole * part * cards // (of * max(1, len(node.cards)))
