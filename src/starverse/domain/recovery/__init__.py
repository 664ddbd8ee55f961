"""Why an allocation ended, and what follows for its job: pure functions and one table."""
