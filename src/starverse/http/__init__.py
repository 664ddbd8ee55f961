"""The REST API: parse, call one use case, shape the answer. Imports ``app`` and ``domain``, never ``db``."""
