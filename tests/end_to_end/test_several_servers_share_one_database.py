"""Two ``starverse up`` on one PostgreSQL: ``kill -9`` of either, and a database that goes away for a while.

Nothing that runs is stopped, started twice or charged twice; the leases of a dead server move within the time
that the documents state; whoever asks meanwhile is told to come again.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator

import pytest

from starverse.reconcilers.leadership import MOVED_WITHIN_SECONDS
from starverse.testing.gateway_sites import make_key
from starverse.testing.in_time import wait_for
from starverse.testing.live_checks import (
    COUNTER,
    check_at_rest,
    check_charges,
    check_counted,
    let_finish,
    ssh_missing,
)
from starverse.testing.live_person import Person
from starverse.testing.live_servers import LiveServers, ask
from starverse.testing.postgres_lab import PostgresLab

AWAY_SECONDS = 9
"""Longer than a lease."""


@pytest.fixture(scope="module")
def database() -> Iterator[PostgresLab]:
    if missing := PostgresLab.missing():
        pytest.skip(missing)
    with PostgresLab() as lab:
        yield lab


@pytest.fixture(scope="module")
def servers(database: PostgresLab) -> Iterator[LiveServers]:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed: apt-get install bubblewrap")
    with LiveServers(database.url) as running:
        running.add_peer()
        yield running


def at(servers: LiveServers, person: Person, url: str) -> Person:
    """The same person, who asks another server."""
    other = Person(servers, f"{person.name}-{time.monotonic_ns()}", STARVERSE_API=url)
    servers._people.append(other)
    other.run("login", f"{person.name}@example.org")
    return other


def holders(servers: LiveServers, url: str) -> dict[str, str]:
    """Loop -> the server that runs it, by the word of one server."""
    token = (servers.data / "operator-token").read_text().strip()
    _, _, told = ask(url, "/api/v1/admin/status", token)
    return {loop["name"]: loop["server"] or url for loop in told.get("reconcilers", [])}


def test_both_serve_anybody_and_share_the_loops(servers: LiveServers) -> None:
    (peer,) = servers.peers
    who = servers.person("anybody", yuan=20)
    number = at(servers, who, peer).sbatch(COUNTER, "--gres=gpu:rtx4090:1")
    who.wait_log(number, "0:3\n")
    both = {servers.api, peer}
    for url in both:
        wait_for(lambda url=url: set(holders(servers, url).values()) == both, "both to run loops")  # type: ignore[misc]
    let_finish(who, number)
    assert at(servers, who, peer).wait_end(number)["state"] == "succeeded"
    assert len(check_charges(who, number)) == 1
    check_at_rest(servers)


def test_people_come_into_an_instance_by_either_server(servers: LiveServers) -> None:
    if missing := ssh_missing():
        pytest.skip(missing)
    (peer,) = servers.peers
    who = servers.person("guest", yuan=50)
    (who.home / ".ssh").mkdir(mode=0o700)
    make_key(who.home / ".ssh" / "id_ed25519")
    who.run("ssh-key", "add")
    there = at(servers, who, peer)
    shutil.copytree(who.home / ".ssh", there.home / ".ssh")
    who.run("launch", "--card", "rtx4090", "--name", "shared", "--yes")
    for one in (who, there):
        assert one.call("exec", "shared", "--", "sh", "-c", "exit 7").returncode == 7
    servers.kill()
    try:
        wait_for(lambda: there.call("exec", "shared", "--", "true").returncode == 0, "the peer's gateway", 30)
    finally:
        servers.start()
    wait_for(lambda: who.call("exec", "shared", "--", "true").returncode == 0, "the first one's again", 30)
    who.run("rm", "shared", "--yes")
    check_at_rest(servers)


def test_kills_of_either_stop_and_double_nothing(servers: LiveServers) -> None:
    who = servers.person("unmoved", yuan=50)
    numbers = [who.sbatch(COUNTER, "--gres=gpu:rtx4090:1") for _ in range(2)]
    for number in numbers:
        who.wait_log(number, "0:3\n")
    for victim in ("first", "peer"):
        (peer,) = servers.peers
        numbers.append(who.sbatch(COUNTER, "--gres=gpu:rtx4090:1"))
        survivor = peer if victim == "first" else servers.api
        if victim == "first":
            servers.kill()
        else:
            servers.kill_peer(peer)
        killed_at = time.monotonic()
        wait_for(lambda url=survivor: set(holders(servers, url).values()) == {url}, "its leases to move", 30)  # type: ignore[misc]
        assert time.monotonic() - killed_at < MOVED_WITHIN_SECONDS + 2, "a request takes time, too"
        at(servers, who, survivor).wait_log(numbers[-1], "0:3\n")
        assert (servers.data / "api-url").read_text().strip() == survivor
        if victim == "first":
            servers.start()
        else:
            servers.add_peer()
    for number in numbers:
        let_finish(who, number)
    for number in numbers:
        assert who.wait_end(number)["state"] == "succeeded"
        assert [run["cause"] for run in check_charges(who, number)] == ["completed"]
        check_counted(who, number)
    check_at_rest(servers)


def test_a_server_that_hangs_is_replaced_and_does_no_harm_when_it_wakes(servers: LiveServers) -> None:
    (peer,) = servers.peers
    who = servers.person("awake", yuan=20)
    number = who.sbatch(COUNTER, "--gres=gpu:rtx4090:1")
    who.wait_log(number, "0:3\n")
    os.kill(servers.pid, signal.SIGSTOP)
    try:
        wait_for(lambda: set(holders(servers, peer).values()) == {peer}, "its leases to move", 45)
        later = at(servers, who, peer).sbatch(COUNTER, "--gres=gpu:rtx4090:1")
        at(servers, who, peer).wait_log(later, "0:3\n")
    finally:
        os.kill(servers.pid, signal.SIGCONT)
    both = {servers.api, peer}
    wait_for(lambda: set(holders(servers, peer).values()) == both, "both to run loops again")
    for job in (number, later):
        let_finish(who, job)
        assert who.wait_end(job)["state"] == "succeeded"
        assert [run["cause"] for run in check_charges(who, job)] == ["completed"]
        check_counted(who, job)
    check_at_rest(servers)


def test_a_server_that_ends_hands_over_at_once(servers: LiveServers) -> None:
    (peer,) = servers.peers
    assert servers.stop_peer(peer) == 0
    wait_for(lambda: set(holders(servers, servers.api).values()) == {servers.api}, "all loops", 4)
    assert servers.urls() == [servers.api]
    servers.add_peer()


def test_a_database_that_is_away_loses_nothing_and_stops_no_workload(
    servers: LiveServers, database: PostgresLab
) -> None:
    who = servers.person("patient", yuan=20)
    number = who.sbatch(COUNTER, "--gres=gpu:rtx4090:2")
    who.wait_log(number, "0:3\n")
    (run,) = who.runs(number)
    launcher = servers.launcher(str(run["id"]))
    database.stop()
    try:
        gone_at = time.monotonic()
        for url in (servers.api, *servers.peers):
            status, headers, told = ask(url, f"/api/v1/jobs/{number}", "any")
            assert (status, headers["content-type"]) == (503, "application/problem+json"), told
            assert told["code"] == "database_away"
            assert int(headers["retry-after"]) > 0
            assert ask(url, "/readyz")[0] == 503
            assert ask(url, "/readyz")[2]["reasons"] == ["the database does not answer"]
        wait_for(
            lambda: time.monotonic() - gone_at > AWAY_SECONDS, "the database's absence", AWAY_SECONDS + 5
        )
        assert servers.launcher(str(run["id"])) == launcher
    finally:
        database.start()
    for url in (servers.api, *servers.peers):
        wait_for(lambda url=url: ask(url, "/readyz")[2].get("status") == "ok", "all to go well again", 40)  # type: ignore[misc]
    let_finish(who, number)
    assert who.wait_end(number)["state"] == "succeeded"
    assert [run["cause"] for run in check_charges(who, number)] == ["completed"]
    check_counted(who, number)
    check_at_rest(servers)
