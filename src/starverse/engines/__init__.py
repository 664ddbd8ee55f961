"""Where allocations run: ``base`` (the protocol), ``local``, ``fake`` (tests, simulation)."""
