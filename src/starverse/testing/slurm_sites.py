"""Settings of the Slurm engine for a lab, requests for jobs, and labs that several tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from starverse.engines.slurm import SlurmSettings
from starverse.engines.slurm.facts import JobRequest
from starverse.testing.slurm_lab import SlurmLab


class StandingLabs:
    """One lab for each ``extra`` of slurm.conf, kept from test to test where a test leaves it as it was."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._standing: dict[str, SlurmLab] = {}

    @contextmanager
    def open(self, extra: str) -> Iterator[SlurmLab]:
        """The one that stands, else a new one; one that is not as new afterwards ends."""
        if extra not in self._standing:
            self._standing[extra] = SlurmLab(nodes=self._nodes, extra=extra).__enter__()
        lab = self._standing[extra]
        try:
            yield lab
        finally:
            if not lab.is_as_new():
                self._standing.pop(extra).stop()

    def close(self) -> None:
        while self._standing:
            self._standing.popitem()[1].stop()


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


def build_request(**changes: object) -> JobRequest:
    """What the engine asks Slurm for, with whatever a test wants otherwise."""
    usual: dict[str, Any] = {
        "name": "a-1",
        "script": "#!/bin/sh\ntrue\n",
        "nodes": ("gpu001",),
        "partition": "all",
        "gres": "gpu:rtx4090:2",
        "cpus": 1,
        "memory_mib": 100,
        "time_minutes": 5,
        "folder": "/tmp",
        "output": "/dev/null",
        "comment": "",
        "pins_by_feature": False,
    }
    return JobRequest(**(usual | changes))
