"""Shapes of images."""

from __future__ import annotations

import json
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from starverse.app.identity import Identity
from starverse.app.images.ordering import VerifiedImage
from starverse.domain.catalog.image_recipes import RecipeRequest
from starverse.domain.catalog.images import Image
from starverse.http.shapes import In, InstantText, Out

Word = Annotated[str, Field(max_length=300)]


class RecipeIn(In):
    """What an image is built from. ``packages`` are pinned (``numpy==2.3.4``); ``requirements`` is the text
    of a requirements file; ``ref`` names a container image of kind oci; ``channels`` are conda's.

    ``cuda`` and ``driver_min`` say what it needs of a node; they are read from the packages where they tell.
    """

    kind: Word = "venv"
    packages: Annotated[list[Word], Field(max_length=2000)] = Field(default_factory=list)
    requirements: Annotated[str, Field(max_length=1024**2)] = ""
    ref: Annotated[str, Field(max_length=600)] = ""
    channels: Annotated[list[Word], Field(max_length=20)] = Field(default_factory=list)
    python: Word = ""
    cuda: Word = ""
    driver_min: Word = ""

    def asked(self) -> RecipeRequest:
        return RecipeRequest(
            kind=self.kind,
            packages=tuple(self.packages),
            requirements=self.requirements,
            reference=self.ref,
            channels=tuple(self.channels),
            python=self.python,
            cuda=self.cuda,
            driver_min=self.driver_min,
        )


class ImageIn(In):
    """A name and what to build; ``recipe`` null: the shipped one of this name. ``shared``: for everybody, of
    operators only."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "numpy", "recipe": None},
                {"name": "mine", "recipe": {"kind": "venv", "packages": ["numpy==2.3.4"], "python": "3.11"}},
            ]
        }
    )

    name: Annotated[str, Field(max_length=300)]
    recipe: RecipeIn | None = None
    shared: bool = False


class ImageOut(Out):
    """An image. ``team`` null: of the platform. ``state`` is queued, building, ready, failed or removed.

    ``digest`` names its bytes, null until it is ready; ``contents`` are its packages as ``name==version``.
    ``driver_min`` is the lowest NVIDIA driver of a node that can run it, ``""``: any.
    """

    id: str
    name: str
    team: str | None
    kind: str
    state: str
    message: str
    recipe: dict[str, Any]
    recipe_digest: str
    digest: str | None
    bytes: int | None
    contents: list[str]
    python: str
    cuda: str
    driver_min: str
    asked_at: InstantText
    built_at: InstantText | None

    @classmethod
    def made(cls, image: Image, identity: Identity) -> ImageOut:
        team = None if image.team_id is None else identity.team_name
        return cls.of(image, team=team, recipe=json.loads(image.recipe))


class TreeFaultOut(Out):
    """An entry that is not as it was sealed: missing, extra or changed."""

    path: str
    kind: str


class VerifiedImageOut(ImageOut):
    """What reading every byte found: ``state`` is verified or damaged; at most a hundred faults are named."""

    faults: list[TreeFaultOut]

    @classmethod
    def found(cls, verified: VerifiedImage, identity: Identity) -> VerifiedImageOut:
        shown = ImageOut.made(verified.image, identity).model_dump()
        return cls.model_validate({**shown, "state": verified.state, "faults": [
            {"path": ascii(fault.path)[1:-1], "kind": fault.kind} for fault in verified.faults
        ]})  # fmt: skip
