"""The platform's side: starts builders, hears how they fare, and reads the store (``app/ports.py``)."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from starverse.checkpoint.removing import remove_tree
from starverse.domain.catalog.image_builds import BuildLook, BuildOrder, BuildPhase
from starverse.domain.catalog.image_trees import TreeFault, compare_trees
from starverse.domain.errors import Unavailable
from starverse.node.images import configuration, layers, trees
from starverse.node.images.layers import CopyRules
from starverse.node.images.places import Store

_KEPT = ("PATH", "LANG", "LC_ALL", "HOME", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH")


class ProcessBuilder:
    """Builders as processes of this machine that outlive this one. Safe to call from any thread.

    ``environment``: where pip's and uv's own variables are read, ``None``: this process's.
    """

    def __init__(self, root: Path, environment: Mapping[str, str] | None = None) -> None:
        self._store = Store(root)
        self._environment = os.environ if environment is None else environment
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def begin(self, order: BuildOrder) -> None:
        """Start a build; raises :class:`Unavailable` where no process can be made."""
        folder = self._store.build_folder(order.image_id)
        environment = {name: self._environment[name] for name in _KEPT if name in self._environment}
        try:
            self._store.root.mkdir(mode=0o711, parents=True, exist_ok=True)
            folder.write_order(order)
            with (folder / "builder.log").open("ab") as log:
                child = subprocess.Popen(
                    [sys.executable, "-m", "starverse.node.images.build", str(folder.path)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                    env={**configuration.variables(self._environment), **environment},
                )
        except OSError as error:
            raise Unavailable(f"No builder could be started: {error.strerror}.") from error
        with self._lock:
            self._children[order.image_id] = child

    def look(self, image_id: str) -> BuildLook:
        """How a build fares, by whoever started it."""
        folder = self._store.build_folder(image_id)
        with self._lock:
            child = self._children.get(image_id)
            own = child is not None and child.poll() is None
        if own or folder.has_builder():
            return BuildLook(BuildPhase.RUNNING)
        result = folder.read_result()
        return BuildLook(BuildPhase.GONE if result is None else BuildPhase.ENDED, result)

    def end(self, image_id: str) -> bool:
        """Have a build end and its folder go; false while it is still at work: ask again."""
        folder = self._store.build_folder(image_id)
        with self._lock:
            child = self._children.get(image_id)
            if child is not None and child.poll() is None:
                child.kill()  # what it runs ends with it
                child.wait()
        if folder.has_builder():
            with contextlib.suppress(FileNotFoundError):
                (folder / "stop").touch()
            return False
        with self._lock:
            self._children.pop(image_id, None)
        self._store.remove_build(image_id)
        return True

    def builds(self) -> tuple[str, ...]:
        return self._store.builds()

    def digests(self) -> tuple[str, ...]:
        return self._store.digests()

    def is_sound(self, digest: str) -> bool:
        return self._store.is_sealed(digest)

    def place(self, digest: str) -> Path:
        return self._store.place(digest)

    def verify(self, digest: str) -> tuple[TreeFault, ...]:
        """Read every byte; raises :class:`Unavailable` where there is no seal to compare with."""
        try:
            seal = self._store.read_seal(digest)
            return compare_trees(seal.entries, trees.scan(self._store.place(digest)))
        except trees.OddEntry as error:
            return (TreeFault(str(error), "extra"),)
        except (OSError, ValueError, KeyError) as error:
            raise Unavailable(
                f"The image's seal cannot be read ({type(error).__name__}); build it again."
            ) from error

    def lay(self, digest: str, name: str, target: Path, owner: int | None) -> None:
        """Copied aside and renamed; what was there already stays. Raises :class:`Unavailable`."""
        aside = target.with_name(f".new-{secrets.token_hex(8)}")
        try:
            target.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
            layers.copy_layer(self.place(digest) / name, aside, CopyRules(private=True, owner=owner))
            if not target.exists():
                aside.rename(target)
        except OSError as error:
            raise Unavailable(f"The saved files cannot be laid out: {error.strerror}.") from error
        finally:
            remove_tree(aside)

    def remove(self, digest: str) -> None:
        self._store.remove(digest)

    def sweep(self) -> int:
        return self._store.sweep()

    def close(self) -> None:
        """Builders go on without us: nothing to wait for, nothing to warn about."""
        with self._lock:
            for child in self._children.values():
                if child.poll() is None:
                    child.returncode = 0
