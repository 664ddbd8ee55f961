"""Shapes of jobs, their runs, logs and files."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from starverse.app.folders import FolderLimits
from starverse.app.views import JobView, SubmitRequest, SubmitResult
from starverse.domain.sbatch.scripts import SCRIPT_BYTES_MAX
from starverse.http.shapes import In, InstantText, Out

Word = Annotated[str, Field(max_length=100_000)]


class SubmitIn(In):
    """A batch script as it was handed over.

    ``argv`` holds the option words of the command line without the script's name, ``arguments`` the script's
    own; ``environment`` the ``SBATCH_*`` variables, those that ``--export`` names, and ``TZ``, the zone that
    times without one are read in (default: the server's). With ``lint`` nothing is created; with ``when`` it
    tells about when the job would start, too.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "script": "#!/bin/bash\n#SBATCH --gres=gpu:rtx4090:2\npython train.py\n",
                    "script_name": "train.sh",
                    "argv": ["--tariff", "spot"],
                }
            ]
        }
    )

    script: Annotated[str, Field(max_length=SCRIPT_BYTES_MAX)]
    script_name: Annotated[str, Field(max_length=1024)] = "script.sh"
    argv: Annotated[list[Word], Field(max_length=1000)] = Field(default_factory=list)
    arguments: Annotated[list[Word], Field(max_length=10_000)] = Field(default_factory=list)
    environment: Annotated[dict[str, Word], Field(max_length=1000)] = Field(default_factory=dict)
    folder_id: Annotated[str | None, Field(max_length=100)] = None
    submit_dir: Annotated[str, Field(max_length=10_000)] = ""
    lint: bool = False
    when: bool = False

    def request(self) -> SubmitRequest:
        """The same for the use case, without its idempotency key."""
        return SubmitRequest(
            script=self.script,
            script_name=self.script_name,
            arguments=tuple(self.arguments),
            argv=tuple(self.argv),
            environment=dict(self.environment),
            folder_id=self.folder_id,
            submit_dir=self.submit_dir,
            lint=self.lint,
            when=self.when,
        )


class CancelIn(In):
    """Nothing to end the job; or a ``signal`` to send instead, ``to`` all processes but the batch shell
    (``steps``), to the batch shell alone, or to all."""

    signal: Annotated[str | None, Field(max_length=20)] = None
    to: Literal["steps", "batch", "all"] = "steps"


class CheckpointOut(Out):
    """The newest verified checkpoint."""

    step: int
    attempt: int
    published_at: InstantText


class CardOut(Out):
    """A card of a run; ``declared``: it is not really there."""

    id: str
    node: str
    index: int
    model: str
    uuid: str
    declared: bool


class NoticeOut(Out):
    """An announced stop."""

    reason: str
    deadline: InstantText


class AllocationOut(Out):
    """One run of a job."""

    id: str
    attempt: int
    state: str
    cause: str | None
    message: str
    tariff: str
    nodes: list[str]
    cards: list[CardOut]
    placed_at: InstantText
    ready_at: InstantText | None
    ended_at: InstantText | None
    notice: NoticeOut | None
    exit_code: int | None
    exit_signal: int | None
    resume_from: str
    charged_micro: int
    charged: str
    lost_work_seconds: int


class HourPriceOut(Out):
    """One hour from now on, or from when the job may start at the earliest."""

    hour_micro: int
    hour: str


