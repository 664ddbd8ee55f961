"""Double-entry ledger: ledger accounts, immutable transfers, hold -> post / void / expire, limits.

``posting.apply`` decides over the touched part of the books; ``invariants.audit`` checks all of them;
``wallet`` says what a team owns. ``db/ledger.py`` loads, calls these and writes back.
"""
