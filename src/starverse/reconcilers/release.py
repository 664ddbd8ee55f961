"""Release: stopped instances end, after a warning, and their files with them.

Target set: a stopped instance is released if and only if its release date is over and its owner was warned; a
warning is recorded if and only if the date is less than three days away; the own files of an instance are on
disk if and only if it is not released.
"""

from __future__ import annotations

from starverse.app.instances import releasing
from starverse.app.one_by_one import Round
from starverse.app.platform import Platform
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 30.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        round_ = Round()
        round_.act_on(releasing.due_warnings(platform), lambda one: releasing.warn(platform, one))
        round_.act_on(releasing.due_releases(platform), lambda one: releasing.release_due(platform, one))
        round_.act_on(releasing.due_removals(platform), lambda one: releasing.remove_files(platform, one))
        return ", ".join(round_.end())

    return Reconciler("release", "release stopped instances after their date", PERIOD_SECONDS, act)
