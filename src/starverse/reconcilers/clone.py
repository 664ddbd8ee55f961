"""Clone: a copied instance gets its files.

Target set: a new clone waits for its files if and only if they are not all there; they are copied aside and
put in their place by one rename each.
"""

from __future__ import annotations

from starverse.app.instances import releasing
from starverse.app.one_by_one import each
from starverse.app.platform import Platform
from starverse.reconcilers.driver import Reconciler

PERIOD_SECONDS = 10.0


def make(platform: Platform) -> Reconciler:
    def act() -> str:
        copies = releasing.due_copies(platform)
        return ", ".join(each(copies, lambda one: releasing.copy_files(platform, one)))

    return Reconciler("clone", "copy the files of cloned instances", PERIOD_SECONDS, act)
