"""What a Slurm cluster must be like for the platform, and what it is like: facts in, findings out."""
