"""Where a node's cards come from: declared, a file that tests change, or NVML."""
