"""Images of conda packages, solved and unpacked by py-rattler; no script of a package is run.

Channels are named alone: where they lie is py-rattler's own knowledge, or the operator's setting
``images.conda_base``.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import urllib.error
import urllib.request
from pathlib import Path

from starverse.domain.catalog.image_recipes import Recipe
from starverse.domain.catalog.images import MOUNT_POINT
from starverse.node.images import conda_worker
from starverse.node.images.sandbox import BuildFailed, Room, how_it_ended, last_words, run


def is_here() -> bool:
    """Whether py-rattler is installed with the platform's Python."""
    return importlib.util.find_spec("rattler") is not None


def build(room: Room, recipe: Recipe, base: str) -> str:
    """Fill the room's ``root``; the version of its Python, ``""``: none. Raises :class:`BuildFailed`."""
    if not is_here():
        raise BuildFailed(
            "py-rattler is not installed where the platform runs: pip install 'starverse[conda]'"
        )
    python = () if not recipe.python else (f"python {recipe.python}.*",)
    order = {
        "channels": recipe.channels,
        "base": f"{base.rstrip('/')}/" if base else "",
        "specs": [*python, *(_match_spec(package.name, package.version) for package in recipe.packages)],
        "target": MOUNT_POINT,
    }
    command = [sys.executable, "-I", conda_worker.__file__, json.dumps(order)]
    code = run(room, command, network=True)
    if code:
        raise BuildFailed(
            f"the packages of {', '.join(recipe.channels)} could not be had, or not put together: "
            f"{last_words(room.log) or how_it_ended(code)}"
        )
    found = next((line for line in contents(room.root) if line.startswith("python==")), "")
    return ".".join(found.removeprefix("python==").split(".")[:2])


def why_unreachable(channel: str, base: str, seconds_max: float = 3.0) -> str:
    """Asks for a channel's list of packages; ``""``: something answered."""
    import rattler

    places = rattler.ChannelConfig(channel_alias=f"{base.rstrip('/')}/") if base else rattler.ChannelConfig()
    address = f"{rattler.Channel(channel, places).base_url.rstrip('/')}/noarch/repodata.json.zst"
    try:
        with urllib.request.urlopen(urllib.request.Request(address, method="HEAD"), timeout=seconds_max):
            return ""
    except urllib.error.HTTPError as answer:
        return "" if answer.code == 404 else f"the channel {channel} (it answers {answer.code})"
    except (OSError, ValueError) as error:
        return f"the channel {channel} (it cannot be reached: {getattr(error, 'reason', error)})"


def contents(root: Path) -> tuple[str, ...]:
    """``name==version`` of every package, as the installer noted them."""
    found = []
    for file in root.glob("conda-meta/*.json"):
        record = json.loads(file.read_text("utf-8"))
        found.append(f"{record['name']}=={record['version']}")
    return tuple(sorted(found))


def _match_spec(name: str, version: str) -> str:
    number, _, build = version.partition("=")
    return f"{name} =={number}{f' {build}' if build else ''}"
