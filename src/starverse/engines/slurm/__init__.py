"""The engine for a Slurm cluster: one allocation is one job, pinned to its nodes."""

from starverse.engines.slurm.engine import SlurmEngine
from starverse.engines.slurm.settings import SlurmSettings

__all__ = ["SlurmEngine", "SlurmSettings"]
