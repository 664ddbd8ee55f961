"""Slurm's commands (sbatch, squeue, ...) over the API."""
