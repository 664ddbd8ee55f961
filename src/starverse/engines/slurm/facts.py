"""What a Slurm says and what it is asked for: plain data, the same for both transports."""

from __future__ import annotations

from dataclasses import dataclass, field

from starverse.domain.errors import StarverseError
from starverse.domain.slurm_cluster.facts import UNUSABLE_STATES
from starverse.engines.base import EngineUnavailable

OVER = frozenset(
    {
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "LAUNCH_FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "RECONFIG_FAIL", "REVOKED", "TIMEOUT"),
    }
)
"""Job states after which nothing of a job runs; any other one, COMPLETING among them, may hold cards."""

WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"})
"""Job states in which nothing of a job runs yet, or nothing any more until Slurm starts it again."""

UNUSABLE = frozenset(state.upper() for state in UNUSABLE_STATES)
"""Node states in which nothing is to be started; a node in any other one is up."""

DRAINS = frozenset({"DRAIN", "DRAINED", "DRAINING"})
"""Node states in which what runs there goes on."""


class SlurmUnavailable(EngineUnavailable):
    """Slurm does not answer right now; nothing is known to have changed, it is asked again later."""

    code = "slurm_unavailable"


class SlurmUnreached(SlurmUnavailable):
    """Slurm was not even reached: nothing was asked of it; it is asked again later."""

    code = "slurm_unreached"


class SlurmRefused(StarverseError):
    """Slurm does not take this job; `starverse slurm check` says what to change in the cluster."""

    code = "slurm_refused"


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """One job. ``states`` are its base state and flags; ``reason`` is Slurm's own word for why it waits."""

    job_id: str
    name: str
    states: frozenset[str]
    nodes: str = ""
    submitted_at: float = 0.0
    reason: str = ""
    user: str = ""
    comment: str = ""
    requeues: bool = False
    """Whether Slurm starts it again by itself; commands do not tell."""

    @property
    def waits(self) -> bool:
        """Whether it holds no card now and may be started, or started again."""
        return bool(self.states) and self.states <= WAITING

    @property
    def over(self) -> bool:
        """Whether nothing of it runs any more and its cards are free."""
        return bool(self.states) and self.states <= OVER


@dataclass(frozen=True, slots=True)
class SlurmCards:
    """Cards of one gres type on a node; ``kind`` ``""``: gres.conf names no type."""

    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """One node. ``states`` are its base state and flags in upper case."""

    name: str
    states: frozenset[str]
    partitions: tuple[str, ...]
    features: tuple[str, ...]
    cards: tuple[SlurmCards, ...]
    cpus: int
    memory_mib: int
    sockets: int = 1
    reason: str = ""

    @property
    def usable(self) -> bool:
        return not self.states & UNUSABLE


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What is submitted. Sizes are per node; ``gres`` ``""``: no cards. ``time_minutes`` is the limit."""

    name: str
    script: str
    nodes: tuple[str, ...]
    partition: str
    gres: str
    cpus: int
    memory_mib: int
    time_minutes: int
    folder: str
    output: str
    comment: str
    pins_by_feature: bool
    """Whether each of the nodes has its own name among its features."""
    environment: tuple[tuple[str, str], ...] = field(default=())
