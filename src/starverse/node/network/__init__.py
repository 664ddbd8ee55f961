"""The network of a workload that may reach the internet, and neither the platform nor anybody's workloads."""
