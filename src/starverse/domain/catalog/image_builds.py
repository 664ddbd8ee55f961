"""What the platform asks of a builder of images, and what it hears of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class BuildOrder:
    """All that a builder needs. ``recipe`` is canonical text; ``installer`` is ``uv``, ``pip`` or ``auto``.

    ``uid`` ``None``: it keeps its own user, being none of root's. ``conda_base`` is where channels lie,
    ``""``: where conda's own configuration has them. ``layers`` (name, host folder) are what a saved image is
    made of; of one upon a container image ``layer_owner`` is who root inside was, ``None``: the builder's own
    user, and ``sub_ids_first`` where the others' ids began.
    """

    image_id: str
    recipe: str
    installer: str
    uid: int | None
    seconds_max: int
    bytes_max: int
    disk_reserve_bytes: int
    conda_base: str = ""
    layers: tuple[tuple[str, str], ...] = ()
    layer_owner: int | None = None
    sub_ids_first: int = 0


@dataclass(frozen=True, slots=True)
class BuildResult:
    """How a build ended; ``message`` says why where ``digest`` is ``""``."""

    digest: str = ""
    bytes: int = 0
    contents: tuple[str, ...] = ()
    python: str = ""
    message: str = ""


class BuildPhase(StrEnum):
    """``gone``: nobody is at work on it and nobody said how it ended."""

    RUNNING = "running"
    ENDED = "ended"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class BuildLook:
    """How a build fares; ``result`` comes with ``ended``."""

    phase: BuildPhase
    result: BuildResult | None = None
