"""From settings to a way to Slurm, and whom workloads run as; what is not safe is refused."""

from __future__ import annotations

import getpass
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from starverse.config import load
from starverse.domain.errors import Invalid
from starverse.engines.slurm import SlurmSettings
from starverse.engines.slurm.combined import Combined
from starverse.engines.slurm.commands import Commands
from starverse.engines.slurm.facts import JobRequest, SlurmRefused, SlurmUnavailable, SlurmUnreached
from starverse.engines.slurm.rest import Rest
from starverse.engines.slurm.settings import connect, unix_uid_of
from starverse.main import slurm_settings

REST: dict[str, Any] = {"rest_url": "http://127.0.0.1:1", "jwt_key": "/no/key"}


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({}, Commands),
        ({"transport": "commands", **REST}, Commands),
        (REST, Combined),
        ({"transport": "rest", **REST}, Rest),
    ],
)
def test_slurmrestd_is_used_where_it_is_named(tmp_path: Path, settings: dict[str, Any], kind: type) -> None:
    slurm = connect(SlurmSettings(commands=str(tmp_path), **settings))
    assert type(slurm) is kind
    slurm.close()


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"transport": "rest"}, "slurm.rest_url"),
        ({"transport": "rest", "rest_url": "http://x"}, "slurm.jwt_key"),
        ({**REST, "user": "nobody-of-this-name"}, "slurm.user"),
        ({**REST, "user": "daemon"}, "slurm.user"),
    ],
)
def test_what_is_missing_or_not_safe_is_named(tmp_path: Path, settings: dict[str, Any], place: str) -> None:
    with pytest.raises(Invalid, match=place):
        connect(SlurmSettings(commands=str(tmp_path), **settings))


class Told(Commands):
    """Commands whose submit says who was asked."""

    job_requeue = False

    def requeues_by_default(self) -> bool:
        return self.job_requeue

    def submit(self, request: JobRequest) -> str:
        return "by command"


class Slurmrestd(Rest):
    """A slurmrestd that fails as told."""

    failure: Exception | None = None
    forbids = False

    def names_nodes(self) -> bool:
        return False

    def forbids_requeue(self) -> bool:
        return self.forbids

    def submit(self, request: JobRequest) -> str:
        if self.failure is not None:
            raise self.failure
        return "by rest"


@pytest.mark.parametrize(
    ("pins", "failure", "expected"),
    [
        (True, None, "by rest"),
        (False, None, "by command"),
        (True, SlurmUnreached("not there"), "by command"),
        (True, SlurmUnavailable("no answer"), SlurmUnavailable),
        (True, SlurmRefused("no"), SlurmRefused),
    ],
    ids=["it can pin", "it cannot", "nothing was sent", "nobody knows", "a no"],
)
def test_a_submit_goes_by_command_only_where_slurmrestd_never_had_it(
    tmp_path: Path, pins: bool, failure: Exception | None, expected: Any
) -> None:
    from starverse.engines.slurm.tokens import Tokens

    rest = Slurmrestd("http://x", Tokens(tmp_path / "key", "ann"))
    rest.failure = failure
    both = Combined(rest, Told(str(tmp_path)))
    request = JobRequest("a", "", ("n",), "", "", 1, 1, 1, "/", "/o", "", pins_by_feature=pins)
    if isinstance(expected, str):
        assert both.submit(request) == expected
    else:
        with pytest.raises(expected):
            both.submit(request)
    both.close()


@pytest.mark.parametrize(
    ("forbids", "job_requeue", "expected"),
    [(False, False, "by rest"), (False, True, "by command"), (True, True, "by rest")],
)
def test_no_way_is_taken_by_which_slurm_would_start_the_job_again(
    tmp_path: Path, forbids: bool, job_requeue: bool, expected: str
) -> None:
    from starverse.engines.slurm.tokens import Tokens

    rest, commands = Slurmrestd("http://x", Tokens(tmp_path / "key", "ann")), Told(str(tmp_path))
    rest.forbids, commands.job_requeue = forbids, job_requeue
    both = Combined(rest, commands)
    assert both.submit(JobRequest("a", "", ("n",), "", "", 1, 1, 1, "/", "/o", "", True)) == expected
    both.close()


@pytest.mark.parametrize(("said", "requeues"), [("1", True), ("0", False)])
def test_what_the_cluster_does_by_itself_is_read_from_its_settings(
    tmp_path: Path, said: str, requeues: bool
) -> None:
    script = tmp_path / "scontrol"
    script.write_text(f"#!/bin/sh\necho 'JobCompType = x'\necho 'JobRequeue              = {said}'\n")
    script.chmod(0o755)
    assert Commands(str(tmp_path)).requeues_by_default() is requeues


def test_a_workload_runs_as_the_unix_user_of_its_account_or_team_where_that_is_safe() -> None:
    me = getpass.getuser()
    other = next(user.pw_name for user in pwd.getpwall() if user.pw_uid not in (0, os.geteuid()))
    settings = SlurmSettings(
        unix_users={"t-1": other, "t-root": "root", "t-gone": "no-such-user", "t-me": me}
    )
    assert unix_uid_of(settings, ["a-else", "t-else"], 200_007) == 200_007
    with pytest.raises(Invalid, match=r"slurm.unix_users \(t-gone\)"):
        unix_uid_of(settings, ["t-gone", "t-root"], 200_007)  # the account's goes first
    for team in ("t-root", "t-gone"):
        with pytest.raises(Invalid, match=rf"slurm.unix_users \({team}\)"):
            unix_uid_of(settings, [team], 200_007)
    if os.geteuid() == 0:
        assert unix_uid_of(settings, ["t-1"], 200_007) == pwd.getpwnam(other).pw_uid
    else:
        assert unix_uid_of(settings, ["t-me"], None) is None
        with pytest.raises(Invalid, match="unless the platform runs as root"):
            unix_uid_of(settings, ["t-1"], None)


def test_lists_and_pairs_of_the_settings_file_are_read() -> None:
    environment = {
        "STARVERSE_SLURM__PARTITIONS": "gpu, spot",
        "STARVERSE_SLURM__MODELS": "nvidia_a100=a100-80g, x=t4",
        "STARVERSE_SLURM__PYTHON": "/opt/python",
    }
    settings = slurm_settings(load(None, environment).config)
    assert settings.partitions == ("gpu", "spot")
    assert settings.models == {"nvidia_a100": "a100-80g", "x": "t4"}
    assert settings.python == "/opt/python"
    with pytest.raises(Invalid, match=r"slurm\.models"):
        slurm_settings(load(None, {"STARVERSE_SLURM__MODELS": "a100"}).config)
