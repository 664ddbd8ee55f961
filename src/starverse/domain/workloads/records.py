"""A job and an allocation as they stand in the database: spec, state, reason and what is known of the run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from starverse.domain.ids import format_job_number
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.reasons import EndCause, NoticeReason
from starverse.domain.workloads.specs import JobSpec
from starverse.domain.workloads.states import OPEN_ALLOCATION_STATES, AllocationState, JobState


@dataclass(frozen=True, slots=True)
class Job:
    """One job or one array task. ``generation`` counts the writes: changes are conditional on it.

    ``reason`` is a ``WaitReason`` while queued, a ``JobEndReason`` once ended. ``not_before`` delays the
    next start (after a failed one); ``resume_allowed`` false: the next run starts from nothing.
    ``checkpoints_id`` is the job whose checkpoints it goes on from: its own, or the one that it resumes.
    ``number`` of an array task is that of its array, ``task_number`` its own (``None``: no array task).
    ``instance_id``: the job is one start of that instance.
    """

    id: str
    number: int
    array_index: int | None
    team_id: str
    account_id: str
    workspace_id: str
    checkpoints_id: str
    spec: JobSpec
    state: JobState
    reason: str
    message: str
    submitted_at: datetime
    generation: int = 0
    attempts: int = 0
    failed_starts: int = 0
    reclaims_without_checkpoint: int = 0
    not_before: datetime | None = None
    cancel_requested_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    resume_allowed: bool = True
    task_number: int | None = None
    instance_id: str | None = None

    @property
    def own_number(self) -> int:
        """The one integer that names this job alone, an array task too (Slurm's ``SLURM_JOB_ID``)."""
        return self.number if self.task_number is None else self.task_number

    @property
    def display_number(self) -> str:
        return format_job_number(self.number, self.array_index)


@dataclass(frozen=True, slots=True)
class Allocation:
    """One run of a job. ``cards`` are card ids by node order; ``fabric`` and ``zone`` name the pool.

    ``closed_at``: its last usage is charged and its hold resolved; ``cleaned_at``: nothing of it is left
    on the node; ``examined_at``: after its end, what it published is verified and what follows from that is
    settled. ``signal_name`` is the newest signal that was asked for, ``signal_count`` says how many were
    (``None``: none), ``signal_to`` whom it goes to (``SignalTo``). ``resume_from`` is the checkpoint
    folder's name, ``""`` for a first run.
    """

    id: str
    job_id: str
    attempt: int
    team_id: str
    account_id: str
    tariff: Tariff
    card_model: str | None
    fabric: str
    zone: str
    state: AllocationState
    placed_at: datetime
    nodes: tuple[str, ...]
    cards: tuple[str, ...]
    cpus: int
    memory_bytes: int
    channel_token: str
    resume_from: str = ""
    cause: EndCause | None = None
    message: str = ""
    generation: int = 0
    submitted_at: datetime | None = None
    ready_at: datetime | None = None
    ended_at: datetime | None = None
    alive_at: datetime | None = None
    closed_at: datetime | None = None
    cleaned_at: datetime | None = None
    examined_at: datetime | None = None
    funded_until: datetime | None = None
    notice_reason: NoticeReason | None = None
    notice_at: datetime | None = None
    notice_deadline: datetime | None = None
    notice_for: str | None = None
    stop_requested_at: datetime | None = None
    exit_code: int | None = None
    exit_signal: int | None = None
    signal_count: int | None = None
    signal_name: str | None = None
    signal_to: str | None = None

    @property
    def open(self) -> bool:
        """Whether it holds its cards."""
        return self.state in OPEN_ALLOCATION_STATES

    @property
    def cards_priced(self) -> int:
        """How many cards its rate counts: without a card (``no_gpu``) one (pricing.md, no_gpu)."""
        return 1 if self.tariff is Tariff.NO_GPU else len(self.cards)
