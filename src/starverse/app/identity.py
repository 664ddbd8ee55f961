"""Who is calling: what every use case is handed, made by ``auth.identify``."""

from __future__ import annotations

from dataclasses import dataclass

from starverse.domain.ids import AccountId, AllocationId, TeamId, TokenId


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls, for which team, with what rights.

    ``allocation_id`` is set for tokens of scope ``workload`` only; ``role`` is that of the account in the
    team; ``operator`` is never true for team and workload tokens.
    """

    account_id: AccountId
    email: str
    team_id: TeamId
    team_name: str
    operator: bool
    scope: str
    token_id: TokenId
    allocation_id: AllocationId | None
    role: str = "member"
