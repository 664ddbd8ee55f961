"""A launch spec with every field filled in, for tests of launchers, engines and drivers."""

from __future__ import annotations

import secrets
from dataclasses import replace
from pathlib import Path
from typing import Any

from starverse.domain.workloads.launch import GrantedCard, LaunchSpec, Limits

MIB = 1024**2
_OURS = secrets.token_hex(4)


def own(name: str) -> str:
    """An allocation id that no other process of tests uses: what runs is found by it on the whole host."""
    return f"{name}-{_OURS}"


def build_launch(data: Path, allocation_id: str = "a-1", **changes: Any) -> LaunchSpec:
    """A bash job on two declared cards with folders below ``data``; ``script`` without its first line."""
    body = changes.pop("script", "true\n")
    job = data / "jobs" / allocation_id
    spec = LaunchSpec(
        allocation_id=allocation_id,
        job_id=f"job-{allocation_id}",
        job_number="123",
        team_id="team-1",
        attempt=1,
        node="declared-1",
        cards=tuple(
            GrantedCard(f"card-{index}", index, f"GPU-declared-{index}", "rtx4090", declared=True)
            for index in (0, 1)
        ),
        script=f"#!/bin/bash\n{body}",
        arguments=(),
        environment=(),
        folder=str(data / "allocations" / allocation_id),
        workspace=str(job / "workspace"),
        checkpoints=str(job / "checkpoints"),
        logs=str(job / "logs"),
        output="slurm-123.out",
        error=None,
        open_mode="truncate",
        chdir=".",
        mounts=(),
        limits=Limits(cpus=1.0, memory_bytes=512 * MIB),
        resume_from="",
        template=None,
        driver="bwrap",
        network="none",
        unix_uid=None,
        time_limit_seconds=3600,
        funded_seconds=3600,
        grace_seconds=2,
        signal_name=None,
        signal_seconds_before_end=60,
        signal_to_batch_shell=False,
        log_cap_bytes=64 * MIB,
        channel=str(data / "channel.sock"),
        channel_token="channel-secret",
        api_socket=None,
        api_token=None,
        kill_after_seconds=1,
    )
    return replace(spec, **changes)
