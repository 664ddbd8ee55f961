"""The first line of whoever connects to a launcher or to the platform's channel."""

from __future__ import annotations

from dataclasses import dataclass

from starverse.domain.workloads.lines import read_fields


@dataclass(frozen=True, slots=True)
class Hello:
    """Who it says it is. ``kind``: ``launcher``, ``api`` or ``stream`` to the platform, ``companion`` (with
    ``node_index``) or ``stream`` to a head; ``stream`` is the id of the one that was asked for."""

    version: int
    allocation_id: str
    token: str
    kind: str = "launcher"
    node_index: int = 0
    stream: str = ""

    @classmethod
    def from_json(cls, text: str) -> Hello:
        """Raises ``ValueError`` on what is none."""
        return cls(**read_fields(cls, text))


@dataclass(frozen=True, slots=True)
class WayAsked:
    """What ``srun`` says at ``gang.sock``: the node whose agent it wants to speak with."""

    node_index: int

    @classmethod
    def from_json(cls, text: str) -> WayAsked:
        """Raises ``ValueError`` on what is none."""
        return cls(**read_fields(cls, text))
