"""Images: what is asked for is built, and what nobody names goes.

Target set: an image is being built if and only if it was asked for first of those that wait and no other one
is being built; it is ready if and only if its builder said so and its files are there; a stored tree is on
disk if and only if an image that is not removed names it, something that runs uses it, or a build is under
way. A build goes on without the server that started it, and is found again by its lock.
"""

from __future__ import annotations

from functools import partial

from starverse.app.images import building
from starverse.app.one_by_one import Round
from starverse.app.platform import Platform
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 1.0
_STEPS = (building.follow_builds, building.find_missing, building.begin_next, building.remove_unused)


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        round_ = Round()
        alive = building.read_alive(platform)
        for step in _STEPS:
            did = len(round_.did)
            round_.act_on([alive], partial(step, platform))
            if len(round_.did) > did or round_.fault is not None:
                alive = building.read_alive(platform)
        return ", ".join(round_.end())

    return Reconciler("images", "build images and remove unused ones", PERIOD_SECONDS, act)
