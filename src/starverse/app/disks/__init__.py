"""Disks of a team: orders, storage, snapshots, files, copies to and from remotes, and what they cost."""
