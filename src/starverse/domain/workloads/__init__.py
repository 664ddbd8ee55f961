"""What teams ask to run: specs, the state machines, and the launch spec that engines hand to launchers."""
