"""The engine for a Slurm cluster: one allocation is one job, pinned to its nodes."""
