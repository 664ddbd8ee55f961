"""What a job of the trace is run on: the policy of a replay, by its name."""

from __future__ import annotations

from collections.abc import Callable
from zlib import crc32

from starverse.domain.errors import FieldFault, Invalid
from starverse.domain.tariff import Tariff
from starverse.sim.trace import TraceJob

HELP = "on_demand, spot, spot:0.3 (that share of the jobs, by a hash of their ids) or spot:TEAM,TEAM"


def read_policy(text: str) -> Callable[[TraceJob], Tariff]:
    """Raises ``Invalid`` for a name that is no policy."""
    name, _, rest = text.partition(":")
    if text in ("on_demand", "spot"):
        return lambda job: Tariff(text)
    if name != "spot" or not rest:
        raise Invalid(faults=[FieldFault("policy", text, HELP)])
    try:
        share = float(rest)
    except ValueError:
        teams = frozenset(rest.split(","))
        return lambda job: Tariff.SPOT if job.team in teams else Tariff.ON_DEMAND
    if not 0 <= share <= 1:
        raise Invalid(faults=[FieldFault("policy", text, "a share from 0 to 1")])
    return lambda job: Tariff.SPOT if crc32(job.id.encode()) < share * 2**32 else Tariff.ON_DEMAND
