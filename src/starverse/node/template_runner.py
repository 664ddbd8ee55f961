"""One act of the checkpoint template, in a process of its own: ``FOLDER restore|periodic|final``.

It becomes the team's user first, so that nothing a script puts into its folders is touched with more
rights than the script has, and what is restored belongs to the script. Prints one line for the log.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from starverse.checkpoint import hashing
from starverse.checkpoint.errors import CheckpointError
from starverse.checkpoint.publish import Origin
from starverse.domain.workloads.launch import LaunchSpec
from starverse.node.checkpoint_template import CopyOutcome, Rehash, Template, publish_copy, restore_copy
from starverse.node.folder import AllocationFolder
from starverse.node.sandbox.staging import die_with, enter_as_user
from starverse.node.template_keeping import PUBLISHED

ACTS = ("restore", "periodic", "final")


def start_act(folder: Path, act: str) -> subprocess.Popen[str]:
    """Start an act beside the caller; its output is one line, its exit code 0 when it was done."""
    return subprocess.Popen(
        [sys.executable, "-m", "starverse.node.template_runner", str(folder), act, str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def perform(spec: LaunchSpec, workspace: Path, checkpoints: Path, act: str) -> str:
    """Do the act; answers what the log says, ``""``: nothing worth a line."""
    if spec.template is None:
        return ""
    origin = Origin(attempt=spec.attempt, run=spec.job_id)
    template = Template(
        workspace, spec.template.folder, checkpoints, origin, reserve_bytes=spec.disk_reserve_bytes
    )
    if act == "restore":
        item = restore_copy(template)
        return "" if item is None else f"checkpoint {item.path.name} restored to {spec.template.folder}"
    result = publish_copy(template, Rehash.NEVER if act == "final" else Rehash.RECENT)
    if result.outcome is CopyOutcome.PUBLISHED and result.checkpoint is not None:
        return f"checkpoint {result.checkpoint.path.name}{PUBLISHED}{spec.template.folder}"
    return "" if result.outcome is CopyOutcome.UNCHANGED else f"no checkpoint: {result.reason}"


def main(arguments: list[str]) -> int:
    folder, act, parent = arguments
    spec = AllocationFolder(folder).read_spec()
    hashing.default_algorithm()  # imported while the platform's own folders can still be read
    workspace, checkpoints = enter_as_user(
        [(spec.workspace, False), (spec.checkpoints, False)], spec.unix_uid
    )
    die_with(int(parent))
    try:
        line = perform(spec, Path(workspace), Path(checkpoints), act)
    except (CheckpointError, OSError) as error:
        print(f"no checkpoint: {error}", flush=True)  # noqa: T201
        return 1
    print(line, flush=True)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
