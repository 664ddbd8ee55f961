"""Copies between disks and remotes: rclone in a sandbox that shows nothing but the disk."""
