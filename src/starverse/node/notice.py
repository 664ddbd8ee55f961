"""Telling a workload that it will be stopped: the file, and the signal to processes that handle it."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

from starverse.domain.workloads.launch import LaunchSpec
from starverse.node import processes
from starverse.node.deadlines import Notice
from starverse.node.folder import write_atomically


def write_notice(run: Path, notice: Notice) -> None:
    """Put ``{"reason", "deadline"}`` (RFC 3339, UTC) where ``STARVERSE_NOTICE_FILE`` points."""
    text = json.dumps({"reason": notice.reason, "deadline": format_instant(notice.deadline)})
    write_atomically(run / "notice.json", text + "\n", mode=0o644)
    os.chmod(run / "notice.json", 0o644)  # noqa: PTH101


def signal_targets(spec: LaunchSpec, script: int, inside: list[int]) -> list[int]:
    """Who gets the notice's signal, of the processes ``inside``: those that handle it and no other.

    Without ``--signal`` all of them; with it, as sbatch's manual page has it, the batch shell
    (``script``) alone for ``B:``, else all but the batch shell.
    """
    number = notice_signal(spec)
    if spec.signal_name is not None:
        inside = [pid for pid in inside if (pid == script) == spec.signal_to_batch_shell]
    return [pid for pid in inside if processes.is_handled(pid, number)]


def notice_signal(spec: LaunchSpec) -> int:
    return processes.signal_number(spec.signal_name or "USR1")


def format_instant(instant: float) -> str:
    return datetime.fromtimestamp(instant, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
