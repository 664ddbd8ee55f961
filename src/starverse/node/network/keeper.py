"""The network of one workload that asked for ``internet``: made beside its start, gone with it."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

from starverse.domain.workloads.launch import LaunchSpec
from starverse.node.acts import Act
from starverse.node.network.off_limits import Net, off_limits, read_host_tables
from starverse.node.network.pasta import NetworkRefused, Pasta, unlink
from starverse.node.network.reject_rules import reject
from starverse.node.network.resolvers import find_resolvers
from starverse.node.sandbox import syscalls

MAKING_SECONDS_MAX = 30.0
"""After which a start without its network is given up."""


class NetworkKeeper:
    """Nothing here waits. ``is_there``: whether the workload has the network that it asked for."""

    def __init__(self, spec: LaunchSpec, folder: Path) -> None:
        self._spec = spec
        self._folder = folder
        self._act: Act | None = None
        self._begun = False
        self._give_up_at = 0.0
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
        self._act = Act(lambda: make_network(pasta, sandbox, reachable), (sandbox,))

    def tend(self, now: float) -> str:
        """One look; answers why there is no network, ``""`` while nothing is wrong."""
        if self._act is not None and (outcome := self._act.outcome()) is not None:
            self._act = None
            if outcome:
                return f"no network: {outcome}"
            self.is_there = True
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


def make_network(pasta: Pasta, sandbox: int, reachable: list[Net]) -> None:
    """The rules first: from its first packet on nothing gets where it must not. ``sandbox`` is a pidfd.

    Called in a process that is single-threaded and may wait; raises :class:`NetworkRefused`.
    """
    nets, resolvers = off_limits(read_host_tables()), find_resolvers()
    inside = os.fork()
    if inside == 0:
        code = 1
        try:
            syscalls.setns(sandbox, syscalls.CLONE_NEWUSER | syscalls.CLONE_NEWNET)
            reject(nets, reachable, resolvers)
            code = 0
        except OSError as error:
            code = error.errno or 1
        finally:
            os._exit(code)
    _, status = os.waitpid(inside, 0)
    if status:
        why = os.strerror(os.waitstatus_to_exitcode(status))
        raise NetworkRefused(f"what must not be reached cannot be closed off (nf_tables: {why})")
    pasta.connect()
