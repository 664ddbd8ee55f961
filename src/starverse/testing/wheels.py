"""Small packages made on the spot, and what has installers find these and no index."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import tarfile
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


def make_channel(folder: Path, name: str, version: str = "1.0") -> Path:
    """A conda channel with one package, which brings the command ``NAME``."""
    build = f"{name}-{version}-0"
    index = {"name": name, "version": version, "build": "0", "build_number": 0, "depends": []}
    index |= {"arch": None, "platform": None, "noarch": "generic", "subdir": "noarch"}
    program = f"#!/bin/sh\necho {version}\n"
    content = {"info/index.json": json.dumps(index), "info/files": f"bin/{name}\n", f"bin/{name}": program}
    entry = {"_path": f"bin/{name}", "path_type": "hardlink", "size_in_bytes": len(program)}
    entry["sha256"] = hashlib.sha256(program.encode()).hexdigest()
    content["info/paths.json"] = json.dumps({"paths_version": 1, "paths": [entry]})
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:bz2") as archive:
        for path, text in content.items():
            info = tarfile.TarInfo(path)
            info.size, info.mode = len(text.encode()), 0o755 if path.startswith("bin/") else 0o644
            archive.addfile(info, io.BytesIO(text.encode()))
    for part, packages in (("linux-64", {}), ("noarch", {f"{build}.tar.bz2": index})):
        (folder / part).mkdir(parents=True, exist_ok=True)
        hashes = {"sha256": hashlib.sha256(made.getvalue()).hexdigest(), "size": len(made.getvalue())}
        told = {file: {**about, **hashes} for file, about in packages.items()}
        repodata = {"info": {"subdir": part}, "packages": told, "packages.conda": {}, "repodata_version": 1}
        (folder / part / "repodata.json").write_text(json.dumps(repodata))
    (folder / "noarch" / f"{build}.tar.bz2").write_bytes(made.getvalue())
    return folder
