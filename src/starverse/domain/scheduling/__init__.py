"""Which waiting workload starts where, and who gives its cards back: pure functions over a snapshot."""
