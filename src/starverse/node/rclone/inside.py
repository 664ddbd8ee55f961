"""Runs one copy inside its sandbox: rclone, what follows what it says, and where files get their names.

Run as a file by its path (``python -I -S``), so it imports the standard library only and nothing of ours. Its
order is a file that only this sandbox has. On standard input comes a line every few seconds: ``go on``, or
``cancel``; when nothing comes for long, nobody holds this copy any more, and it ends. On standard output go
lines of JSON: counts while it runs, and at last one with ``end``.

A pull has rclone write into a folder aside and compare with the disk; each file that is whole moves into the
disk by a rename that follows no link. A push to a remote where files have their names before they are whole
goes into a folder aside there, and the remote renames. So whatever is killed when, no name has half a file.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONFIG, ORDER = "/run/rclone/rclone.conf", "/run/rclone/order.json"
SILENCE_SECONDS_MAX = 12.0
PURGE_SECONDS_MAX = 8.0
LINE_BYTES_MAX = 1 << 20
ERRORS_KEPT = 3
REMOTE, ASIDE = "starverse-remote", "starverse-aside"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_COMMON = (
    *("--config", CONFIG, "--use-json-log", "-v", "--stats", "1s", "--ask-password=false"),
    *("--retries", "1", "--low-level-retries", "2", "--contimeout", "15s", "--timeout", "30s"),
    *("--multi-thread-streams", "0", "--cache-dir", "/tmp/cache", "--temp-dir", "/tmp"),
)
_EXIT_NOT_FOUND = (3, 4)
_EXIT_TOO_MUCH = 8
_REFUSED = (
    "unable to authenticate",
    "didn't find section in config file",
    "didn't find backend called",
    "access denied",
    "accessdenied",
    "invalidaccesskeyid",
    "signaturedoesnotmatch",
    "401 unauthorized",
    "403 forbidden",
    "couldn't decrypt",
    "unauthorized",
)


class Stopped(Exception):
    """Why the copy ends now: ``ending`` and words for the sync's owner."""

    def __init__(self, ending: str, message: str) -> None:
        self.ending = ending
        super().__init__(message)


