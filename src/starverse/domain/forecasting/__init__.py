"""How many cards will be free, how surely, and when a job is cheapest: from a pool's own past."""
