"""Where allocations run: ``base`` (the protocol), ``local``, ``slurm``, ``fake`` (tests, simulation)."""
