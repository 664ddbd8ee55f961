"""What the operator set for pip and uv (indexes, mirrors, certificates, proxies), brought into the sandbox.

No index is named here: variables of the server's environment and the installers' own files say it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

_TAKEN = re.compile(
    r"PIP_\w+|UV_\w+|CONTAINERS_\w+|REGISTRY_AUTH_FILE|(?:https?|all|no)_proxy|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE",
    re.IGNORECASE,
)
_LEFT = re.compile(
    r"(?:PIP|UV)_(?:TARGET|PREFIX|ROOT|SRC|USER|CACHE_DIR|NO_CACHE\w*|PYTHON\w*|PROJECT\w*|WORKING_DIR\w*|LOG\w*"
    r"|REQUIRE_VIRTUALENV|TOOL\w*|LINK_MODE|SYSTEM_PYTHON|COMPILE\w*|VENV\w*|QUIET|VERBOSE|DRY_RUN|REPORT)"
)
_USER_FILES = (".config/pip/pip.conf", ".pip/pip.conf", ".config/uv/uv.toml", ".netrc")
_SYSTEM_FILES = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "/etc/uv/uv.toml", "/etc/xdg/uv/uv.toml")
_LOCAL_PATH = re.compile(r"(?:file://)?(/[^\s'\",;]+)")
_SHOWN = ("/usr", "/etc", "/proc", "/dev", "/sys")
"""In the sandbox anyway, or nothing that an index could lie in."""


def variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Those of the server's variables that installers read."""
    return {
        name: value
        for name, value in environment.items()
        if _TAKEN.fullmatch(name) and not _LEFT.fullmatch(name.upper())
    }


def copy_user_files(home: Path, target: Path) -> None:
    """The user's own files, so that they hold for whoever ``target`` is the home of."""
    for name in _USER_FILES:
        if (home / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(home / name, target / name)
            (target / name).chmod(0o600)


def local_folders(environment: Mapping[str, str], home: Path, *more: str) -> tuple[str, ...]:
    """Folders and files of this machine that the configuration names: an index, wheels, a certificate.

    ``more`` are settings that name some, too. The pages of an index point to files beside it, so the folder
    around one that is named is shown.
    """
    texts = [*variables(environment).values(), *more]
    for file in (*map(Path, _SYSTEM_FILES), *(home / name for name in _USER_FILES)):
        if file.is_file() and os.access(file, os.R_OK):
            texts.append(file.read_text("utf-8", "replace"))
    return outermost(_around(Path(found)) for text in texts for found in _LOCAL_PATH.findall(text))


def _around(path: Path) -> Path:
    return path.parent if len(path.parent.parts) > 2 else path


def outermost(paths: Iterable[Path]) -> tuple[str, ...]:
    """Those that exist, not below another one or below what is shown anyway."""
    kept: list[Path] = []
    for path in sorted(set(paths), key=lambda path: (len(path.parts), str(path))):
        shown = any(path.is_relative_to(other) for other in (*map(Path, _SHOWN), *kept))
        if path.exists() and not shown and len(path.parts) > 1:
            kept.append(path)
    return tuple(map(str, kept))
