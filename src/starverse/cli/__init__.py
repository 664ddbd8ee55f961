"""The command line: commands over the API, Slurm's commands, and commands that need the product itself."""
