"""The builder: one process that makes one image, and tells how it went in a file (``python -m ...build``).

It lives on when the server that started it is gone; what it runs ends with it.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from starverse.domain.catalog.image_builds import BuildOrder, BuildResult
from starverse.domain.catalog.image_recipes import Recipe, read_recipe
from starverse.domain.catalog.image_trees import tree_digest
from starverse.domain.catalog.images import ImageKind
from starverse.node.disk_trees import measure
from starverse.node.host_setup import find_python_folders
from starverse.node.images import conda, configuration, layers, oci, trees, venv
from starverse.node.images.merging import Owners, merge
from starverse.node.images.places import BuildFolder, Seal, Store
from starverse.node.images.sandbox import BuildFailed, Room
from starverse.node.sandbox.layered_root import UPPER
from starverse.node.sandbox.oci_root import is_root_image

MIB = 1024**2


def main(place: str) -> None:
    """Build what the order in this folder says, unless another builder does."""
    folder = BuildFolder(Path(place))
    if folder.claim() is None:  # the lock is held until this process ends
        return
    try:
        order = folder.read_order()
        result = build(Store(folder.path.parent), folder, order)
    except BuildFailed as error:
        result = BuildResult(message=str(error))
    except OSError as error:
        result = BuildResult(message=f"the machine that builds it failed: {error.strerror or error}")
    folder.write_result(result)


def build(store: Store, folder: BuildFolder, order: BuildOrder) -> BuildResult:
    """Make the tree, read it, seal it, keep it. Raises :class:`BuildFailed` saying why not."""
    recipe = read_recipe(order.recipe)
    tree = folder / "root"
    tree.mkdir()
    obstacle = obstacles(folder.path, order)
    python, told = _fill(recipe, folder, order, tree, obstacle)
    if not any(tree.iterdir()):
        raise BuildFailed("there is nothing in it")
    try:
        entries = trees.scan(tree, order.bytes_max)
    except trees.OddEntry as error:
        raise BuildFailed(f"{error} is neither a file, a folder nor a link") from error
    except trees.LargeEntry as error:
        most = f"{order.bytes_max // MIB} MiB"
        raise BuildFailed(f"with {error} it is larger than the {most} kept of one; holes count") from error
    size = sum(entry.bytes for entry in entries)
    said = obstacle()
    if said:
        raise BuildFailed(said)
    seal = Seal(tree_digest(entries), size, told, python, entries)
    trees.freeze(tree)
    store.keep(tree, seal)
    return BuildResult(seal.digest, size, seal.contents, python)


def _fill(
    recipe: Recipe, folder: BuildFolder, order: BuildOrder, tree: Path, obstacle: Callable[[], str]
) -> tuple[str, tuple[str, ...]]:
    """Fill the tree by the recipe; the version of the Python in it, and what it holds."""
    if recipe.kind is ImageKind.OCI and recipe.instance:
        (_, image), (_, home) = order.layers
        if measure(Path(home) / UPPER).bytes > order.bytes_max:
            raise BuildFailed(f"what was written has more than the {order.bytes_max // MIB} MiB kept of one")
        owners = Owners(order.layer_owner, order.sub_ids_first)
        merge(Path(image), Path(home), folder.path, tree, owners)
        return "", Store(folder.path.parent).contents(Path(image))
    if recipe.kind is ImageKind.SAVED:
        for name, source in order.layers:
            rules = layers.CopyRules(bytes_max=order.bytes_max, obstacle=obstacle)
            layers.copy_layer(Path(source), tree / name, rules)
        return recipe.python, ()
    installer = venv.choose_installer(order.installer) if recipe.kind is ImageKind.VENV else ""
    room = make_room(folder, order, tree, obstacle)
    if recipe.kind is ImageKind.OCI:
        return "", oci.build(room, recipe, folder)
    if recipe.kind is ImageKind.CONDA:
        python, told = conda.build(room, recipe, order.conda_base), conda.contents(tree)
    else:
        python, told = venv.build(room, recipe, installer).version, venv.contents(tree)
    if is_root_image(str(tree)):
        raise BuildFailed("a package brings a file that only container images have")
    return python, told


def make_room(folder: BuildFolder, order: BuildOrder, tree: Path, obstacle: Callable[[], str]) -> Room:
    """The sandbox of a build's commands; raises :class:`BuildFailed` without bubblewrap."""
    bwrap = shutil.which("bwrap")
    if not bwrap:
        raise BuildFailed("bubblewrap is not installed where the platform runs: apt-get install bubblewrap")
    home, temporary = folder / "home", folder / "tmp"
    user_home = Path(os.path.expanduser("~"))  # noqa: PTH111
    for path in (home, temporary):
        path.mkdir(mode=0o700)
    configuration.copy_user_files(user_home, home)
    if order.uid is not None:
        for path in (tree, home, temporary, *home.rglob("*")):
            os.chown(path, order.uid, order.uid)
    uv = venv.find_uv()
    own = [Path(path) for path in find_python_folders()]
    shown = configuration.outermost([*own, *([Path(uv)] if uv else [])])
    named = configuration.local_folders(os.environ, user_home, order.conda_base)
    return Room(
        bwrap=bwrap,
        root=tree,
        home=home,
        temporary=temporary,
        log=folder / "log",
        uid=order.uid,
        shown=configuration.outermost(map(Path, (*shown, *named))),
        environment=configuration.variables(os.environ),
        obstacle=obstacle,
    )


def obstacles(place: Path, order: BuildOrder) -> Callable[[], str]:
    """What stands against going on, in words; ``""``: nothing."""
    until = time.monotonic() + order.seconds_max

    def look() -> str:
        if time.monotonic() > until:
            return f"it took longer than {order.seconds_max} s"
        if (place / "stop").exists():
            return "it was given up"
        found = os.statvfs(place)
        if found.f_bavail * found.f_frsize < order.disk_reserve_bytes:
            free, reserve = found.f_bavail * found.f_frsize // MIB, order.disk_reserve_bytes // MIB
            return (
                f"the platform's disk is nearly full: {free} MiB are free, {reserve} MiB are kept in reserve"
            )
        return ""

    return look


if __name__ == "__main__":
    main(sys.argv[1])
