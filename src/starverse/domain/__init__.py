"""Rules as pure functions over frozen data: no I/O, no clock, no randomness, no SQL, no framework."""
