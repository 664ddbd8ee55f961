"""``#SBATCH`` text and options to a job spec and back, by Slurm's own rules (22.05 to 24.05)."""
