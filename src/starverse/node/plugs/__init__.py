"""Disks that come and go while a sandbox runs: folders and block files below ``/data``."""
