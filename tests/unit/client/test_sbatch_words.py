"""Which word of a command line is the script; what is sent and what is the client's own."""

from __future__ import annotations

import shlex

import pytest

from starverse.client.sbatch_words import (
    FLAG_LETTERS,
    FLAGS,
    OWN_FLAGS,
    VALUE_LETTERS,
    VALUES,
    WRAP_SCRIPT_NAME,
    Grammar,
    environment_to_send,
    split_words,
    wrapped_script,
)
from starverse.domain.sbatch.options import OPTIONS, Takes
from starverse.domain.sbatch.words import split_command_line

SUBMIT = Grammar(options_follow_script=True, flags=frozenset({"lint", "yes"}), values=frozenset({"team"}))

LINES = {
    "script alone": "train.sh",
    "value apart": "-J name --time 10 train.sh a b",
    "value with equals": "--job-name=x --gres=gpu:2 train.sh --not-ours",
    "letters grouped": "-HJname -N2 train.sh",
    "flag before script": "--requeue --exclusive train.sh",
    "optional value": "--exclusive=user --nice train.sh",
    "double dash": "--requeue -- -odd.sh x",
    "nothing": "--requeue",
    "unknown option": "--colour train.sh x",
    "unknown letter": "-Zq normal train.sh",
    "abbreviated value": "--job-n x --partit=y train.sh",
    "optional letter": "-k train.sh",
    "abbreviated flag": "--no-req train.sh",
    "value that looks like a script": "--comment train.sh real.sh",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES.keys())
def test_the_script_is_found_where_the_server_would_find_it(line: str) -> None:
    ours, theirs = split_words(line.split()), split_command_line(line.split())
    assert (ours.script, tuple(ours.arguments)) == (theirs.script, theirs.arguments)
    assert tuple(ours.options) == theirs.option_words


def test_the_lists_here_agree_with_the_servers_table() -> None:
    sent = [option for option in OPTIONS if not option.client]
    assert {o.name for o in sent if o.takes is not Takes.VALUE} == FLAGS
    assert {o.name for o in sent if o.takes is Takes.VALUE} == VALUES
    assert {o.short for o in sent if o.takes is Takes.VALUE and o.short} == set(VALUE_LETTERS)
    assert {o.short for o in sent if o.takes is not Takes.VALUE and o.short} == FLAG_LETTERS
    assert {o.name: o.short for o in OPTIONS if o.client} == {**OWN_FLAGS, WRAP_SCRIPT_NAME: ""}


def test_own_options_are_taken_out_and_all_others_kept_as_typed() -> None:
    words = split_words(["-WQJ", "n", "--parsable", "--gres=gpu:2", "--wait", "train.sh", "--wait"])
    assert words.own == {"wait", "quiet", "parsable"}
    assert words.options == ["-J", "n", "--gres=gpu:2"]
    assert words.arguments == ["--wait"]


def test_submit_takes_options_on_both_sides_and_arguments_after_the_dashes() -> None:
    words = split_words(shlex.split("--tariff spot train.sh --lint -J n --team lab -- --epochs 3"), SUBMIT)
    assert (words.script, words.options) == ("train.sh", ["--tariff", "spot", "-J", "n"])
    assert (words.own, words.own_values) == ({"lint"}, {"team": "lab"})
    assert words.arguments == ["--epochs", "3"]


def test_submit_notices_a_word_that_belongs_nowhere() -> None:
    assert split_words(["train.sh", "10"], SUBMIT).stray == ["10"]


def test_wrap_becomes_a_script() -> None:
    assert split_words(["--wrap=echo hi"]).wrap == "echo hi"
    assert split_words(["--wrap", "echo hi", "-N1"]).options == ["-N1"]
    assert wrapped_script("echo hi").startswith("#!/bin/sh\n")
    assert wrapped_script("echo hi").endswith("\necho hi\n")


def test_only_named_variables_leave_the_machine() -> None:
    environ = {"SBATCH_TIMELIMIT": "5", "TOKEN": "s", "A": "1", "B": "2", "C": "3", "HOME": "/h"}
    script = "#!/bin/sh\n#SBATCH --export=A,X=9\n#SBATCH --export='NONE'\n"
    sent = environment_to_send(script, ["--export", "B,ALL", "--export=C"], environ)
    assert sent == {"SBATCH_TIMELIMIT": "5", "A": "1", "B": "2", "C": "3"}
