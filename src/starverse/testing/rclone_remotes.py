"""Remotes on this machine, by real ``rclone serve``: SFTP or WebDAV over a folder, with a password."""

from __future__ import annotations

import re
import subprocess
import threading
from pathlib import Path
from typing import IO

USER, PASSWORD = "sync", "open-sesame-芝麻"
_LISTENS = re.compile(rb"127\.0\.0\.1:(\d+)")


class ServedRemote:
    """A folder that rclone serves; it can be ended and come back at the same port."""

    def __init__(self, kind: str, root: Path) -> None:
        self.kind, self.root, self.port = kind, root, 0
        self._process: subprocess.Popen[bytes] | None = None
        self.secret = _obscured(PASSWORD)

    @property
    def config(self) -> str:
        """An ``rclone.conf`` with this remote as ``lab``."""
        where = {
            "sftp": f"type = sftp\nhost = 127.0.0.1\nport = {self.port}\n",
            "webdav": f"type = webdav\nurl = http://127.0.0.1:{self.port}\nvendor = other\n",
        }[self.kind]
        return f"[lab]\n{where}user = {USER}\npass = {self.secret}\n"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [
                *("rclone", "serve", self.kind, str(self.root), "--addr", f"127.0.0.1:{self.port}"),
                *("--user", USER, "--pass", PASSWORD, "--config", "/dev/null", "--dir-cache-time", "0s"),
                *("--cache-dir", str(self.root.with_name(f"{self.root.name}-cache"))),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert self._process.stderr is not None
        for line in self._process.stderr:
            found = _LISTENS.search(line)
            if found:
                self.port = int(found[1])
                break
        else:
            raise RuntimeError(f"rclone serve {self.kind} did not begin to listen")
        threading.Thread(target=_drain, args=(self._process.stderr,), daemon=True).start()

    def stop(self) -> None:
        """End it with every connection, as a machine that goes away."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> ServedRemote:
        self.root.mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _drain(stream: IO[bytes]) -> None:
    with stream:
        for _ in stream:
            pass


def _obscured(password: str) -> str:
    told = subprocess.run(
        ["rclone", "obscure", "-"], input=password.encode(), capture_output=True, check=True
    )
    return told.stdout.decode().strip()
