"""JupyterLab inside an instance: started on demand, and asked whether its kernels do anything.

Standard library only: used by the agent in the sandbox, and run by it as a file (``python -I -S``) with a
connection as standard input and output: a line with what is asked for, a line with the answer. The token
lies in a file that only the user inside can read, never in arguments or in the environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

IMAGE_PYTHON = "/opt/image/bin/python"
PORT = 8888
START_SECONDS_MAX = 60.0
_ASK_SECONDS_MAX = 2.0
_ANSWER_BYTES_MAX = 1 << 20
_CHECK = "import importlib.util, sys; sys.exit(importlib.util.find_spec('jupyterlab') is None)"


class NoJupyter(Exception):
    """Why it could not be started."""


def start(request: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Have JupyterLab listen on 127.0.0.1, started unless it does; answers its port, base URL and token.

    ``request``: ``base_url``, ``port``. ``folder`` is where its configuration and its log are kept. Raises
    :class:`NoJupyter`.
    """
    base_url, port = str(request.get("base_url", "/")), int(request.get("port", PORT))
    known = folder / "server.json"
    with contextlib.suppress(OSError, ValueError):
        answer: dict[str, Any] = json.loads(known.read_text())
        if answer["base_url"] == base_url and answer["port"] == port and _ask(answer, "api") is not None:
            return answer
    if _listens(port):
        raise NoJupyter(f"another program listens on port {port}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    answer = {"port": port, "base_url": base_url, "token": secrets.token_hex(24)}
    _write_private(folder / "jupyter_config.json", json.dumps(_configuration(answer)))
    _write_private(known, json.dumps(answer))
    log = folder / "jupyter.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [find_python(), "-m", "jupyterlab", f"--config={folder / 'jupyter_config.json'}"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=os.environ.get("HOME", "/"),
            start_new_session=True,
        )
    give_up = time.monotonic() + START_SECONDS_MAX
    while _ask(answer, "api") is None:
        if server.poll() is not None:
            raise NoJupyter(f"JupyterLab ended as it started: {_last_line(log)}")
        if time.monotonic() > give_up:
            raise NoJupyter(f"JupyterLab does not listen after {START_SECONDS_MAX:g} s: {_last_line(log)}")
        time.sleep(0.1)
    return answer


def find_python() -> str:
    """The first Python that has JupyterLab: the image's, the one on the path, the platform's.

    Raises :class:`NoJupyter`.
    """
    for python in (
        IMAGE_PYTHON,
        shutil.which("python3"),
        shutil.which("python"),
        os.environ.get("STARVERSE_PYTHON"),
    ):
        if python and Path(python).exists():
            done = subprocess.run([python, "-c", _CHECK], capture_output=True, check=False)
            if done.returncode == 0:
                return python
    raise NoJupyter("JupyterLab is not installed in this image: choose one that has it, such as jupyter")


def last_activity(home: Path) -> tuple[float, str] | None:
    """When a kernel of any Jupyter server of this user last ran something (now, while it does), and what.

    An open notebook whose kernel waits says when it last worked, however often its page asks for news.
    """
    newest: tuple[float, str] | None = None
    for file in (home / ".local/share/jupyter/runtime").glob("jpserver-*.json"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            kernels = _ask(json.loads(file.read_text()), "api/kernels")
            for kernel in kernels if isinstance(kernels, list) else ():
                if kernel["execution_state"] == "busy":
                    seen = (time.time(), f"a {kernel['name']} kernel is busy")
                else:
                    at = datetime.fromisoformat(kernel["last_activity"].replace("Z", "+00:00"))
                    seen = (min(at.timestamp(), time.time()), f"a {kernel['name']} kernel was busy")
                newest = max(newest, seen) if newest else seen
    return newest


def main() -> None:
    """Answer one request."""
    folder = Path(os.environ.get("TMPDIR", "/tmp"), ".starverse-jupyter")
    try:
        answer = start(json.loads(sys.stdin.readline(4096)), folder)
    except (NoJupyter, OSError, ValueError, TypeError, AttributeError) as error:
        answer = {"error": str(error)}
    with contextlib.suppress(OSError):
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _configuration(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Reached through the platform's proxy only, which answers for who may come in."""
    return {
        "ServerApp": {
            "ip": "127.0.0.1",
            "port": answer["port"],
            "port_retries": 0,
            "base_url": answer["base_url"],
            "open_browser": False,
            "allow_remote_access": True,
            "root_dir": "/",
            "quit_button": False,
        },
        "FileContentsManager": {"preferred_dir": "/workspace"},
        "IdentityProvider": {"token": answer["token"]},
        "LabApp": {"default_url": "/lab", "news_url": None, "check_for_updates_class": _NO_UPDATES},
    }


_NO_UPDATES = "jupyterlab.NeverCheckForUpdate"


def _ask(server: Mapping[str, Any], what: str) -> Any:
    """The answer of a server to a GET, as JSON; ``None`` where there is none."""
    request = (
        f"GET {server['base_url']}{what} HTTP/1.0\r\nHost: localhost\r\n"
        f"Authorization: token {server['token']}\r\nConnection: close\r\n\r\n"
    )
    with contextlib.suppress(OSError, ValueError):
        with socket.create_connection(("127.0.0.1", int(server["port"])), timeout=_ASK_SECONDS_MAX) as line:
            line.sendall(request.encode())
            said = b""
            while len(said) < _ANSWER_BYTES_MAX and (part := line.recv(65536)):
                said += part
        head, _, body = said.partition(b"\r\n\r\n")
        if head.split(b" ", 2)[1:2] == [b"200"]:
            return json.loads(body)
    return None


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def _write_private(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)


def _last_line(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else "it said nothing"
    return "it said nothing"


if __name__ == "__main__":
    main()
