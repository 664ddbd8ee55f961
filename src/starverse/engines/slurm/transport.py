"""What the engine asks of a Slurm, whichever way it is reached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from starverse.engines.slurm.facts import JobRequest, SlurmJob, SlurmNode


class Transport(Protocol):
    """Every call ends within a bound. Raises ``SlurmUnavailable`` where nothing is known of the outcome,
    ``SlurmRefused`` where Slurm said no."""

    def describe(self) -> str:
        """How Slurm is reached and its version, for people."""
        ...

    def jobs(self, partitions: Sequence[str]) -> tuple[SlurmJob, ...]:
        """Every job that is not over, of all users, in these partitions (none: in all)."""
        ...

    def find(self, name: str) -> tuple[SlurmJob, ...]:
        """All that Slurm still knows of jobs of this name, ended ones too."""
        ...

    def nodes(self) -> tuple[SlurmNode, ...]: ...

    def submit(self, request: JobRequest) -> str:
        """Slurm's number of the new job. A number may come again after a crash of the controller."""
        ...

    def cancel(self, name: str) -> None:
        """Cancel every job of this name; also where there is none."""
        ...

    def close(self) -> None:
        """Let go of connections; it is not asked any more."""
        ...
