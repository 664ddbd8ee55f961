"""``starverse doctor``: what this machine offers, each answer with its remedy."""

from __future__ import annotations

import json
from pathlib import Path

import click

ONLY_ON_HARDWARE = (
    "NVML on real cards: UUIDs, memory, NVLink and PCIe topology, health",
    "CUDA inside the sandbox (device nodes of the granted cards only)",
    "figures of a network by NCCL, nccl-tests and ib_write_bw (TCP and gloo were tried)",
)
"""What could only be tried on hardware that the developers did not have; said by doctor and the docs."""


@click.command("doctor")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), metavar="DIR", help="Data folder.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(data: Path | None, as_json: bool) -> None:
    """Check everything this machine offers to workloads; exit code 1 when something needed is missing."""
    from starverse.config import load
    from starverse.node.doctor import examine
    from starverse.node.doctor_surroundings import Rates
    from starverse.node.findings import Health

    config = load().config
    engine = config.engine
    findings = examine(
        data or config.server.data,
        Rates(engine.disk_bytes_per_second, engine.disk_node_bytes_per_second),
        Rates(engine.network_bytes_per_second, engine.network_node_bytes_per_second),
    )
    if as_json:
        document = {
            "version": 1,
            "findings": [
                {"name": f.name, "health": f.health.value, "what": f.what, "remedy": f.remedy}
                for f in findings
            ],
            "only_tried_on_hardware": list(ONLY_ON_HARDWARE),
        }
        click.echo(json.dumps(document, indent=2))
    else:
        for finding in findings:
            click.echo(f"{finding.health.value:<8} {finding.name}: {finding.what}")
            if finding.remedy:
                click.echo(f"         remedy: {finding.remedy}")
        for untried in ONLY_ON_HARDWARE:
            click.echo(f"untried  {untried} (needs hardware that this version was not tried on)")
    if any(finding.health is Health.MISSING for finding in findings):
        raise SystemExit(1)
