"""Whole databases: every row in a form that both share, read at one instant, written all or nothing."""
