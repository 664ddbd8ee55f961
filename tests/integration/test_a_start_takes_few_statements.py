"""The control plane's part of a start, counted: three transactions that write, and few statements."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import event

from starverse.domain.pricing.rating import rate_steps
from starverse.testing.platforms import fresh_database
from starverse.testing.worlds import World

STATEMENTS_MAX = 70
PRICINGS_MAX = 5


def test_a_job_reaches_its_engine_by_three_writes_few_statements_and_each_price_once(tmp_path: Path) -> None:
    with fresh_database("sqlite", tmp_path) as database:
        world = World(database, tmp_path / "data")
        lab, sent = world.team("lab"), list[str]()

        def start() -> None:
            world.clock.advance(seconds=1)
            world.submit(lab, "--tariff=spot")
            world.run_reconciler("schedule")
            assert world.run_reconciler("launch") == "submitted 1"

        start()  # reads and compiles what later ones need too

        @event.listens_for(database.engine, "before_cursor_execute")
        def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
            sent.append(statement)

        priced = rate_steps.cache_info().misses
        start()
        assert sent.count("BEGIN IMMEDIATE") == 3
        assert len(sent) <= STATEMENTS_MAX, "\n".join(sent)
        assert rate_steps.cache_info().misses - priced <= PRICINGS_MAX
