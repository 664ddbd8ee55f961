"""What runs on a node: the launcher with its sandbox, cards, logs and limits, and probes for ``doctor``."""
