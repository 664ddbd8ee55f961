"""slurmrestd for what it is fast at, the commands for the rest."""

from __future__ import annotations

from collections.abc import Sequence

from starverse.engines.slurm.commands import Commands
from starverse.engines.slurm.facts import JobRequest, SlurmJob, SlurmNode, SlurmUnavailable, SlurmUnreached
from starverse.engines.slurm.rest import Rest


class Combined:
    """Submits by slurmrestd, where it answers, can pin a job and keeps Slurm from requeueing it; looks,
    cancels and all else by commands.

    A submit that slurmrestd may have got is not repeated by the command: whoever submits again asks first
    whether there is such a job.
    """

    def __init__(self, rest: Rest, commands: Commands) -> None:
        self._rest, self._commands = rest, commands
        self.find, self.cancel, self.close = commands.find, commands.cancel, rest.close

    def describe(self) -> str:
        try:
            rest = self._rest.describe()
        except SlurmUnavailable as error:
            rest = f"no slurmrestd ({error.detail})"
        return f"{self._commands.describe()}; submits: {rest}"

    def jobs(self, partitions: Sequence[str]) -> tuple[SlurmJob, ...]:
        return self._commands.jobs(partitions)

    def nodes(self) -> tuple[SlurmNode, ...]:
        return self._commands.nodes()

    def submit(self, request: JobRequest) -> str:
        try:
            pins = request.pins_by_feature or self._rest.names_nodes()
            if pins and (self._rest.forbids_requeue() or not self._commands.requeues_by_default()):
                return self._rest.submit(request)
        except SlurmUnreached:
            pass  # nothing was sent
        return self._commands.submit(request)
