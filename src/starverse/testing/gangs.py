"""An allocation on several nodes as plain launcher processes on one machine: what Slurm would start.

Node names are made up; the shared file system is a local folder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from starverse.domain.workloads.launch import Desired, GrantedCard, LauncherState
from starverse.engines.folders.shims import write_shims
from starverse.node.folder import AllocationFolder
from starverse.testing.launches import build_launch

TEAM_UID = 200_002
PATIENCE_SECONDS = 40.0


def node_names(count: int) -> tuple[str, ...]:
    return tuple(f"gpu{number:03d}" for number in range(1, count + 1))


class Gang:
    """``nodes`` launchers of one allocation with two declared cards each. :meth:`close` ends what is left.

    ``environ`` gives each launcher what its engine would, by node number.
    """

    def __init__(
        self,
        data: Path,
        script: str,
        *,
        nodes: int = 2,
        name: str = "gang",
        environ: Callable[[int], dict[str, str]] = lambda index: {},
        **changes: Any,
    ) -> None:
        self.names = node_names(nodes)
        cards = tuple(
            GrantedCard(f"{node}-{index}", index, f"DECLARED-{index}", "rtx4090", declared=True, node=node)
            for node in self.names
            for index in (0, 1)
        )
        uid = TEAM_UID if os.geteuid() == 0 else None
        changes = {"node": self.names[0], "nodes": self.names, "cards": cards, "unix_uid": uid, **changes}
        spec = build_launch(data, name, script=script, **changes)
        self.spec = replace(spec, limits=replace(spec.limits, cpus=4.0))
        self.folder = AllocationFolder(self.spec.folder)
        self.folder.path.mkdir(parents=True, mode=0o700)
        self.folder.path.parent.chmod(0o700)
        self.folder.write_spec(self.spec)
        self._shims = write_shims(data / "shims", sys.executable)
        self._environ = environ
        self.launchers: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, *indices: int) -> None:
        """Start the launchers of these nodes; of all where none is named."""
        for index in indices or range(len(self.names)):
            kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
            with (self.folder / f"launcher-{index}.log").open("ab") as log:
                self.launchers[index] = subprocess.Popen(
                    [sys.executable, "-m", "starverse.node.launcher", self.spec.folder]
                    + (["--node-index", str(index)] if index else []),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**kept, "STARVERSE_SHIMS": str(self._shims), **self._environ(index)},
                    start_new_session=True,
                )

    @property
    def log(self) -> str:
        path = Path(self.spec.logs, f"{self.spec.attempt}.out")
        return path.read_text(errors="replace") if path.exists() else ""

    def state(self, index: int = 0) -> LauncherState | None:
        """What the launcher of a node wrote last."""
        if index == 0:
            return self.folder.read_state()
        with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
            return LauncherState.from_json((self.folder / f"state-{index}.json").read_text())
        return None

    def steer(self, desired: Desired) -> None:
        self.folder.write_desired(desired)

    def until(self, condition: Callable[[], object], what: str = "") -> None:
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < give_up, f"not within {PATIENCE_SECONDS} s: {what}\n{self.tell()}"
            time.sleep(0.01)

    def until_logged(self, text: str) -> None:
        self.until(lambda: text in self.log, f"{text!r} in the log")

    def wait(self) -> LauncherState:
        """Until every launcher that was started has gone; the head's report."""
        self.until(
            lambda: all(launcher.poll() is not None for launcher in self.launchers.values()), "all ended"
        )
        report = self.folder.read_report()
        assert report is not None, self.tell()
        return report

    def kill(self, index: int, number: int = signal.SIGKILL) -> None:
        os.kill(self.launchers[index].pid, number)

    def tell(self) -> str:
        """All that may explain a test that failed."""
        texts = [f"states: {[self.state(index) for index in range(len(self.names))]}", f"log:\n{self.log}"]
        for file in sorted(
            [*self.folder.path.glob("launcher-*.log"), *self.folder.path.glob("node-*/*.log")]
        ):
            texts.append(f"{file.name}:\n{file.read_text(errors='replace')}")
        return "\n".join(texts)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            (self.folder / "revoked").touch()
        for launcher in self.launchers.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                launcher.wait(15)
            if launcher.poll() is None:
                launcher.kill()
                launcher.wait()