class Listener:
    """What the server says: it goes on, or it is cancelled; or nothing, for too long."""

    def __init__(self, readable: int = 0, silence_seconds: float = SILENCE_SECONDS_MAX) -> None:
        self._readable = readable
        self._silence = silence_seconds
        self._running: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self.stopped: Stopped | None = None

    def start(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()

    def guard(self, process: subprocess.Popen[bytes] | None) -> None:
        """The process that is killed when all ends."""
        with self._lock:
            self._running = process
            if process is not None and self.stopped is not None:
                process.kill()

    def _listen(self) -> None:
        heard, text = time.monotonic(), b""
        while True:
            left = heard + self._silence - time.monotonic()
            if left <= 0 or not select.select([self._readable], [], [], left)[0]:
                return self._stop(Stopped("interrupted", "its server does not answer"))
            piece = os.read(self._readable, 4096)
            if not piece:
                return self._stop(Stopped("interrupted", "its server ended"))
            heard, text = time.monotonic(), (text + piece)[-4096:]
            if b"cancel" in text:
                return self._stop(Stopped("cancelled", "cancelled"))

    def _stop(self, why: Stopped) -> None:
        with self._lock:
            self.stopped = why
            if self._running is not None:
                self._running.kill()


class Copy:
    """One copy by its order."""

    def __init__(self, order: dict[str, Any], listener: Listener) -> None:
        self._order = order
        self._listener = listener
        self._below = order["folder"].split("/") if order["folder"] else []
        self._disk: str = order["root"]
        self._folder = "/".join((self._disk, *self._below))
        self._left_out = tuple(w for name in order["leave_out"] for w in ("--exclude", f"/{name}/**"))
        self._aside = f"/disk/{order['aside']}"
        self._links: set[str] = set()
        self._by_size = 0
        self._most: int | None = None
        self._errors: list[str] = []

    def run(self) -> dict[str, Any]:
        """Copy, then compare where that was asked for; the last line to tell."""
        pull = self._order["direction"] == "pull"
        verified = False
        try:
            check_way(self._disk, self._below, make=pull)
            if pull:
                self._pull()
            else:
                self._push()
            if self._order["verify"]:
                self._compare()
                verified = True
        except Stopped as why:
            ending = {"end": why.ending, "message": str(why), "verified": False}
        else:
            ending = {"end": "done", "message": self._remarks(), "verified": verified}
        if pull:
            shutil.rmtree(self._aside, ignore_errors=True)
        elif ending["end"] in ("cancelled", "failed") or (self._order["last"] and ending["end"] != "done"):
            self._purge()
        return ending

    def _pull(self) -> None:
        room = self._most = max(1, self._room())
        Path(self._aside).mkdir(exist_ok=True)
        limit = ("--max-transfer", f"{room}B", "--cutoff-mode", "hard", "--local-no-preallocate")
        words = ("copy", f"{REMOTE}:{self._order['path']}", self._aside, "--compare-dest", self._folder)
        code = self._rclone((*words, *_FOLDERS_TOO, *self._limits(), *limit, *self._left_out), self._publish)
        if code == _EXIT_TOO_MUCH:
            raise Stopped("interrupted", self._full())
        self._settle(code)
        self._most = None
        try:
            publish_rest(self._aside, self._below, self._disk)
        except OSError as error:
            raise _unwritable(error, self._folder) from error

    def _push(self) -> None:
        path = self._order["path"]
        if not self._order["in_place"]:
            words = ("copy", self._folder, f"{REMOTE}:{path}", *_FOLDERS_TOO, *self._limits())
            words = (*words, *self._left_out)
            self._settle(self._rclone(words))
            return
        aside = self._aside_there()
        self._settle(self._rclone(("mkdir", aside), quiet=True))  # where nothing is to be sent none would be
        compared = ("--compare-dest", f"{ASIDE}:{path}", *self._left_out)
        self._settle(self._rclone(("copy", self._folder, aside, *compared, *_FOLDERS_TOO, *self._limits())))
        named = ("move", aside, f"{REMOTE}:{path}", "--server-side-across-configs", "--delete-empty-src-dirs")
        self._settle(self._rclone((*named, *_FOLDERS_TOO), quiet=True))
        self._rclone(("rmdirs", aside), quiet=True)

    def _compare(self) -> None:
        """Every byte: where the remote has no checksums, by reading it."""
        tell({"checking": True})
        here, there = self._folder, f"{REMOTE}:{self._order['path']}"
        both = (there, here) if self._order["direction"] == "pull" else (here, there)
        words = ("check", *both, "--one-way", *self._limits(), *self._left_out)
        self._errors, self._by_size = [], 0
        code = self._rclone(words, quiet=True)
        if code == 0 and self._by_size:
            self._errors = []
            code = self._rclone((*words, "--download"), quiet=True)
        if code and any("differ" in error or "not in" in error for error in self._errors):
            raise Stopped("interrupted", f"what was copied is not the same: {self._told()}")
        self._settle(code)

    def _purge(self) -> None:
        if not self._order["in_place"]:
            return
        words = ("purge", self._aside_there(), "--contimeout", "3s", "--timeout", "5s")
        try:
            command = ["rclone", *_COMMON, *words]
            subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PURGE_SECONDS_MAX, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return  # the remote is away: what is left there has a name of ours and is never read

    def _aside_there(self) -> str:
        path = self._order["path"].rstrip("/")
        return f"{ASIDE}:{path}/{self._order['aside']}" if path else f"{ASIDE}:{self._order['aside']}"

    def _limits(self) -> tuple[str, ...]:
        most = self._order["bytes_per_second_max"]
        return ("--bwlimit", f"{most}B") if most else ()

    def _room(self) -> int:
        free = os.statvfs(self._disk)
        here: int = free.f_bavail * free.f_frsize - self._order["reserve_bytes"]
        quota: int | None = self._order["quota_bytes"]
        return here if quota is None else min(here, quota - used_bytes(self._disk))

    def _full(self) -> str:
        quota: int | None = self._order["quota_bytes"]
        if quota is None:
            return "the disk is full; resize it or remove files"
        held = used_bytes(self._disk)
        if self._room() >= quota - held:
            return (
                f"the disk is full: of its {quota >> 30} GiB {held} bytes are used; resize it or remove files"
            )
        return "the platform's storage is full; the operator has to make room"

    def _rclone(
        self, words: tuple[str, ...], copied: Callable[[str], None] | None = None, *, quiet: bool = False
    ) -> int:
        """Run it to its end; its exit code. Raises :class:`Stopped` where everything ends."""
        if self._listener.stopped is not None:
            raise self._listener.stopped
        process = subprocess.Popen(
            ["rclone", *_COMMON, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._listener.guard(process)
        said = process.stderr
        assert said is not None
        try:
            for line in iter(lambda: said.readline(LINE_BYTES_MAX), b""):
                self._hear(line, copied, quiet)
        except BaseException:
            process.kill()
            raise
        finally:
            said.close()
            code = process.wait()
            self._listener.guard(None)
        if self._listener.stopped is not None:
            raise self._listener.stopped
        return code

    def _hear(self, line: bytes, copied: Callable[[str], None] | None, quiet: bool) -> None:
        try:
            said = json.loads(line)
        except ValueError:
            text = line.decode("utf-8", "replace").strip()
            if text:
                self._errors.append(text.partition("Failed to ")[2] or text)
            return
        message = str(said.get("msg", "")).strip()
        if "stats" in said:
            told = counts(said["stats"])
            if not quiet:
                tell(told)
            if self._most is not None and told["bytes_total"] > self._most:
                raise Stopped("interrupted", self._full())  # without moving what will not fit
        elif message.startswith(("Copied", "Multi-thread Copied")) and copied is not None:
            copied(str(said.get("object", "")))
        elif "hashes could not be checked" in message or "No common hash found" in message:
            self._by_size += 1
        elif said.get("level") in ("error", "critical", "fatal"):
            name = str(said.get("object", ""))
            self._errors.append(f"{name}: {message}" if name and "object" in said else message)
        elif "symlink" in message.lower():
            self._links.add(str(said.get("object", "")))

    def _publish(self, name: str) -> None:
        try:
            publish(self._aside, self._below, name, self._disk)
        except FileNotFoundError:
            return  # it has another name here; those that are left are published at the end
        except OSError as error:
            raise _unwritable(error, name) from error

    def _settle(self, code: int) -> None:
        """Raises :class:`Stopped` with what rclone's exit code and words come to."""
        if code == 0:
            return
        told = self._told()
        if code < 0:
            raise Stopped("interrupted", f"rclone was ended by signal {-code}")
        if code in _EXIT_NOT_FOUND:
            where = "there is no such folder at the remote"
            if self._order["direction"] == "push":
                where = "the remote has no such place, and none can be made there"
            raise Stopped("failed", f"{where}: {told}")
        if "no space left" in told.lower():
            raise Stopped("interrupted", self._full())
        refused = any(word in told.lower() for word in _REFUSED)
        raise Stopped("failed" if refused or code == 7 else "interrupted", told)

    def _told(self) -> str:
        if not self._errors:
            return "rclone ended without saying why"
        kept = list(dict.fromkeys(error[:300] for error in self._errors))
        more = f"; and {len(kept) - ERRORS_KEPT} more" if len(kept) > ERRORS_KEPT else ""
        return "; ".join(kept[:ERRORS_KEPT]) + more

    def _remarks(self) -> str:
        return f"{len(self._links)} links were left out" if self._links else ""


_FOLDERS_TOO = ("--create-empty-src-dirs",)


def counts(stats: dict[str, Any]) -> dict[str, Any]:
    """rclone's statistics in our words."""
    return {
        "bytes_done": int(stats.get("bytes") or 0),
        "bytes_total": int(stats.get("totalBytes") or 0),
        "files_done": int(stats.get("transfers") or 0),
        "files_total": int(stats.get("totalTransfers") or 0),
        "bytes_per_second": int(stats.get("speed") or 0),
    }


def check_way(disk: str, folder: list[str], *, make: bool) -> None:
    """That the folder is there (or is made), and that no part of it is a link."""
    try:
        os.close(_walk(disk, folder, make=make))
    except FileNotFoundError:
        raise Stopped("failed", f"there is no folder {'/'.join(folder)} on the disk") from None
    except OSError as error:
        raise _unwritable(error, "/".join(folder)) from error


def publish(aside: str, folder: list[str], name: str, disk: str) -> None:
    """Give one file that is whole its name on the disk; no part of the way there may be a link."""
    parts = name.split("/")
    if ".." in parts or not parts[-1]:
        raise PermissionError(f"{name} leads out of the folder")
    source = _walk(aside, parts[:-1], make=False)
    try:
        target = _walk(disk, [*folder, *parts[:-1]], make=True)
        try:
            os.rename(parts[-1], parts[-1], src_dir_fd=source, dst_dir_fd=target)
        finally:
            os.close(target)
    finally:
        os.close(source)


def publish_rest(aside: str, folder: list[str], disk: str) -> None:
    """What is whole and was not published under the name that rclone told: all that is left, with folders."""
    for path, _, names in os.walk(aside):
        below = os.path.relpath(path, aside)
        parts = [] if below == "." else below.split("/")
        os.close(_walk(disk, [*folder, *parts], make=True))
        for name in names:
            publish(aside, folder, "/".join((*parts, name)), disk)


def used_bytes(root: str) -> int:
    """What a folder holds on its file system; a file with several names counts once."""
    total, seen = 0, set()
    for path, folders, names in os.walk(root):
        for name in (*folders, *names):
            try:
                facts = Path(path, name).lstat()
            except OSError:
                continue
            if facts.st_nlink == 1 or stat.S_ISDIR(facts.st_mode):
                total += facts.st_blocks * 512
            elif (facts.st_dev, facts.st_ino) not in seen:
                seen.add((facts.st_dev, facts.st_ino))
                total += facts.st_blocks * 512
    return total


def tell(line: dict[str, Any]) -> None:
    os.write(1, json.dumps(line).encode() + b"\n")


def _walk(root: str, parts: list[str], *, make: bool) -> int:
    """A descriptor of the folder below ``root``; follows no link."""
    here = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    for part in parts:
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=here)
            below = os.open(part, _FOLDER, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here


def _unwritable(error: OSError, name: str) -> Stopped:
    if isinstance(error, NotADirectoryError) or error.errno == 40:
        return Stopped("failed", f"{name}: a link or a file is in the way on the disk; no link is followed")
    if isinstance(error, IsADirectoryError):
        return Stopped("failed", f"{name} is a folder on the disk and a file at the remote")
    return Stopped("interrupted", f"{name}: {error.strerror}")


def main() -> int:
    order = json.loads(Path(ORDER).read_text("utf-8"))
    listener = Listener()
    listener.start()
    try:
        ending = Copy(order, listener).run()
    except Stopped as why:
        ending = {"end": why.ending, "message": str(why), "verified": False}
    except Exception as error:
        ending = {"end": "interrupted", "message": f"{type(error).__name__}: {error}", "verified": False}
    tell(ending)
    return 0


if __name__ == "__main__":
    sys.exit(main())
