"""How long a job will run, from what ran before: team, cards, script name, each leaning on the level above.

Run times spread over orders of magnitude, so everything is in logarithms: each level keeps a mean and a
variance that forget old runs, and what it knows is weighed against its parent by how many runs it has seen
(shrinkage). A script that is new takes after its team's jobs of that size, a new team after everybody.
Nothing but ended runs goes in, so a prediction never knows the future.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

PRIOR_SECONDS = 1800.0
"""The median assumed before anything has ended."""
PRIOR_VARIANCE = 4.0
"""Of the logarithm, then: one standard deviation is a factor of seven."""
VARIANCE_MIN = 0.05
PARENT_RUNS = 1.5
"""The parent level counts as much as so many runs of the level's own."""
KEPT_PER_RUN = (0.9995, 0.995, 0.95, 0.85)
"""What older runs keep of their weight when one more ends, from the coarsest level to the finest."""

_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class RunFeatures:
    """What is known of a job before it runs; ``script`` ``""``: no name."""

    team: str
    cards: int
    script: str = ""

    def levels(self) -> tuple[tuple[object, ...], ...]:
        """From everybody down to this script of this team on so many cards."""
        team, size = (self.team,), (self.team, self.cards)
        return ((), team, size, (*size, self.script)) if self.script else ((), team, size)


@dataclass(frozen=True, slots=True)
class RunTime:
    """A log-normal run time; ``mean`` and ``deviation`` are of the logarithm of seconds."""

    mean: float
    deviation: float

    @property
    def median_seconds(self) -> float:
        return math.exp(self.mean)

    def quantile(self, share: float, ran_seconds: float = 0.0) -> float:
        """Seconds of the whole run that ``share`` (within 0..1) of such jobs do not exceed.

        With ``ran_seconds``: of those that run so long already. Never below it.
        """
        ended = self._ended_by(ran_seconds)
        wanted = ended + share * (1 - ended)
        if wanted >= 1 - 1e-9:  # it has outlived all that was seen
            return ran_seconds * (1 + share)
        found = math.exp(self.mean + self.deviation * _NORMAL.inv_cdf(max(wanted, 1e-9)))
        return max(found, ran_seconds)

    def _ended_by(self, seconds: float) -> float:
        if seconds <= 0:
            return 0.0
        return _NORMAL.cdf((math.log(seconds) - self.mean) / self.deviation)


class RunTimes:
    """Memory of ended runs, and predictions from it. Constant time each, memory by distinct features."""

    def __init__(self) -> None:
        self._levels: dict[tuple[object, ...], _Level] = {}

    def observe(self, features: RunFeatures, seconds: float) -> None:
        """A run of these features ended by itself after so many seconds."""
        value = math.log(max(seconds, 1.0))
        for key, kept in zip(features.levels(), KEPT_PER_RUN, strict=False):
            self._levels.setdefault(key, _Level()).add(value, kept)

    def predict(self, features: RunFeatures) -> RunTime:
        """What to expect of one that has not begun; :meth:`RunTime.quantile` takes what it ran already."""
        mean, variance = math.log(PRIOR_SECONDS), PRIOR_VARIANCE
        for key in features.levels():
            level = self._levels.get(key)
            if level is None:
                continue
            own = level.weight / (level.weight + PARENT_RUNS)
            apart = level.mean - mean
            variance = own * level.variance + (1 - own) * variance + own * (1 - own) * apart * apart
            mean += own * apart
        return RunTime(mean, math.sqrt(max(variance, VARIANCE_MIN)))


class _Level:
    __slots__ = ("mean", "variance", "weight")

    def __init__(self) -> None:
        self.weight = self.mean = self.variance = 0.0

    def add(self, value: float, kept: float) -> None:
        """West's weighted update: the new value weighs one, all before ``kept`` of what they did."""
        self.weight = self.weight * kept + 1.0
        apart = value - self.mean
        self.mean += apart / self.weight
        self.variance += (apart * apart * (1 - 1 / self.weight) - self.variance) / self.weight
