"""A store of images that builds what a test says, at once or when it is told to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from starverse.domain.catalog.image_builds import BuildLook, BuildOrder, BuildPhase, BuildResult
from starverse.domain.catalog.image_recipes import read_recipe
from starverse.domain.catalog.image_trees import TreeFault
from starverse.domain.errors import Unavailable


@dataclass
class FakeImages:
    """Every build ends at the next look with what its recipe names, unless ``held``.

    ``failures`` maps a package to the message of every build that asks for it; ``kill`` ends builders
    without a word.
    """

    held: bool = False
    failures: dict[str, str] = field(default_factory=dict)
    stored: dict[str, tuple[str, ...]] = field(default_factory=dict)
    orders: dict[str, BuildOrder] = field(default_factory=dict)
    begun: list[BuildOrder] = field(default_factory=list)
    damaged: set[str] = field(default_factory=set)
    laid: list[tuple[str, str, Path, int | None]] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)

    def begin(self, order: BuildOrder) -> None:
        if order.image_id in self.orders:
            raise Unavailable("there is a build of it")
        self.orders[order.image_id] = order
        self.begun.append(order)

    def kill(self) -> None:
        """Every builder ends, and says nothing."""
        self.gone |= self.orders.keys()

    def look(self, image_id: str) -> BuildLook:
        order = self.orders.get(image_id)
        if order is None or image_id in self.gone:
            return BuildLook(BuildPhase.GONE)
        if self.held:
            return BuildLook(BuildPhase.RUNNING)
        recipe = read_recipe(order.recipe)
        for package in recipe.packages:
            if package.name in self.failures:
                return BuildLook(BuildPhase.ENDED, BuildResult(message=self.failures[package.name]))
        lines = tuple(package.line() for package in recipe.packages)
        digest = f"sha256:{hashlib.sha256(repr((recipe.kind, lines, order.layers)).encode()).hexdigest()}"
        self.stored[digest] = lines
        return BuildLook(BuildPhase.ENDED, BuildResult(digest, 1000 * (1 + len(lines)), lines, "3.11"))

    def end(self, image_id: str) -> bool:
        self.gone.discard(image_id)
        self.orders.pop(image_id, None)
        return True

    def builds(self) -> tuple[str, ...]:
        return tuple(sorted(self.orders))

    def digests(self) -> tuple[str, ...]:
        return tuple(sorted(self.stored))

    def is_sound(self, digest: str) -> bool:
        return digest in self.stored

    def place(self, digest: str) -> Path:
        return Path("/images", digest.replace(":", "-"))

    def verify(self, digest: str) -> tuple[TreeFault, ...]:
        return (TreeFault("lib/six.py", "changed"),) if digest in self.damaged else ()

    def lay(self, digest: str, name: str, target: Path, owner: int | None) -> None:
        self.laid.append((digest, name, target, owner))
        target.mkdir(parents=True)

    def remove(self, digest: str) -> None:
        del self.stored[digest]

    def sweep(self) -> int:
        return 0
