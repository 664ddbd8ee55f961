"""Launchers started by a root platform and by an ordinary user, for tests that try both."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import starverse
from starverse.domain.workloads.launch import Desired, LauncherState, LaunchSpec
from starverse.engines.folders.leftovers import LastCopies
from starverse.engines.local.cleaning import clean_up
from starverse.node.folder import AllocationFolder
from starverse.testing.launches import build_launch

TEAM_UID, OTHER_TEAM_UID = 200_001, 200_002
ORDINARY_UID = 65_534
PATIENCE_SECONDS = 60.0
"""A busy machine may take its time; what comes, comes at once elsewhere."""
SOURCE = Path(starverse.__file__).parents[1]
PLATFORM_KINDS = ("root", "ordinary user")


_DEVICES = (
    "mount --make-rprivate /; mount -t tmpfs -o mode=755 none /mnt;"
    "mknod -m 666 /mnt/fuse c 10 229; mknod -m 666 /mnt/tun c 10 200; mount --bind /mnt/fuse /dev/fuse;"
    'if [ -e /dev/net/tun ]; then mount --bind /mnt/tun /dev/net/tun; fi; exec "$@"'
)
WITH_DEVICES = ("unshare", "-m", "sh", "-ec", _DEVICES, "sh") if os.geteuid() == 0 else ()
"""Put before what is to run where everybody may open /dev/fuse and /dev/net/tun, as udev has it."""


class NotHere(Exception):
    """This kind of platform cannot be had on this machine; the text says why."""


@dataclass
class Platform:
    """Who runs the launchers: root, or an ordinary user."""

    name: str
    data: Path
    python: str
    prefix: tuple[str, ...] = ()
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def is_root(self) -> bool:
        return self.name == "root"

    def build(self, name: str, uid: int = TEAM_UID, **changes: Any) -> LaunchSpec:
        """A launch as :func:`build_launch` makes it, for a workload of the team's user ``uid``."""
        if self.python != sys.executable or "PYTHONPATH" in os.environ:  # starverse is not installed there
            changes["environment"] = (*changes.get("environment", ()), ("PYTHONPATH", str(SOURCE)))
        return build_launch(self.data, name, unix_uid=uid if self.is_root else None, **changes)

    @property
    def workload_uid(self) -> int:
        """The host's user that workloads run as, of the first team."""
        if self.is_root:
            return TEAM_UID
        return ORDINARY_UID if os.geteuid() == 0 else os.getuid()

    def begin(self, spec: LaunchSpec) -> None:
        folder = Path(spec.folder)
        folder.mkdir(parents=True, mode=0o700)
        AllocationFolder(folder).write_spec(spec)
        if not self.is_root and os.geteuid() == 0:
            give_all(self.data, ORDINARY_UID)
        log = (folder / "launcher.log").open("wb")
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "PYTHONDONTWRITEBYTECODE": "1"}
        with log:
            self.started.append(
                subprocess.Popen(
                    [*self.prefix, self.python, "-m", "starverse.node.launcher", str(folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                )
            )

    def wait(self, spec: LaunchSpec, phase: str) -> None:
        """Until the allocation is in ``phase`` (or ended)."""
        folder, give_up = AllocationFolder(spec.folder), time.monotonic() + PATIENCE_SECONDS
        while True:
            state = folder.read_state()
            if state is not None and state.phase in (phase, "ended"):
                assert not state.failure, state.failure
                return
            assert time.monotonic() < give_up, (folder / "launcher.log").read_text()
            time.sleep(0.01)

    def state(self, spec: LaunchSpec) -> LauncherState:
        """The newest report, which has to be there."""
        state = AllocationFolder(spec.folder).read_state()
        assert state is not None
        return state

    def want(self, spec: LaunchSpec, **wanted: Any) -> None:
        """Tell the launcher what is wanted of it, as an engine does."""
        AllocationFolder(spec.folder).write_desired(Desired(**wanted))
        if not self.is_root and os.geteuid() == 0:
            os.chown(Path(spec.folder, "desired.json"), ORDINARY_UID, ORDINARY_UID)

    def close(self) -> None:
        for launcher in self.started:
            launcher.kill()
            launcher.wait()
        if (self.data / "allocations").is_dir():
            for folder in (self.data / "allocations").iterdir():
                clean_up(AllocationFolder(folder), lambda: None, LastCopies(patience_seconds=60))


def give_all(path: Path, uid: int) -> None:
    for folder, _, names in os.walk(path):
        for name in ("", *names):
            os.chown(Path(folder, name), uid, uid, follow_symlinks=False)


def _find_python(prefix: tuple[str, ...]) -> str | None:
    """A Python that the ordinary user can run: the platform's own may lie where only root can read."""
    check = "import sys; sys.exit(sys.version_info < (3, 11))"
    for python in (sys.executable, "/usr/bin/python3", "/usr/bin/python3.11", "/usr/bin/python3.12"):
        # through sh, so that the user and not root looks the file up
        command = [*prefix, "/bin/sh", "-c", f'"{python}" -c "{check}" && test -r "{starverse.__file__}"']
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return python
    return None


@contextlib.contextmanager
def open_platform(kind: str, tmp_path: Path, before: tuple[str, ...] = ()) -> Iterator[Platform]:
    """One of :data:`PLATFORM_KINDS`; ``before`` is a command that is put before an ordinary user's own.

    Raises :class:`NotHere`.
    """
    am_root = os.geteuid() == 0
    own_folder = None
    if kind == "root":
        if not am_root:
            raise NotHere("a root platform needs root")
        made = Platform("root", tmp_path / "data", sys.executable, before)
        made.data.mkdir(mode=0o700)  # below a 0700 parent as well: pytest's own
    else:
        prefix = before
        own_folder = Path(tempfile.mkdtemp(prefix="starverse-contract-"))
        if am_root:
            number = str(ORDINARY_UID)
            prefix += ("setpriv", "--reuid", number, "--regid", number, "--clear-groups")
            prefix += ("--inh-caps=-all", "--bounding-set=-all")
            os.chown(own_folder, ORDINARY_UID, ORDINARY_UID)
        python = _find_python(prefix)
        if python is None:
            shutil.rmtree(own_folder, ignore_errors=True)
            raise NotHere("no Python >= 3.11 that an ordinary user could run with this checkout")
        made = Platform("ordinary user", own_folder / "data", python, prefix)
        made.data.mkdir()
    try:
        yield made
    finally:
        made.close()
        if own_folder is not None:
            shutil.rmtree(own_folder, ignore_errors=True)


OBEYING = """
while :; do
    if [ -e ask ]; then bash ask > said 2>&1; echo "exit $?" >> said; mv said answer; rm ask; fi
    sleep 0.02
done
"""
"""A script that does what :func:`ask` writes into its workspace."""


def ask(spec: LaunchSpec, command: str, seconds: float = PATIENCE_SECONDS) -> str:
    """Have the script :data:`OBEYING` run a command inside; its output, which ends with ``exit CODE``."""
    folder = Path(spec.workspace)
    (folder / "answer").unlink(missing_ok=True)
    (folder / ".ask").write_text(command)
    (folder / ".ask").chmod(0o644)
    (folder / ".ask").rename(folder / "ask")
    give_up = time.monotonic() + seconds
    while not (folder / "answer").exists() or (folder / "ask").exists():
        assert time.monotonic() < give_up, (command, AllocationFolder(spec.folder).read_state())
        time.sleep(0.01)
    return (folder / "answer").read_text().strip()


def wait_for(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS, what: str = "") -> None:
    """Until the condition holds, which it has to in time."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up, what or "it did not come true"
        time.sleep(0.01)
