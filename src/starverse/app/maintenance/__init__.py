"""What operators do to a whole installation while no server needs to run: backup, restore, migrate, move."""
