"""A container image with a writable layer over it, as one folder that only the sandbox has.

The kernel's overlay file system, mounted in the workload's own user namespace (Linux 5.11): with nobody's
rights but the workload's, without a process to keep alive, in a millisecond. The image stays as it is in the
store; what is written lands in ``upper``, which stays with an instance over its starts. On a root platform
the image is shown as the workload's own by an id-mapped mount (below an overlay: Linux 5.19).
"""

from __future__ import annotations

import os
from pathlib import Path

from starverse.node.plugs import mount_trees
from starverse.node.sandbox import syscalls
from starverse.node.sandbox.sub_ids import Mapper, SubIds, make_namespace

UPPER = "upper"
PARTS = (UPPER, "work")
"""Of a layer's folder: what was written, and what the kernel needs beside it."""
PLACE = "root"
"""In an allocation's folder: where an ordinary user's launcher has it, in its own mount namespace."""


class LayeredRoot:
    """``ids`` ``None``: of its user namespace only the workload's own user is known."""

    def __init__(self, image: str, layer: str, place: str, ids: SubIds | None) -> None:
        self._image, self._layer, self._place = image, layer, place
        self.ids = ids
        self._mapper: Mapper | None = None
        self._trees: tuple[int, ...] = ()

    def prepare(self, uid: int | None) -> None:
        """Before anything is staged: have ready what only the launcher's user can make."""
        if self.ids is not None:
            self._mapper = Mapper(uid if uid is not None else os.getuid(), self.ids)
        if os.geteuid() != 0:
            return
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        lent = make_namespace(*[f"0 {uid} 1\n"] * 2)
        image, layer = os.open(self._image, flags), os.open(self._layer, flags)
        self._trees = (
            mount_trees.clone_tree(image, read_only=True, shown_as=lent),
            mount_trees.clone_tree(layer, read_only=False),
        )
        for handle in (lent, image, layer):
            os.close(handle)

    def stage(self, folder: str) -> None:
        """Put it below the root platform's stage, which covers what was there."""
        if not self._trees:
            return
        self._image, self._layer, self._place = (f"{folder}/{name}" for name in ("image", "layer", PLACE))
        for path in (self._image, self._layer, self._place):
            Path(path).mkdir()
        for tree, path in zip(self._trees, (self._image, self._layer), strict=True):
            mount_trees.attach_tree(tree, path)
            os.close(tree)

    def map_ids(self) -> bool:
        """In the new user namespace: give it its ids; false where the caller has to."""
        if self._mapper is None:
            return False
        self._mapper.map()
        return True

    def mount(self) -> str:
        """In the workload's own namespaces, as its user: where the whole is to be found."""
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        places = (self._image, *(f"{self._layer}/{part}" for part in PARTS))
        handles = [os.open(path, flags) for path in places]
        lower, upper, work = (f"/proc/self/fd/{handle}" for handle in handles)
        options = f"lowerdir={lower},upperdir={upper},workdir={work},userxattr"
        try:
            syscalls.mount("overlay", self._place, "overlay", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
        except OSError as error:
            raise OSError(
                error.errno,
                f"a container image cannot have its writable layer here ({error.strerror}): it needs Linux"
                " 5.19, and ext4, xfs or btrfs below the data folder",
            ) from error
        for handle in handles:
            os.close(handle)
        return self._place

    def inner_namespace(self) -> int:
        """A user namespace below the one that has the mounts: whoever is root in it can change none."""
        assert self.ids is not None
        counts = (self.ids.users[1], self.ids.groups[1])
        handle = make_namespace(*(f"0 0 1\n1 1 {count}\n" for count in counts), closed=True)
        os.set_inheritable(handle, True)
        return handle
