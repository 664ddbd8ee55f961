"""A whole platform on the fake engine, stepped by hand: time moves only when a test moves it.

:meth:`World.round` runs every reconciler once, in the driver's order; the simulation shuffles that order
from a seed and lets rounds crash in between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from starverse.app import jobs as job_cases
from starverse.app import teams as team_cases
from starverse.app.bill import BillFilter, BillView, show_bill
from starverse.app.idempotency import Once
from starverse.app.identity import Identity
from starverse.app.platform import Platform
from starverse.app.views import JobView, SubmitRequest
from starverse.checkpoint import AlreadyPublished, Checkpointer
from starverse.db import accounts, ledger
from starverse.db.accounts import Account
from starverse.db.session import Database
from starverse.domain.cluster import NodeReport
from starverse.domain.errors import Conflict
from starverse.domain.ids import AccountId, TokenId, TransferId
from starverse.domain.ledger.accounts import cash_id, gateway, gateway_id
from starverse.domain.ledger.transfers import Purpose, move
from starverse.domain.money import Money
from starverse.domain.workloads.launch import LaunchSpec
from starverse.engines.base import EngineUnavailable
from starverse.engines.fake import Binder, Call, FakeEngine, FakeRun, Trouble
from starverse.main import make_reconcilers
from starverse.reconcilers.driver import Reconciler
from starverse.testing.fake_images import FakeImages
from starverse.testing.node_reports import node_report
from starverse.testing.platforms import SetClock, make_platform

SCRIPT = "#!/bin/bash\necho hello\n"


class World:
    """A platform, its fake engine and its reconcilers, on one clock.

    ``plans`` says what happens to the runs of a job by its name (default: runs 60 s, exits 0). ``trouble``
    befalls calls of the engine; ``bind`` has it pick the cards itself. ``settings`` override the platform's.

    The clock and the engine outlive the platform: :meth:`restart` starts a new server over what there is.
    """

    def __init__(
        self,
        database: Database,
        data: Path,
        *,
        nodes: tuple[NodeReport, ...] | None = None,
        trouble: Callable[[Call, str], Trouble | None] = lambda _call, _id: None,
        bind: Binder | None = None,
        **settings: object,
    ) -> None:
        self.clock = SetClock()
        self.database, self.data = database, data
        self.images = FakeImages()
        self.plans: dict[str, FakeRun] = {}
        self.engine = FakeEngine(
            nodes if nodes is not None else (node_report(),),
            lambda: self.clock.now().timestamp(),
            plan=self._plan,
            trouble=trouble,
            publish=self._publish,
            bind=bind,
        )
        data.mkdir(parents=True, exist_ok=True)
        defaults: dict[str, object] = {"disk_reserve_bytes": 0, "grace_seconds": 30}
        self.settings = defaults | settings
        self.restart()
        self.run_reconciler("inventory")

    def restart(self) -> None:
        """The server dies and a new one takes over the database, the data folder and what runs."""
        self.platform: Platform = self.make_platform()
        self.reconcilers: list[Reconciler] = make_reconcilers(self.platform)

    def make_platform(self) -> Platform:
        """A server over this world's database, data folder and engine."""
        settings: dict[str, Any] = self.settings
        made = make_platform(self.database, self.data, self.engine, clock=self.clock, **settings)
        return replace(made, images=self.images)

    def team(self, name: str, yuan: str = "1000") -> Identity:
        """A person with a team and money in its wallet."""
        now = self.clock.now()
        account = Account(AccountId(self.platform.ids.uuid7()), f"{name}@example.org", False, False, now)
        amount = Money.parse(yuan)
        with self.platform.database.write() as connection:
            accounts.add_account(connection, account, "not a password")
            team = team_cases.open_team(self.platform, connection, account.id, name, now, personal=True)
            ledger.open_accounts(connection, [gateway("mock")], now)
            if amount:
                paid = move(
                    TransferId(self.platform.ids.uuid7()),
                    gateway_id("mock"),
                    cash_id(team.id),
                    amount,
                    Purpose.TOP_UP,
                )
                assert ledger.post(connection, [paid], now).ok
        return Identity(
            account.id, account.email, team.id, team.name, False, "account", TokenId("-"), None, role="owner"
        )

    def submit(
        self, who: Identity, *argv: str, name: str = "job", script: str = SCRIPT, once: Once | None = None
    ) -> JobView:
        """Submit a script with options as typed; one rtx4090 unless the options say otherwise."""
        if not any(word.startswith(("--gres", "--gpus")) for word in argv):
            argv = ("--gres=gpu:rtx4090:1", *argv)
        request = SubmitRequest(
            script=script, script_name=f"{name}.sh", argv=(f"--job-name={name}", *argv), once=once
        )
        result = job_cases.submit(self.platform, who, request)
        assert result.job is not None
        return result.job

    def plan(self, name: str, run: FakeRun | None = None, **changes: object) -> None:
        """What happens to every run of the job with this name."""
        self.plans[name] = replace(run or FakeRun(), **changes)  # type: ignore[arg-type]

    def run_reconciler(self, name: str) -> str:
        """One round of one reconciler; what it says it did."""
        return next(r for r in self.reconcilers if r.name == name).act()

    def follow_disks(self) -> None:
        """Storage does all that was ordered of disks."""
        self.run_reconciler("disks")
        self.run_reconciler("disk_copies")

    def round(self) -> None:
        """Every reconciler once. A lost race or an engine that is away waits for the next round."""
        for reconciler in self.reconcilers:
            with contextlib.suppress(Conflict, EngineUnavailable):
                reconciler.act()

    def run(self, seconds: float, step: float = 1.0) -> None:
        """Let time pass, with a round after each step."""
        left = seconds
        self.round()
        while left > 0:
            self.clock.advance(seconds=min(step, left))
            left -= step
            self.engine.advance()
            self.round()

    def job(self, who: Identity, number: str) -> JobView:
        return job_cases.get(self.platform, who, number)

    def bill(self, who: Identity, job: str | None = None) -> BillView:
        return show_bill(self.platform, who, BillFilter(job=job))

    def assert_sound(self) -> None:
        """No invariant of the ledger is broken."""
        with self.platform.database.read() as connection:
            assert ledger.check(connection) == ()

    def _plan(self, spec: LaunchSpec) -> FakeRun:
        names = [value for name, value in spec.environment if name == "SLURM_JOB_NAME"]
        return self.plans.get(names[0] if names else "", FakeRun())

    def _publish(self, spec: LaunchSpec, at: float) -> None:
        """What a run's script would do: publish a checkpoint whose step is the time."""
        library = Checkpointer(
            spec.checkpoints,
            handle_signal=False,
            environment={"STARVERSE_RETRY": str(spec.attempt)},
            now=self.clock.now,
        )
        with contextlib.suppress(AlreadyPublished):
            library.save_bytes(int(at) - 1_700_000_000, {"state": str(at).encode()})
