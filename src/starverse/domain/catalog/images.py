"""Images: the root environment of a workload, by its content; what names they have and where they run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from starverse.domain.errors import Conflict, FieldFault

NAME_BYTES_MAX = 63
MOUNT_POINT = "/opt/image"
"""Where an image is built and shown: its scripts and paths hold there and nowhere else."""

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?")


class ImageKind(StrEnum):
    """``venv``: pinned packages built once by uv. ``conda``: by micromamba. ``oci``: a container image,
    fetched by podman. ``saved``: an image with what an instance's owner added to it."""

    VENV = "venv"
    CONDA = "conda"
    OCI = "oci"
    SAVED = "saved"


class ImageState(StrEnum):
    """An image from its order to its removal.

    ::

        queued <---> building ---> ready ---> removed
           '-> removed  '-> failed ---> queued | removed
                        '-> removed

    ``building`` goes back to ``queued`` when its builder was killed, ``ready`` when its bytes are gone; those
    of a saved image cannot be made again: it has ``failed``.
    """

    QUEUED = "queued"
    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"
    REMOVED = "removed"


TRANSITIONS: Mapping[ImageState, frozenset[ImageState]] = {
    ImageState.QUEUED: frozenset({ImageState.BUILDING, ImageState.REMOVED}),
    ImageState.BUILDING: frozenset(
        {ImageState.QUEUED, ImageState.READY, ImageState.FAILED, ImageState.REMOVED}
    ),
    ImageState.READY: frozenset({ImageState.QUEUED, ImageState.FAILED, ImageState.REMOVED}),
    ImageState.FAILED: frozenset({ImageState.QUEUED, ImageState.REMOVED}),
    ImageState.REMOVED: frozenset(),
}


def advance(old: ImageState, new: ImageState) -> ImageState:
    """``new``, if it may follow; raises :class:`Conflict` otherwise."""
    if new not in TRANSITIONS[old]:
        raise Conflict(f"an image that is {old.value} cannot become {new.value}")
    return new


@dataclass(frozen=True, slots=True)
class Image:
    """An image as it is recorded.

    ``team_id`` ``None``: of the platform, for everybody. ``recipe`` is its canonical text
    (:mod:`~starverse.domain.catalog.image_recipes`). ``digest`` (``sha256:HEX``) names its bytes, ``None``
    until it is ready; ``bytes`` is their size, ``contents`` its packages as ``name==version``, sorted.
    ``cuda`` and ``driver_min`` ``""``: it needs none.
    """

    id: str
    team_id: str | None
    account_id: str | None
    name: str
    kind: ImageKind
    state: ImageState
    message: str
    generation: int
    recipe: str
    recipe_digest: str
    digest: str | None
    bytes: int | None
    contents: tuple[str, ...]
    python: str
    cuda: str
    driver_min: str
    asked_at: datetime
    built_at: datetime | None = None
    removed_at: datetime | None = None


_DRIVER_OF_CUDA = {11: "450.80.02", 12: "525.60.13", 13: "580.65.06"}
"""Lowest driver on Linux of each major version (CUDA Compatibility guide, minor version compatibility)."""


def driver_of_cuda(cuda: str) -> str:
    """The lowest driver that runs programs of this CUDA version; ``""``: none known."""
    major = cuda.partition(".")[0]
    return _DRIVER_OF_CUDA.get(int(major), "") if major.isdecimal() else ""


def name_fault(name: str) -> FieldFault | None:
    """What is wrong with an image's name; ``None``: nothing. No path is ever made of it."""
    if _NAME.fullmatch(name) is not None and ".." not in name:
        return None
    expected = f"1 to {NAME_BYTES_MAX} of a-z, 0-9, '.', '-' and '_', a letter or digit at both ends"
    return FieldFault("name", name[:80], expected)


_RUNTIME = re.compile(r"(?:nvidia-cuda-runtime(?:-cu\d+)?|cuda)==(\d+\.\d+)")
_LOCAL = re.compile(r"(?:torch|jaxlib)==[^+]+\+cu(\d\d)(\d)")


def cuda_of_contents(contents: tuple[str, ...]) -> str:
    """The CUDA version that an image's packages bring; ``""``: none."""
    for line in contents:
        found = _RUNTIME.match(line)
        if found is not None:
            return found[1]
    for line in contents:
        found = _LOCAL.match(line)
        if found is not None:
            return f"{found[1]}.{found[2]}"
    return ""
