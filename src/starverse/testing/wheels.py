"""Small wheels made on the spot, and what has installers find these and no index."""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path


def make_wheel(folder: Path, name: str, version: str = "1.0", files: Mapping[str, str] | None = None) -> Path:
    """A wheel of pure Python; ``files`` are put beside its module, which says its version.

    It brings the command ``NAME`` too, which prints the version.
    """
    module = name.replace("-", "_")
    about = f"{module}-{version}.dist-info"
    content = {
        f"{module}.py": f"VERSION = {version!r}\n\n\ndef main():\n    print(VERSION)\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{about}/entry_points.txt": f"[console_scripts]\n{name} = {module}:main\n",
        **(files or {}),
    }
    record = "".join(f"{path},{_hash(text)},{len(text.encode())}\n" for path, text in content.items())
    content[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n"
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w") as wheel:
        for path, text in content.items():
            wheel.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), text)
    return target


def installer_environment(wheels: Path, home: Path) -> dict[str, str]:
    """What has uv and pip find the wheels of a folder, and nothing elsewhere: variables, and a file of uv."""
    (home / ".config/uv").mkdir(parents=True, exist_ok=True)
    (home / ".config/uv/uv.toml").write_text("no-index = true\n")
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    places = {"UV_FIND_LINKS": str(wheels), "PIP_FIND_LINKS": str(wheels), "PIP_NO_INDEX": "1"}
    return {**kept, **places, "HOME": str(home)}


def hash_of(wheel: Path) -> str:
    """As ``--hash=`` takes it."""
    return f"sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}"


def _hash(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
    return f"sha256={digest}"
