"""Where allocations run: ``base`` (the protocol), ``local`` (this machine), ``fake`` (tests and simulation)."""
