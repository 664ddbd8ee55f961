"""Loops that make the world match the database: ``load -> decide -> act -> record``, one file each.

No argument says what changed; a loop runs periodically and on wake-ups, is idempotent, retries by running
again, and works on a bounded batch.
"""
