"""What people do with instances of a simulated platform, and what they were promised."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from starverse.app.idempotency import Once
from starverse.app.identity import Identity
from starverse.app.instances import changing, starting, stopping, views
from starverse.app.instances.changing import InstanceChange
from starverse.app.instances.launching import LaunchRequest, launch
from starverse.app.instances.starting import ResizeRequest, StartRequest
from starverse.domain.errors import StarverseError
from starverse.domain.workloads.instances import Restart
from starverse.domain.workloads.states import InstanceState
from starverse.testing.simulated_world import SimulatedWorld

INSTANCES_MAX = 12
IDLE_STOPS: tuple[str | int, ...] = ("unset", "off", "default", 0, 300, 3600)


@dataclass(slots=True)
class InstanceMoves:
    """Random moves by the teams of a cast.

    ``promised``: the policies that each instance may have, by id: one, or two where a crash cut the answer to
    a change short.
    """

    seed: int
    world: SimulatedWorld
    teams: tuple[Identity, ...]
    known: list[tuple[Identity, str]] = field(default_factory=list)
    promised: dict[str, set[views.PolicyView]] = field(default_factory=dict)
    dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.dice = random.Random(f"{self.seed}:instances")

    def table(self) -> dict[Callable[[], str], float]:
        """Every move with its weight."""
        return {
            self.launch: 10,
            self.stop: 5,
            self.start: 7,
            self.resize: 4,
            self.change: 3,
            self.remove: 1,
            self.clone: 1,
        }

    def launch(self) -> str:
        if len(self.known) >= INSTANCES_MAX:
            return self.start()
        dice, who = self.dice, self.dice.choice(self.teams)
        report = dice.choice(list(self.world.engine.reports)) if self.world.engine.reports else None
        if report is None:
            return "no node to launch on"
        most = len(report.cards)
        request = LaunchRequest(
            card=report.cards[0].model,
            cards=dice.choice([n for n in (1, 2, 4, 8) if n <= most]),
            tariff=dice.choice(["on_demand", "on_demand", "spot"]),
            idle_stop=dice.choice(IDLE_STOPS),
            ttl_seconds=dice.choice([None, None, 600, 7200]),
            restart=dice.choice([Restart.ELSEWHERE.value, Restart.STAY.value]),
            wait=dice.random() < 0.5,
            once=Once(f"launch-{self.seed}-{dice.getrandbits(40)}", "the same request"),
        )
        for _ in range(dice.choice([1, 1, 2])):
            made = launch(self.world.platform, who, request)
            self.promised[made.id] = {made.policy}
            if (who, made.id) not in self.known:
                self.known.append((who, made.id))
        return f"{who.team_name} launches {request.cards} x {request.card} {request.tariff}"

    def stop(self) -> str:
        who, instance_id = self._some()
        return f"stop {stopping.stop(self.world.platform, who, instance_id).name}"

    def start(self) -> str:
        who, instance_id = self._some()
        no_gpu = self.dice.random() < 0.3
        request = StartRequest(no_gpu=no_gpu, wait=self.dice.random() < 0.5)
        shown = starting.start(self.world.platform, who, instance_id, request)
        return f"start {shown.name}{' without cards' if no_gpu else ''}"

    def resize(self) -> str:
        who, instance_id = self._some()
        request = ResizeRequest(self.dice.choice([1, 2, 4]), wait=self.dice.random() < 0.5)
        shown = starting.resize(self.world.platform, who, instance_id, request)
        return f"resize {shown.name} to {shown.cards}"

    def change(self) -> str:
        who, instance_id = self._some()
        before = views.get(self.world.platform, who, instance_id).policy
        wanted = InstanceChange(
            idle_stop=self.dice.choice(IDLE_STOPS),
            ttl_seconds=self.dice.choice([0, 900, 7200]),
            restart=self.dice.choice(["stay", "elsewhere"]),
        )
        after = views.PolicyView(wanted.idle_stop or 0, wanted.ttl_seconds or None, str(wanted.restart))
        self.promised[instance_id] = {before, after}
        shown = changing.change(self.world.platform, who, instance_id, wanted, None)
        self.promised[instance_id] = {shown.policy}
        return f"change {shown.name}"

    def remove(self) -> str:
        who, instance_id = self._some()
        stopping.remove(self.world.platform, who, instance_id)
        return f"rm {instance_id}"

    def clone(self) -> str:
        if len(self.known) >= INSTANCES_MAX:
            return self.stop()
        who, instance_id = self._some()
        once = Once(f"clone-{self.seed}-{self.dice.getrandbits(40)}", "the same request")
        made = changing.clone(self.world.platform, who, instance_id, None, once)
        self.promised[made.id] = {made.policy}
        self.known.append((who, made.id))
        return f"clone {instance_id} as {made.name}"

    def stop_all(self) -> None:
        """Everybody goes home: what runs or waits is stopped."""
        for who in self.teams:
            everything = views.InstanceFilter((InstanceState.QUEUED, InstanceState.RUNNING), limit=1000)
            for shown in views.list_instances(self.world.platform, who, everything).items:
                stopping.stop(self.world.platform, who, shown.id)

    def _some(self) -> tuple[Identity, str]:
        if not self.known:
            raise StarverseError("nobody has launched anything yet")
        return self.dice.choice(self.known)
