"""What a Slurm cluster says of itself, and what was found of it: plain data that the rules judge.

Sources: ``scontrol show config``, ``scontrol -o show partitions``, ``scontrol -o show nodes`` (Slurm 22.05
manual pages); ``reading.py`` makes them from the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Verdict(StrEnum):
    """How a finding stands. ``wish``: it works, less well; ``warn``: it works until it does not;
    ``blocks``: jobs cannot run, or not safely; ``unknown``: it could not be seen."""

    OK = "ok"
    WISH = "wish"
    WARN = "warn"
    BLOCKS = "blocks"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Finding:
    """One answer: what is looked at, what the cluster has, what it needs and why.

    ``name`` is stable (a setting's name, or such as ``partition/gpu/MaxTime``). ``remedy`` is a line of
    slurm.conf or a command, ``""`` where nothing is to be done.
    """

    name: str
    verdict: Verdict
    has: str
    needs: str
    why: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class GresCards:
    """Cards of one type on a node. ``kind`` is the type in gres.conf (``""``: none), ``model`` our name."""

    model: str
    count: int
    kind: str = ""


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """One partition. ``seconds_max`` and ``seconds_default`` ``None``: without a limit.

    ``restricted`` holds what is not open to all (``AllowAccounts=physics``).
    """

    name: str
    state: str
    seconds_max: int | None
    seconds_default: int | None
    preempt_mode: str
    over_subscribe: str
    priority_tier: int
    restricted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """One node. ``states`` are its base state and flags in lower case (``idle``, ``drain``)."""

    name: str
    states: frozenset[str]
    partitions: frozenset[str]
    cards: tuple[GresCards, ...]
    features: frozenset[str]
    cpus: int
    memory_mib: int
    version: str
    reason: str = ""

    @property
    def usable(self) -> bool:
        """Whether the platform starts something there."""
        return not self.states & UNUSABLE_STATES


UNUSABLE_STATES = frozenset(
    {
        *("blocked", "down", "drain", "drained", "draining", "error", "fail", "failing", "future", "inval"),
        *("invalid", "invalid_reg", "maint", "maintenance", "no_respond", "not_responding", "planned_down"),
        *("power_down", "powered_down", "powering_down", "powering_up", "reboot", "reboot_issued"),
        *("reboot_requested", "reserved", "unknown"),
    }
)
"""Node states in which nothing is to be started; a node in any other one (idle, mixed, allocated, completing)
is up. One set for ``slurm plan`` and for the engine that acts on it."""


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """All of it. ``settings`` are those of slurm.conf as slurmctld has them, by name."""

    settings: Mapping[str, str]
    partitions: tuple[PartitionFacts, ...]
    nodes: tuple[NodeFacts, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the platform is going to do with the cluster.

    ``partitions`` empty: all of them. ``job_seconds_max`` is the default time limit of a job with what a
    start and a stop take. ``rest``: it talks through slurmrestd and nothing else. ``as_root``: it runs as
    root, and so do its launchers until they drop to each team's user.
    """

    partitions: frozenset[str] = frozenset()
    job_seconds_max: int = 24 * 3600 + 600
    kill_after_seconds: int = 10
    rest: bool = False
    as_root: bool = False
    card_models: frozenset[str] = field(default_factory=frozenset)
    """Models that have a price; empty: not known."""
