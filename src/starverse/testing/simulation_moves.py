"""What people, operators and the world do to a simulated platform, one random move at a time."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from starverse.app import admin, admin_accounts, price_books, topups
from starverse.app import jobs as job_cases
from starverse.app.admin_accounts import AccountChange, Grant
from starverse.app.idempotency import Once
from starverse.app.identity import Identity
from starverse.app.topups import RefundRequest, TopUpRequest
from starverse.app.views import JobView
from starverse.db import topups as topup_rows
from starverse.domain.cluster import NodeReport
from starverse.domain.money import Money
from starverse.domain.pricing.price_book_yaml import shipped_price_book_text
from starverse.domain.timespan import format_instant
from starverse.testing.disk_moves import DiskMoves
from starverse.testing.instance_moves import InstanceMoves
from starverse.testing.simulated_world import SimulatedWorld

JOBS_MAX = 40
TEAMS = (("rich", "3000"), ("plain", "60"), ("poor", "4"))


@dataclass(slots=True)
class Cast:
    """Who acts in a simulation, and what they did so far."""

    teams: tuple[Identity, ...]
    operator: Identity
    jobs: list[tuple[Identity, str]] = field(default_factory=list)
    repeats: dict[str, set[str]] = field(default_factory=dict)
    """Request key -> the job numbers that its repeats were answered with: one at most."""


def make_cast(world: SimulatedWorld) -> Cast:
    """Three teams with much, some and little money, and an operator."""
    teams = tuple(world.team(name, yuan) for name, yuan in TEAMS)
    operator = replace(world.team("operator", "0"), operator=True)
    return Cast(teams, operator)


class Moves:
    """Random moves; each may be refused by the product, or cut short by a crash."""

    def __init__(self, seed: int, world: SimulatedWorld, cast: Cast) -> None:
        self.world, self.cast = world, cast
        self.random = random.Random(f"{seed}:moves")
        self.instances = InstanceMoves(seed, world, cast.teams)
        self.disks = DiskMoves(seed, world, cast.teams, cast.operator, self.instances.known)
        self._reports = {report.node_id: report for report in world.engine.reports}
        self._table: dict[Callable[[], str], float] = {
            self.submit: 40,
            self.cancel: 6,
            self.resume: 5,
            self.drain: 3,
            self.quarantine: 3,
            self.card_fault: 3,
            self.node_away: 1,
            self.add_price_book: 2,
            self.change_membership: 3,
            self.top_up: 6,
            self.refund: 3,
            self.auto_top_up: 1,
            self.grant: 3,
            self.kill_launcher: 3,
            self.trouble: 4,
            self.set_clock_back: 1,
            **self.instances.table(),
            **self.disks.table(),
        }

    def one(self) -> str:
        """Make one move; what it was."""
        move = self.random.choices(list(self._table), list(self._table.values()))[0]
        return move()

    def submit(self) -> str:
        """A batch script with random options; sometimes the reply is lost and the client repeats it."""
        if len(self.cast.jobs) >= JOBS_MAX:
            return self.top_up()
        who = self.random.choices(self.cast.teams, [5, 4, 2])[0]
        words = self._options(who)
        name = self.random.choice(["train", "sweep", "eval"])
        once = Once(f"key-{self.world.seed}-{self.random.getrandbits(40)}", "the same request")
        known = self.cast.repeats.setdefault(once.key, set())
        for _ in range(self.random.choice([1, 1, 2])):
            view = self._submit(who, words, name, once)
            known.add(view.number)
            number = view.number.partition("_")[0]
            if (who, number) not in self.cast.jobs:
                self.cast.jobs.append((who, number))
        return f"{who.team_name} submits {' '.join(words)}: {', '.join(sorted(known))}"

    def _submit(self, who: Identity, words: tuple[str, ...], name: str, once: Once) -> JobView:
        return self.world.submit(who, *words, name=name, once=once)

    def cancel(self) -> str:
        who, number = self._some_job()
        return f"cancel {job_cases.cancel(self.world.platform, who, number).number}"

    def resume(self) -> str:
        who, number = self._some_job()
        view = job_cases.resume(self.world.platform, who, number)
        if view.number != number:
            self.cast.jobs.append((who, view.number))
        return f"resume {number} as {view.number}"

    def drain(self) -> str:
        node = self.random.choice(sorted(self._reports))
        drained = self.random.random() < 0.4
        admin.set_drained(self.world.platform, self.cast.operator, node, drained, None)
        return f"drain {node}: {drained}"

    def quarantine(self) -> str:
        card = self._some_card()
        quarantined = self.random.random() < 0.4
        admin.set_quarantined(self.world.platform, self.cast.operator, card, quarantined, None)
        return f"quarantine {card}: {quarantined}"

    def card_fault(self) -> str:
        """A card falls ill, or all are well again."""
        if self.random.random() < 0.6:
            self.heal()
            return "all cards are well"
        card = self._some_card()
        reports = [
            replace(
                report,
                cards=tuple(
                    replace(c, healthy=False, message="fell off the bus") if c.card_id == card else c
                    for c in report.cards
                ),
            )
            for report in self.world.engine.reports
        ]
        self.world.set_reports(reports)
        return f"{card} falls ill"

    def node_away(self) -> str:
        node = self.random.choice(sorted(self._reports))
        self.world.set_reports([r for r in self.world.engine.reports if r.node_id != node])
        return f"{node} is away"

    def heal(self) -> None:
        """All nodes and cards are reported, and well."""
        self.world.set_reports(list(self._reports.values()))

    def add_price_book(self) -> str:
        """A version with other prices, in effect within seconds or hours."""
        at = self.world.clock.now() + timedelta(seconds=self.random.choice([2, 600, 4000, 9000]))
        at = at.replace(microsecond=0)
        text = shipped_price_book_text().replace("2026-03-01T00:00:00+08:00", format_instant(at))
        text = text.replace('"1.66"', self.random.choice(['"1.66"', '"1.29"', '"2.37"', '"1.660001"']))
        spot = self.random.choice(["0.30", "0.25", "0.41"])
        text = text.replace('spot:      {factor: "0.30"}', f'spot:      {{factor: "{spot}"}}')
        price_books.add_price_book(self.world.platform, self.cast.operator, text)
        return f"a price book from {format_instant(at)}"

    def change_membership(self) -> str:
        who = self.random.choice(self.cast.teams)
        member = self.random.choice(["edu", ""])
        change = AccountChange(member=member)
        admin_accounts.change_account(self.world.platform, self.cast.operator, who.email, change, None)
        return f"{who.email} is {member or 'no member'}"

    def top_up(self) -> str:
        who = self.random.choice(self.cast.teams)
        amount = Money.parse(self.random.choice(["0.01", "1.50", "10", "40"]))
        topups.create_topup(self.world.platform, who, TopUpRequest(amount))
        return f"{who.team_name} tops up {amount}"

    def refund(self) -> str:
        who = self.random.choice(self.cast.teams)
        with self.world.database.read() as connection:
            found = topup_rows.list_topups(connection, who.team_id, 20, None)
        if not found:
            return "nothing to refund"
        order = self.random.choice(found)
        done = topups.refund_topup(self.world.platform, who, RefundRequest(order.id))
        return f"{who.team_name} gets {done.amount} back"

    def auto_top_up(self) -> str:
        who = self.random.choice(self.cast.teams)
        topups.set_auto_topup(self.world.platform, who, Money.parse("2"), Money.parse("5"))
        return f"{who.team_name} tops up by itself"

    def grant(self) -> str:
        who = self.random.choice(self.cast.teams)
        lasts = self.random.choice([None, timedelta(minutes=5), timedelta(minutes=70), timedelta(hours=8)])
        gift = Grant(
            kind=self.random.choice(["credit", "coupon"]),
            amount=Money.parse(self.random.choice(["0.50", "3", "20"])),
            reason="a gift",
            expires_at=None if lasts is None else self.world.wall_clock() + lasts,
        )
        admin_accounts.grant(self.world.platform, self.cast.operator, who.team_name, gift)
        return f"{who.team_name} gets a {gift.kind} of {gift.amount} until {gift.expires_at}"

    def kill_launcher(self) -> str:
        alive = [name for name, run in sorted(self.world.engine.launchers.items()) if run.claimed]
        if not alive:
            return "no launcher to kill"
        victim = self.random.choice(alive)
        self.world.engine.kill_launcher(victim)
        return f"kill -9 of launcher {victim}"

    def trouble(self) -> str:
        self.world.trouble_share = self.random.choice([0.0, 0.0, 0.1, 0.5, 1.0])
        return f"the engine has trouble with {self.world.trouble_share:.0%} of its calls"

    def set_clock_back(self) -> str:
        """The wall clock jumps back, or is right again."""
        minutes = 0 if self.world.behind else self.random.choice([0.5, 4, 70])
        self.world.behind = timedelta(minutes=minutes)
        return f"the server's clock is {minutes} minutes behind"

    def _some_job(self) -> tuple[Identity, str]:
        return self.random.choice(self.cast.jobs) if self.cast.jobs else (self.cast.teams[0], "1")

    def _some_card(self) -> str:
        return self.random.choice([c.card_id for _, r in sorted(self._reports.items()) for c in r.cards])

    def _options(self, who: Identity) -> tuple[str, ...]:
        dice = self.random
        report = dice.choice(list(self._reports.values()))
        words = self._cards(report)
        words.append(f"--time={dice.choice([1, 5, 20, 45, 61, 90, 180])}")
        spot = dice.random() < 0.45
        if spot:
            words.append("--tariff=spot")
        chances: list[tuple[float, Callable[[], str]]] = [
            (0.12, lambda: f"--array=0-{dice.randint(1, 4)}%{dice.randint(1, 2)}"),
            (0.15, lambda: self._dependency(who)),
            (0.08, lambda: "--window=night"),
            (0.18, lambda: f"--cost-max={dice.choice(['0.05', '0.4', '1.3', '4'])}"),
            (0.12 if spot else 0.0, lambda: f"--price-max={dice.choice(['0.2', '0.45', '0.5', '1.5'])}"),
            (0.1, lambda: "--no-requeue"),
            (0.05, lambda: f"--begin=now+{dice.randint(1, 30)}minutes"),
            (0.05, lambda: f"--signal=USR1@{dice.choice([10, 60])}"),
        ]
        words += [word() for share, word in chances if dice.random() < share]
        return tuple(words)

    def _cards(self, report: NodeReport) -> list[str]:
        dice, model = self.random, report.cards[0].model
        if dice.random() < 0.12:
            return ["--nodes=2", f"--gpus-per-node={model}:{dice.choice([1, 2])}"]
        words = [f"--gres=gpu:{model}:{dice.choice([n for n in (1, 2, 4, 8) if n <= len(report.cards)])}"]
        if dice.random() < 0.2:
            words.append(f"--constraint={report.fabric}")
        return words

    def _dependency(self, who: Identity) -> str:
        own = [number for owner, number in self.cast.jobs if owner is who]
        if not own or self.random.random() < 0.3:
            return "--dependency=singleton"
        kind = self.random.choice(["after", "afterok", "afternotok", "afterany"])
        return f"--dependency={kind}:{self.random.choice(own)}"
