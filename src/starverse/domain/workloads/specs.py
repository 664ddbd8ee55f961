"""What a team asks to run: the immutable specification of a job, after every option was understood.

``domain/sbatch`` makes one from a script and its options; ``app/jobs.py`` checks it against the world
(prices, datasets, money); the scheduler reads :class:`Resources` from it; ``app/launching.py`` turns it
into a :class:`~starverse.domain.workloads.launch.LaunchSpec`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from starverse.domain.money import Money
from starverse.domain.tariff import Tariff

TIME_LIMIT_SECONDS_DEFAULT = 24 * 3600
"""Every job has a limit (architecture.md, Scheduling)."""

MEMORY_BYTES_PER_CPU_DEFAULT = 2 * 1024**3


@dataclass(frozen=True, slots=True)
class Resources:
    """Cards and their surroundings, for one gang of nodes.

    ``card_model`` ``None`` with ``cards_per_node`` 0 asks for no cards; ``None`` with cards lets the
    platform resolve the model where all models cost the same. ``fabric``, ``zone`` ``None``: any.
    ``memory_bytes_per_node`` ``None``: the default share per CPU. ``nodelist`` names nodes that must all
    be used; ``exclude`` names nodes that must not. ``driver_min`` is the lowest NVIDIA driver that the job's
    image runs on, ``""``: any.
    """

    card_model: str | None = None
    cards_per_node: int = 0
    nodes: int = 1
    tasks: int = 1
    tasks_per_node: int = 1
    cpus_per_task: int = 1
    memory_bytes_per_node: int | None = None
    fabric: str | None = None
    zone: str | None = None
    exclude: tuple[str, ...] = ()
    nodelist: tuple[str, ...] = ()
    driver_min: str = ""

    @property
    def cards(self) -> int:
        """All cards of the gang."""
        return self.cards_per_node * self.nodes

    @property
    def cpus_per_node(self) -> int:
        return max(1, self.tasks_per_node * self.cpus_per_task)

    @property
    def memory_bytes(self) -> int:
        """Memory per node, the default filled in."""
        if self.memory_bytes_per_node is not None:
            return self.memory_bytes_per_node
        return self.cpus_per_node * MEMORY_BYTES_PER_CPU_DEFAULT


class DependencyKind(StrEnum):
    """Slurm's ``--dependency`` types that are supported (sbatch manual page)."""

    AFTER = "after"
    AFTEROK = "afterok"
    AFTERNOTOK = "afternotok"
    AFTERANY = "afterany"
    SINGLETON = "singleton"


@dataclass(frozen=True, slots=True)
class Dependency:
    """One condition; ``job_number`` is ``None`` for ``singleton`` only; ``array_index`` ``None``: all tasks.

    ``delay_minutes`` belongs to ``after:JOB+MINUTES``.
    """

    kind: DependencyKind
    job_number: int | None = None
    array_index: int | None = None
    delay_minutes: int = 0


@dataclass(frozen=True, slots=True)
class Dependencies:
    """All conditions of a job: joined by ``,`` (every one must hold) or ``?`` (any one is enough)."""

    conditions: tuple[Dependency, ...] = ()
    any_is_enough: bool = False


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """The task indices of ``--array`` in ascending order, and how many may run at once (``None``: all)."""

    indices: tuple[int, ...]
    running_max: int | None = None


@dataclass(frozen=True, slots=True)
class SignalSpec:
    """``--signal=[B:]SIG[@SECONDS]``: ``to_batch_shell`` is ``B:``; seconds before the time limit."""

    name: str
    seconds_before_end: int = 60
    to_batch_shell: bool = False


class OpenMode(StrEnum):
    APPEND = "append"
    TRUNCATE = "truncate"


class Network(StrEnum):
    """What a workload reaches: nothing, the internet but neither the platform nor other teams, or the host's
    own network (by name only)."""

    NONE = "none"
    INTERNET = "internet"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class DiskMount:
    """A disk of the team, by id, to be had at an absolute path inside."""

    disk_id: str
    target: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job, or all tasks of one array, exactly as it will be run.

    ``output`` and ``error`` are Slurm file patterns relative to ``chdir``; ``error`` ``None`` joins both
    streams. ``chdir`` is relative to ``/workspace``. ``checkpoint_folder`` names the workspace folder that
    the checkpoint template copies (``None``: the script saves by itself or not at all). ``price_max`` is
    per card-hour, ``None``: the list price. ``cost_max`` ``None``: no limit but the wallet. ``window``
    names a window of the price book outside of which not a second is run. ``environment`` holds the
    variables named by ``--export``. ``image`` is an image's id, ``None``: the host's programs alone.

    ``interactive``: the job is one start of an instance, whose ``script`` is the platform's own.
    ``priced_card``, with the tariff ``no_gpu``, is the card model whose list price counts though no card is
    had. ``at_once``: it waits for no cards; where the first decision finds none, its end is ``no_cards``.
    ``secret_names`` are of the team's.
    """

    name: str
    script: str
    arguments: tuple[str, ...] = ()
    resources: Resources = field(default_factory=Resources)
    tariff: Tariff = Tariff.ON_DEMAND
    price_max: Money | None = None
    cost_max: Money | None = None
    window: str | None = None
    time_limit_seconds: int = TIME_LIMIT_SECONDS_DEFAULT
    begin: datetime | None = None
    defer_until: datetime | None = None
    dependencies: Dependencies = field(default_factory=Dependencies)
    array: ArraySpec | None = None
    output: str = "slurm-%j.out"
    error: str | None = None
    open_mode: OpenMode = OpenMode.APPEND
    signal: SignalSpec | None = None
    requeue: bool = True
    chdir: str = "."
    environment: tuple[tuple[str, str], ...] = ()
    comment: str | None = None
    cost_label: str | None = None
    datasets: tuple[str, ...] = ()
    checkpoint_folder: str | None = None
    network: Network = Network.NONE
    image: str | None = None
    disks: tuple[DiskMount, ...] = ()
    interactive: bool = False
    priced_card: str | None = None
    at_once: bool = False
    secret_names: tuple[str, ...] = ()

    @property
    def priced_resources(self) -> Resources:
        """What its price is looked up by: its cards; without one of its own, one ``priced_card``."""
        if self.priced_card is None:
            return self.resources
        return replace(self.resources, card_model=self.priced_card, cards_per_node=1, nodes=1)

    @property
    def cards_priced(self) -> int:
        """How many cards its rate counts."""
        return self.priced_resources.cards
