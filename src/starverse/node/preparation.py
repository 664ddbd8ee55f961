"""What has to lie in an allocation's folder before its workload starts, and whom it belongs to."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from starverse.checkpoint.beneath import open_beneath
from starverse.checkpoint.removing import remove_tree
from starverse.domain.workloads.launch import LaunchSpec
from starverse.domain.workloads.sub_ids import SUB_IDS_EACH
from starverse.node.folder import AllocationFolder
from starverse.node.secrets_folder import FOLDER


def make_folders(spec: LaunchSpec, folder: AllocationFolder) -> None:
    """Make run, home and tmp, the script, the token; give the workload's folders to the team's user.

    ``run`` stays the platform's own and is shown read-only: a notice or a socket there cannot be forged.
    """
    owner = spec.unix_uid if os.geteuid() == 0 else None
    made = {"run": 0o755, "run/bin": 0o755, "plugs": 0o755, "home": 0o700, "tmp": 0o1777}
    for name, mode in made.items():
        path = folder / name
        path.mkdir(exist_ok=True)
        path.chmod(mode)
        if owner is not None and name in ("home", "tmp"):
            os.chown(path, owner, owner)
    if spec.secrets:
        (folder.run / FOLDER).mkdir(exist_ok=True)  # what is in it is never here, see secrets_folder.py
    if spec.home:
        _make_home(Path(spec.home), owner)
    workspace, checkpoints = Path(spec.workspace), Path(spec.checkpoints)
    for path in (workspace, checkpoints):
        path.mkdir(parents=True, exist_ok=True)
    if owner is not None:
        if not _is_of_team(workspace.stat().st_uid, owner, spec.sub_ids_first):
            give(workspace, owner, spec.sub_ids_first)
        # the platform itself may have written there since the last run
        give(checkpoints, owner, spec.sub_ids_first)
    script = folder.run / "script"
    script.write_text(spec.script)
    script.chmod(0o555)
    if spec.api_token is not None:
        token = folder.run / "token"
        handle = os.open(token, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(spec.api_token)
        if owner is not None:
            os.chown(token, owner, owner)


def _make_home(path: Path, owner: int | None) -> None:
    """The folder that is the same ``/root`` over all starts; what is in it stays as it is."""
    path.mkdir(parents=True, exist_ok=True)
    if owner is not None and path.stat().st_uid != owner:
        path.chmod(0o700)
        give(path, owner)


def remove_made(folder: AllocationFolder) -> None:
    """Delete what was made for the workload, and all that it left there."""
    for path in [
        folder / "run",
        folder / "home",
        folder / "tmp",
        folder / "plugs",
        folder / "layer",
        folder / "root",
        folder / "network",
        *folder.path.glob("etc-*"),
        *folder.path.glob("node-*"),
    ]:
        with contextlib.suppress(OSError):
            remove_tree(path)


def give(path: Path, owner: int, others_first: int = 0) -> None:
    """Give what is the platform's own in a tree of any depth to the team's user, without following links.

    What root in a container image gave to others there (``others_first`` is where the team's block of ids
    begins) stays theirs. The top comes last: a tree whose top is the team's was given before.
    """
    waiting = ["."]
    while waiting:
        here = waiting.pop()
        with (
            open_beneath(path, here, os.O_RDONLY | os.O_DIRECTORY) as opened,
            os.scandir(opened.number) as entries,
        ):
            for entry in entries:
                if not _is_of_team(entry.stat(follow_symlinks=False).st_uid, owner, others_first):
                    os.chown(entry.name, owner, owner, dir_fd=opened.number, follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{here}/{entry.name}")
    if not _is_of_team(path.lstat().st_uid, owner, others_first):
        os.chown(path, owner, owner, follow_symlinks=False)


def _is_of_team(uid: int, owner: int, others_first: int) -> bool:
    return uid == owner or bool(others_first and others_first < uid < others_first + SUB_IDS_EACH)
