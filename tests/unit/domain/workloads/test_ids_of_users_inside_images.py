"""Of each team a block of the host's ids for the users inside its container images, nobody's twice."""

from __future__ import annotations

from starverse.domain.workloads.sub_ids import SUB_IDS_EACH, SUB_IDS_FIRST, sub_ids_first


def test_blocks_of_teams_lie_side_by_side() -> None:
    firsts = [sub_ids_first(200_000 + team, 200_000) for team in range(3)]
    assert firsts == [SUB_IDS_FIRST, SUB_IDS_FIRST + SUB_IDS_EACH, SUB_IDS_FIRST + 2 * SUB_IDS_EACH]


def test_a_team_beyond_the_last_block_has_none() -> None:
    last = (2**31 - SUB_IDS_FIRST) // SUB_IDS_EACH - 1
    assert sub_ids_first(200_000 + last, 200_000) + SUB_IDS_EACH == 2**31
    assert sub_ids_first(200_001 + last, 200_000) == 0
    assert sub_ids_first(199_999, 200_000) == 0, "the block before the first one is somebody else's"
