"""Settings of the Slurm engine for a lab."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from starverse.engines.slurm import SlurmSettings
from starverse.testing.slurm_lab import SlurmLab


def lab_settings(lab: SlurmLab, **changes: Any) -> SlurmSettings:
    """All partitions of the lab are the platform's; its cards are declared, as they lead nowhere."""
    settings = SlurmSettings(
        conf=str(lab.conf),
        rest_url=lab.rest_url,
        jwt_key=str(lab.jwt_key),
        partitions=("all", "ib", "eth"),
        declared=True,
        poll_seconds=0.5,
    )
    return replace(settings, **changes)


def lab_variables(lab: SlurmLab, **changes: str) -> dict[str, str]:
    """The same as settings of ``starverse up``, by ``section.key``."""
    settings = {
        "engine.kind": "slurm",
        "slurm.conf": str(lab.conf),
        "slurm.rest_url": lab.rest_url,
        "slurm.jwt_key": str(lab.jwt_key),
        "slurm.partitions": "all,ib,eth",
        "slurm.cards_declared": "true",
        "slurm.poll_seconds": "0.5",
    }
    return {**settings, **{f"slurm.{name}": value for name, value in changes.items()}}
