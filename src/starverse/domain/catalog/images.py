"""Images: the root environment of a workload, by its content."""

from __future__ import annotations

from enum import StrEnum


class ImageKind(StrEnum):
    """``venv``: pinned packages built once by uv. ``conda``: by micromamba. ``oci``: a container image,
    run by podman. ``saved``: an image with what an instance's owner added to it."""

    VENV = "venv"
    CONDA = "conda"
    OCI = "oci"
    SAVED = "saved"


class ImageState(StrEnum):
    """An image from its order to its removal.

    ::

        queued ---> building ---> ready ---> removed
           '-> removed  '-> failed ---> queued | removed
    """

    QUEUED = "queued"
    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"
    REMOVED = "removed"
