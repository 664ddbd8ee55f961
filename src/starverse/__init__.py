"""starverse: a GPU cloud on the cards that a lab or a small operator has."""

__version__ = "0.1.0"
