"""Plans for work with a deadline: what to run on, tick by tick, at the lowest expected cost."""