class JobOut(Out):
    """A job, or one task of an array. ``reason`` is typed, ``message`` for people; ``allocations`` are in the
    answer for one job only, ``tasks`` (state -> count) for the number of an array only."""

    id: str
    number: str
    name: str
    team: str
    account: str
    state: str
    reason: str
    message: str
    tariff: str
    card: str | None
    cards: int
    nodes: int
    tasks_count: int
    cpus: int
    memory_bytes: int
    fabric: str | None
    time_limit_seconds: int
    submitted_at: InstantText
    started_at: InstantText | None
    ended_at: InstantText | None
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
    begin_at: InstantText | None
    cost_so_far_micro: int
    cost_so_far: str
    lost_work_seconds: int
    checkpoint: CheckpointOut | None
    progress: str | None
    cards_declared: bool
    price: HourPriceOut | None
    resume_price: HourPriceOut | None
    allocations: list[AllocationOut] = Field(default_factory=list)
    tasks: dict[str, int] = Field(default_factory=dict)

    @classmethod
    def made(cls, view: JobView) -> JobOut:
        prices = {"price": view.price_hour, "resume_price": view.resume_price_hour}
        return cls.of(
            view,
            **{
                name: None if hour is None else {"hour_micro": hour.micro, "hour": hour.decimal()}
                for name, hour in prices.items()
            },
        )


class PriceOut(Out):
    """What a job costs now; ``time_limit_cost`` is one task from now to its time limit."""

    tariff: str
    hour_micro: int
    hour: str
    time_limit_cost_micro: int
    time_limit_cost: str
    text: str
    cheaper: list[str]


class EffectiveOut(Out):
    """An option as it is used, and where it comes from."""

    name: str
    value: str
    origin: str


class RemarkOut(Out):
    """What is ignored or refused; ``line`` null: it stood in no line of the script."""

    line: int | None
    text: str
    reason: str


class SubmittedOut(Out):
    """A submission: of an array ``job`` is its first task."""

    job: JobOut
    jobs_count: int
    notices: list[str]
    price: PriceOut | None

    @classmethod
    def made(cls, result: SubmitResult, job: JobView) -> SubmittedOut:
        return cls(
            job=JobOut.made(job),
            jobs_count=result.jobs_count,
            notices=list(result.notices),
            price=None if result.price is None else PriceOut.of(result.price),
        )


class StartEstimateOut(Out):
    """When a job will start, by the queue played forward on run times of the past; an estimate."""

    earliest_at: InstantText
    expected_at: InstantText
    latest_at: InstantText


class LintOut(Out):
    """What a submission would do; nothing was created. ``price`` null: it would be refused."""

    effective: list[EffectiveOut]
    ignored: list[RemarkOut]
    refused: list[RemarkOut]
    notices: list[str]
    price: PriceOut | None
    start_estimate: StartEstimateOut | None


class WhyOut(Out):
    """Why a job waits, and what would help. ``earliest_start_at`` is promised, ``start_estimate`` is not."""

    job: str
    state: str
    reason: str
    message: str
    facts: list[Any]
    what_helps: list[str]
    earliest_start_at: InstantText | None
    start_estimate: StartEstimateOut | None


class GapOut(Out):
    """Bytes that the cap of the log removed: ``[start, end)``."""

    start: int
    end: int


class LogOut(Out):
    """A part of a log; ``ended``: nothing will follow in this attempt, and all of it was read."""

    attempt: int
    attempts: int
    stream: str
    offset: int
    next_offset: int
    text: str
    gap: GapOut | None
    ended: bool


class FileOut(Out):
    """``kind`` is file, folder, link or other; ``path`` is relative to the job's folder."""

    path: str
    kind: str
    bytes: int
    modified_at: InstantText


class LimitsOut(Out):
    """What is taken in at most; ``folder_bytes_max`` counts a folder's files as they are before packing, and
    holds for a single file too."""

    folder_bytes_max: int
    folder_entries_max: int
    folder_levels_max: int
    path_bytes_max: int
    script_bytes_max: int

    @classmethod
    def showing(cls, limits: FolderLimits) -> LimitsOut:
        return cls(
            folder_bytes_max=limits.bytes_max,
            folder_entries_max=limits.entries_max,
            folder_levels_max=limits.levels_max,
            path_bytes_max=limits.path_bytes_max,
            script_bytes_max=SCRIPT_BYTES_MAX,
        )


class FolderOut(Out):
    """A packed folder; ``existed``: this very content was there before."""

    id: str
    bytes: int
    existed: bool
