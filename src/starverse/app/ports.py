"""What the use cases need of the outside world, injected: time, ids, wake-ups, images, copies to remotes."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import uuid_utils

from starverse.domain.catalog.image_builds import BuildLook, BuildOrder
from starverse.domain.catalog.image_trees import TreeFault
from starverse.domain.catalog.syncs import CopyEnd, CopyOrder, Progress
from starverse.domain.errors import Unavailable

SLOWER = 0.9
"""The pace of the clock while the wall clock lies behind it."""


class Clock(Protocol):
    """Gives the time; read once per transaction and passed on as ``now``."""

    def now(self) -> datetime:
        """The present instant in UTC, never earlier than one given before."""
        ...


class Ids(Protocol):
    """Makes ids and secrets."""

    def uuid7(self) -> str: ...

    def secret(self) -> str:
        """An unguessable URL-safe text of at least 256 bits."""
        ...


class SystemClock:
    """The machine's clock, kept from going back.

    After a jump backwards it goes on a tenth slower until the wall clock has caught up, so that money is
    still held in time and leases still run out; ``elapsed`` (seconds, never jumping) tells how far.
    """

    def __init__(
        self,
        read: Callable[[], datetime] = lambda: datetime.now(UTC),
        elapsed: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._read = read
        self._elapsed = elapsed
        self._newest: datetime | None = None
        self._newest_elapsed = 0.0
        self._lock = threading.Lock()

    def now(self) -> datetime:
        with self._lock:
            read, elapsed = self._read(), self._elapsed()
            if self._newest is not None:
                slower = SLOWER * max(0.0, elapsed - self._newest_elapsed)
                read = max(read, self._newest + timedelta(seconds=slower))
            self._newest, self._newest_elapsed = read, elapsed
            return read


class RandomIds:
    """Time-ordered uuid7 ids and secrets of the operating system."""

    def uuid7(self) -> str:
        return str(uuid_utils.uuid7())

    def secret(self) -> str:
        return secrets.token_urlsafe(32)


class Wakeups:
    """Tells reconcilers that something changed; only a hint, they also run periodically.

    ``relay`` tells the same to other servers of the database, where there may be some.
    """

    def __init__(self) -> None:
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        self.relay: Callable[[str], None] = lambda _name: None

    def listen(self, name: str, wake: Callable[[], None]) -> None:
        self._listeners.setdefault(name, []).append(wake)

    def wake(self, *names: str) -> None:
        for name in names:
            self.wake_here(name)
            self.relay(name)

    def wake_here(self, name: str) -> None:
        """What another server told, or concerns this one alone."""
        for listener in self._listeners.get(name, ()):
            listener()


class ImageStore(Protocol):
    """Builds images, and has them by their digests (``node/images``). No call waits for a build."""

    def begin(self, order: BuildOrder) -> None:
        """Start a build; raises :class:`Unavailable` where none can be started."""
        ...

    def look(self, image_id: str) -> BuildLook:
        """How a build fares, whichever server started it."""
        ...

    def end(self, image_id: str) -> bool:
        """Stop a build, if it is still at work, and remove what is left of it; false: ask again."""
        ...

    def builds(self) -> tuple[str, ...]:
        """The images that have something of a build left."""
        ...

    def digests(self) -> tuple[str, ...]:
        """Of everything that is kept, whole or not."""
        ...

    def is_sound(self, digest: str) -> bool:
        """Whether it is there as a whole; a look at its seal, no byte of it is read."""
        ...

    def place(self, digest: str) -> Path:
        """Its folder."""
        ...

    def verify(self, digest: str) -> tuple[TreeFault, ...]:
        """Read every byte of it and compare."""
        ...

    def lay(self, digest: str, name: str, target: Path, owner: int | None) -> None:
        """Make ``target`` a copy of its folder ``name``, whole or not at all, given to ``owner``."""
        ...

    def remove(self, digest: str) -> None: ...

    def sweep(self) -> int:
        """Delete what was on its way out when somebody was killed; how many."""
        ...


class Copying(Protocol):
    """A copy between a disk and a remote that runs: used by one thread, in ``with``."""

    def go_on(self) -> None:
        """The server still holds it; without this it ends by itself within seconds."""
        ...

    def cancel(self) -> None:
        """It is to tidy up and end, within seconds."""
        ...

    def kill(self) -> None:
        """Nothing of it runs any more."""
        ...

    def wait(self, seconds: float) -> Progress | CopyEnd:
        """What it told by then, at the latest after so long: its counts, or its end."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Copier(Protocol):
    """What runs copies between disks and remotes."""

    def missing(self) -> str:
        """Why it can run none, ``""``: it can."""
        ...

    def missing_for_block_disks(self) -> str:
        """Why it can mount no block disk, ``""``: it can."""
        ...

    def start(self, order: CopyOrder, *, last: bool = False) -> Copying:
        """Begin one; ``last``: nothing of it is to be left at the remote where it fails."""
        ...


class NoCopier:
    """A platform that copies nothing to and from remotes."""

    def missing(self) -> str:
        return "it was started without rclone"

    def missing_for_block_disks(self) -> str:
        return self.missing()

    def start(self, order: CopyOrder, *, last: bool = False) -> Copying:
        raise Unavailable(f"This platform copies nothing: not {order}, last {last}.")


class NoImages:
    """A platform that builds and has no images."""

    def begin(self, order: BuildOrder) -> None:
        raise Unavailable("This platform builds no images.")

    def look(self, image_id: str) -> BuildLook:
        raise Unavailable(f"This platform builds no images, {image_id} neither.")

    def end(self, image_id: str) -> bool:
        return bool(image_id)

    def builds(self) -> tuple[str, ...]:
        return ()

    def digests(self) -> tuple[str, ...]:
        return ()

    def is_sound(self, digest: str) -> bool:
        return not digest

    def place(self, digest: str) -> Path:
        raise Unavailable(f"This platform has no images, {digest} neither.")

    def verify(self, digest: str) -> tuple[TreeFault, ...]:
        raise Unavailable(f"This platform has no images, {digest} neither.")

    def lay(self, digest: str, name: str, target: Path, owner: int | None) -> None:
        raise Unavailable(f"This platform has no images: no {name} of {digest} for {target} and {owner}.")

    def remove(self, digest: str) -> None:
        raise Unavailable(f"This platform has no images, {digest} neither.")

    def sweep(self) -> int:
        return 0
