"""Disks of a team: ordering, growing, deleting and restoring them, their snapshots, and the files in them."""
