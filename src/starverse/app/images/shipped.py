"""The recipes that come with the product: packages with their hashes, in files beside this one."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib import resources

from starverse.domain.catalog.image_recipes import RecipeRequest
from starverse.domain.errors import NotFound


@cache
def shipped_names() -> tuple[str, ...]:
    """By name."""
    return tuple(sorted(_index()))


def shipped_recipe(name: str) -> RecipeRequest:
    """Raises :class:`NotFound` for a name that none of them has."""
    entry = _index().get(name)
    if entry is None:
        known = ", ".join(shipped_names())
        raise NotFound(f"There is no recipe {name[:80]!r}; there are {known}, or name packages of your own.")
    file = entry.get("file", "")
    return RecipeRequest(
        kind=entry.get("kind", "venv"),
        requirements=_text(file) if file else "",
        packages=tuple(entry.get("packages", "").split()),
        python=entry.get("python", ""),
        cuda=entry.get("cuda", ""),
    )


def _text(name: str) -> str:
    return resources.files(__package__).joinpath("recipes", name).read_text("utf-8")


@cache
def _index() -> dict[str, dict[str, str]]:
    return tomllib.loads(_text("recipes.toml"))
