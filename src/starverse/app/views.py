"""What the use cases take and answer about jobs: frozen, free of rows and of JSON.

``http/`` turns them into the REST shapes; ``app/jobs.py`` fills them. Times are aware UTC, money is
:class:`~starverse.domain.money.Money`; ``None`` means "not yet" or "does not apply".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, TypeVar

from starverse.app.idempotency import Once
from starverse.domain.money import Money
from starverse.domain.tariff import Tariff
from starverse.domain.workloads.reasons import EndCause
from starverse.domain.workloads.states import AllocationState, JobState

T = TypeVar("T")

PAGE_ITEMS_DEFAULT = 100
PAGE_ITEMS_MAX = 1000


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list. ``next_cursor`` ``None``: this is the last part; else an opaque text to ask on with."""

    items: tuple[T, ...]
    next_cursor: str | None = None


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """A batch script as it was handed over.

    ``argv`` holds the option words of the command line as typed, without the script's name; they win over
    ``#SBATCH`` lines. ``arguments`` are the script's own. ``environment`` holds ``SBATCH_*`` input
    variables and the variables that ``--export`` names. ``folder_id`` (``sha256:<hex>``) names an uploaded
    folder of the team; ``None`` starts with an empty workspace. ``submit_dir`` is where the caller stood,
    for display only. ``lint``: tell what would happen and its price, change nothing. ``once``: the
    caller's idempotency key; ``idempotency.claim`` it in the transaction that inserts the job. ``when``: a
    lint also tells about when the job would start.
    """

    script: str
    script_name: str = "script.sh"
    arguments: tuple[str, ...] = ()
    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    folder_id: str | None = None
    submit_dir: str = ""
    lint: bool = False
    when: bool = False
    once: Once | None = None


@dataclass(frozen=True, slots=True)
class StartEstimate:
    """About when a job will start."""

    earliest_at: datetime
    expected_at: datetime
    latest_at: datetime


@dataclass(frozen=True, slots=True)
class EffectiveOption:
    """An option as it will be used; ``origin``: a line, the command line, a variable, or the default."""

    name: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True)
class OptionRemark:
    """A line or option that is not used (ignored) or not accepted (refused), and why. ``line`` ``None``:
    it stood in no line of the script (command line, environment)."""

    line: int | None
    text: str
    reason: str


@dataclass(frozen=True, slots=True)
class PriceView:
    """What a job costs now. ``hour`` is one hour of one task at the present rate; ``time_limit_cost`` one
    task from now to its time limit. ``text`` says it to people; ``cheaper`` names what would cost less."""

    tariff: Tariff
    hour: Money
    time_limit_cost: Money
    text: str
    cheaper: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """A job's newest published checkpoint."""

    step: int
    attempt: int
    published_at: datetime


@dataclass(frozen=True, slots=True)
class CardView:
    """A card of an allocation, or the card count of a node; ``declared`` cards are not really there."""

    id: str
    node: str
    index: int
    model: str
    uuid: str
    declared: bool


@dataclass(frozen=True, slots=True)
class NoticeView:
    """An announced stop."""

    reason: str
    deadline: datetime


@dataclass(frozen=True, slots=True)
class AllocationView:
    """One run of a job (``ALLOCATION`` of the API)."""

    id: str
    attempt: int
    state: AllocationState
    cause: EndCause | None
    message: str
    tariff: Tariff
    nodes: tuple[str, ...]
    cards: tuple[CardView, ...]
    placed_at: datetime
    ready_at: datetime | None
    ended_at: datetime | None
    notice: NoticeView | None
    exit_code: int | None
    exit_signal: int | None
    resume_from: str
    charged: Money
    lost_work_seconds: int


@dataclass(frozen=True, slots=True)
class JobView:
    """A job, or one task of an array (``JOB`` of the API).

    ``number`` is what people type: ``123`` or ``123_4``; ``array_number`` the array's own number where it
    is a task. ``attempts`` counts runs so far, ``restart_count`` those after the first. ``cost_so_far``
    is what was charged and what a run that is open would be charged now, ``lost_work_seconds`` what was
    run after the newest verified checkpoint at each kill. ``progress`` is the last progress line of the
    log. ``allocations`` is filled by ``get`` only; ``tasks`` (state -> count) is for the whole of an
    array only. ``cpus`` and ``memory_bytes`` are over all its nodes, ``tasks_count`` its ranks
    (``--ntasks``).
    """

    id: str
    number: str
    name: str
    team: str
    account: str
    state: JobState
    reason: str
    message: str
    tariff: Tariff
    card: str | None
    cards: int
    nodes: int
    tasks_count: int
    cpus: int
    memory_bytes: int
    fabric: str | None
    time_limit_seconds: int
    submitted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    exit_code: int | None
    exit_signal: int | None
    attempts: int
    restart_count: int
    node_list: str
    cost_label: str | None
    comment: str | None
    partition: str | None
    submit_dir: str
    array_index: int | None
    array_number: int | None
    own_number: int
    dependency_text: str
    begin_at: datetime | None
    cost_so_far: Money
    lost_work_seconds: int
    checkpoint: CheckpointView | None
    progress: str | None
    cards_declared: bool
    price_hour: Money | None
    resume_price_hour: Money | None
    workspace_id: str
    team_id: str
    allocations: tuple[AllocationView, ...] = ()
    tasks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SubmitResult:
    """What a submission, or a lint, came to.

    A submission has ``job`` (of an array: its first task) and ``jobs_count``; a lint has neither, and lists
    what is effective, ignored and refused. ``price`` is ``None`` where there is none: for a
    lint with refusals that make it impossible, for a repeat once no card of the job is sold any more.
    """

    job: JobView | None
    jobs_count: int
    notices: tuple[str, ...]
    price: PriceView | None
    effective: tuple[EffectiveOption, ...] = ()
    ignored: tuple[OptionRemark, ...] = ()
    refused: tuple[OptionRemark, ...] = ()
    start_estimate: StartEstimate | None = None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list, newest first. Empty ``states``: all. ``all_teams``: of every team the caller is in
    (an operator: every team there is). ``label`` is a cost label, ``array`` an array's number; ``since`` and
    ``until``: jobs that existed in [since, until). ``limit`` is between 1 and 1000."""

    states: tuple[JobState, ...] = ()
    name: str | None = None
    label: str | None = None
    array: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    all_teams: bool = False
    limit: int = PAGE_ITEMS_DEFAULT
    cursor: str | None = None


@dataclass(frozen=True, slots=True)
class ReconcilerStatus:
    """How a reconciler fares, for operators. ``failures`` counts those in a row; ``message`` is the last
    error, or what the last activation did; ``away`` what did not answer it (``engine``, ``database``);
    ``server`` the URL of the server that runs it, ``""`` where there is one only."""

    name: str
    healthy: bool
    activations: int
    failures: int
    last_at: datetime | None
    last_seconds: float | None
    message: str = ""
    away: str = ""
    server: str = ""
