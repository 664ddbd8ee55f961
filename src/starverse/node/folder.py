"""The allocation's own folder on the host: names, atomic writes, the exclusive claim.

::

    spec.json      what to launch (0600)                    written by the engine
    host.json      what the engine found out about the host written by the engine
    desired.json   what the platform wants, whole           written by the engine
    unclean.json   cards left by a killed launcher, unclean written by the engine
    revoked        the allocation is lost to the platform   written by the engine
    cleaned        nothing is left outside this folder      written by the engine
    claim.lock     flock held for the launcher's life       launcher
    claimed-by     boot id of the host that claimed, once   launcher
    state.json     newest LauncherState, each second        launcher
    report.json    the final LauncherState, fsynced         launcher
    outputs.json   where --output and --error begin         launcher
    limits.json    which limits hold, and which do not      launcher
    launcher.log start.err                                  launcher, sandbox
    network/       what pasta watches; rate.json: the rate asked for, and why it does not hold
    run/           /run/starverse: script, token, api.sock, notice.json, bin/
    home/ tmp/     the sandbox's /root and /tmp
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from dataclasses import asdict
from pathlib import Path

from starverse.domain.workloads.launch import Desired, LauncherState, LaunchSpec, UncleanCard
from starverse.node.steady_clock import read_boot_id

CLAIM_PATIENCE_SECONDS = 2.0
"""How long a launcher tries for a claim that somebody holds without having written a state yet."""


class AllocationFolder:
    """Paths and files of one allocation; every read answers ``None`` for what is not there (yet)."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def __truediv__(self, name: str) -> Path:
        return self.path / name

    @property
    def run(self) -> Path:
        return self.path / "run"

    def read_spec(self) -> LaunchSpec:
        """Raises ``OSError`` or ``ValueError`` where there is no launch spec of this version."""
        return LaunchSpec.from_json((self / "spec.json").read_text())

    def read_state(self) -> LauncherState | None:
        """The final report, else the newest state; one that is damaged counts as not there."""
        return self.read_report() or self._read_state_of("state.json")

    def read_report(self) -> LauncherState | None:
        """The final report; one that is damaged counts as not there."""
        return self._read_state_of("report.json")

    def _read_state_of(self, name: str) -> LauncherState | None:
        try:
            return LauncherState.from_json((self / name).read_text())
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def read_desired(self) -> Desired | None:
        text = _read(self / "desired.json")
        return None if text is None else Desired.from_json(text)

    def has(self, name: str) -> bool:
        return (self / name).exists()

    def is_revoked(self) -> bool:
        """Whether the allocation is lost to the platform: it says so, or the folder is no more, so that
        nobody will ever know of this launcher again."""
        if self.has("revoked"):
            return True
        try:
            (self / "claim.lock").stat()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return False

    def write_spec(self, spec: LaunchSpec) -> None:
        write_atomically(self / "spec.json", spec.to_json())

    def write_state(self, state: LauncherState) -> None:
        write_atomically(self / "state.json", state.to_json())

    def write_report(self, state: LauncherState) -> None:
        write_atomically(self / "report.json", state.to_json(), durable=True)

    def write_unclean(self, cards: tuple[UncleanCard, ...]) -> None:
        write_atomically(self / "unclean.json", json.dumps([asdict(card) for card in cards]))

    def read_unclean(self) -> tuple[UncleanCard, ...]:
        """``()`` where nothing was written down."""
        text = _read(self / "unclean.json")
        return () if text is None else tuple(UncleanCard(**card) for card in json.loads(text))

    def write_desired(self, desired: Desired) -> None:
        write_atomically(self / "desired.json", desired.to_json())

    def claim(self) -> int | None:
        """Take the claim; the open file is the claim, so keep it. ``None``: this launcher is not needed.

        A claim is good once only: where a state was ever written, the allocation ran already.
        """
        lock = os.open(self / "claim.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        give_up = time.monotonic() + CLAIM_PATIENCE_SECONDS
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if self.has("state.json") or time.monotonic() > give_up:
                    os.close(lock)
                    return None
                time.sleep(0.01)
                continue
            used = self.has("state.json") or self.has("report.json") or self.has("revoked")
            if used or not self._claim_for_this_host():
                os.close(lock)
                return None
            return lock

    def _claim_for_this_host(self) -> bool:
        """Make a name that can be made once only, on every shared file system: a lock may hold on one host.

        Between launchers of one host the lock decides, so that the next one follows one that died at once.
        """
        host = read_boot_id()
        aside = self / f".claimed-{os.getpid()}-{host}"
        try:
            write_atomically(aside, host)
            os.link(aside, self / "claimed-by")
        except FileExistsError:
            return _read(self / "claimed-by") == host
        except OSError:  # a full disk, or one without links: the lock has to do
            return True
        finally:
            aside.unlink(missing_ok=True)
        return True

    def is_free(self) -> bool:
        """Whether nobody holds the lock, also where no state was written. Only where ``revoked`` is written:
        looking takes the lock for a moment, and could cost a launcher its claim."""
        lock = os.open(self / "claim.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(lock)
        return True

    def is_claimed(self) -> bool:
        """Whether a living launcher holds the claim.

        Looks only where a state or report was written, so that looking can never cost a launcher its claim.
        """
        if not self.has("state.json") and not self.has("report.json"):
            return False
        try:
            lock = os.open(self / "claim.lock", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False


def write_atomically(path: Path, text: str, *, durable: bool = False, mode: int = 0o600) -> None:
    """Readers see the old text or the new one, never a part; ``durable``: it survives a power cut.

    Raises ``OSError``, with the old text in place, where the disk does not take all of it.
    """
    aside = path.with_name(f".{path.name}.new")
    handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        left = memoryview(text.encode())
        while left:
            left = left[os.write(handle, left) :]
        if durable:
            os.fsync(handle)
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
    finally:
        os.close(handle)
    aside.rename(path)
    if durable:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _read(path: Path) -> str | None:
    try:
        return path.read_text()
    except FileNotFoundError:
        return None
