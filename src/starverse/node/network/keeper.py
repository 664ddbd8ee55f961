"""The network of one workload that asked for ``internet``: made beside its start, gone with it.

Where its rate is limited and the kernel cannot, it has the network all the same; the log says so, and
``network/rate.json`` in the allocation's folder, as ``limits.json`` does of other limits.
"""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Callable
from pathlib import Path

from starverse.domain.workloads.launch import LaunchSpec
from starverse.node.acts import Act
from starverse.node.network.off_limits import Net, off_limits, read_host_tables
from starverse.node.network.pasta import (
    UNSENT_BYTES_MAX,
    UNSENT_BYTES_MAX_LIMITED,
    NetworkRefused,
    Pasta,
    bound_unsent,
    unlink,
)
from starverse.node.network.rates import hold_rates, in_words
from starverse.node.network.reject_rules import reject
from starverse.node.network.resolvers import find_resolvers
from starverse.node.sandbox import syscalls

_RATE = "network/rate.json"
MAKING_SECONDS_MAX = 30.0
"""After which a start without its network is given up."""


class NetworkKeeper:
    """Nothing here waits. ``is_there``: whether the workload has the network that it asked for; ``remark``
    is what its log should say of it. ``make`` and ``limit`` are how it is made and its rate limited."""

    def __init__(
        self,
        spec: LaunchSpec,
        folder: Path,
        make: Callable[[Pasta, int, list[Net]], None] | None = None,
        limit: Callable[[int, int], str] | None = None,
    ) -> None:
        self._make_network = make or make_network
        self._limit_rate = limit or limit_rate
        self._spec = spec
        self._folder = folder
        self._act: Act | None = None
        self._begun = False
        self._give_up_at = 0.0
        self.remark = ""
        self.is_there = spec.network != "internet"

    def begin(self, child: int, sandbox: int, program: str) -> None:
        """The sandbox's namespaces stand: those of the process ``child``, ``sandbox`` is its pidfd."""
        if self.is_there or self._begun:
            return
        self._begun = True
        uid = self._spec.unix_uid
        pasta = Pasta(program, self._folder, child, uid, self._spec.allocation_id)
        pasta.link()
        reachable = [ipaddress.ip_network(text) for text in self._spec.network_reachable]
        self._act = Act(lambda: self._make(pasta, sandbox, reachable), (sandbox,))

    def tend(self, now: float) -> str:
        """One look; answers why there is no network, ``""`` while nothing is wrong."""
        if self._act is not None and (outcome := self._act.outcome()) is not None:
            self._act = None
            if outcome:
                return f"no network: {outcome}"
            self.is_there = True
            self.remark = self._read_remark()
        if self._act is not None:
            self._give_up_at = self._give_up_at or now + MAKING_SECONDS_MAX
            if now > self._give_up_at:
                self._act.kill()
                self._act = None
                return f"no network: pasta did not have it ready in {MAKING_SECONDS_MAX:g} s"
        return ""

    def handles(self) -> list[int]:
        return [] if self._act is None else [self._act.handle]

    def end(self) -> None:
        if self._begun:
            unlink(self._folder)

    def _make(self, pasta: Pasta, sandbox: int, reachable: list[Net]) -> None:
        """In the forked child."""
        self._make_network(pasta, sandbox, reachable)
        rate = self._spec.limits.network_bytes_per_second
        if rate is not None:
            told = {"bytes_per_second": rate, "refused": self._limit_rate(sandbox, rate)}
            (self._folder / _RATE).write_text(json.dumps(told))

    def _read_remark(self) -> str:
        if self._spec.limits.network_bytes_per_second is None:
            return ""
        refused = json.loads((self._folder / _RATE).read_text())["refused"]
        return f"the network's rate is not limited: {refused}" if refused else ""


def make_network(pasta: Pasta, sandbox: int, reachable: list[Net]) -> None:
    """The rules first: from its first packet on nothing gets where it must not. ``sandbox`` is a pidfd.

    Called in a process that is single-threaded and may wait; raises :class:`NetworkRefused`.
    """
    nets, resolvers = off_limits(read_host_tables()), find_resolvers()
    # where it cannot be bound, large uploads are slow, and nothing else
    _inside(sandbox, lambda: bound_unsent(UNSENT_BYTES_MAX))
    if code := _inside(sandbox, lambda: reject(nets, reachable, resolvers)):
        why = os.strerror(code)
        raise NetworkRefused(f"what must not be reached cannot be closed off (nf_tables: {why})")
    pasta.connect()


def limit_rate(sandbox: int, bytes_per_second: int) -> str:
    """Limit a network that is there; answers why the kernel does not, ``""``: it does. ``sandbox`` is a
    pidfd. Called in a process that is single-threaded and may wait."""
    code = _inside(sandbox, lambda: hold_rates(bytes_per_second))
    _inside(sandbox, lambda: bound_unsent(UNSENT_BYTES_MAX if code else UNSENT_BYTES_MAX_LIMITED))
    return in_words(code) if code else ""


def _inside(sandbox: int, act: Callable[[], None]) -> int:
    """Do it in a child that owns the sandbox's network; answers the number of the error, 0 for none."""
    inside = os.fork()
    if inside == 0:
        code = 1
        try:
            syscalls.setns(sandbox, syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNET)
            act()
            code = 0
        except OSError as error:
            code = error.errno or 1
        finally:
            os._exit(code)
    _, status = os.waitpid(inside, 0)
    return abs(os.waitstatus_to_exitcode(status))
