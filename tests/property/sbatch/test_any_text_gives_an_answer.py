"""Whatever is handed in, there is an answer: a spec or faults, never an exception, and never both."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from datetime import UTC, datetime

from hypothesis import example, given
from hypothesis import strategies as st

from starverse.app.lint import lint_result
from starverse.domain.sbatch.options import OPTIONS
from starverse.domain.sbatch.rendering import render
from starverse.domain.sbatch.scripts import MAGIC, split_words
from starverse.domain.sbatch.submission import SubmitRequest, build
from starverse.domain.sbatch.words import split_command_line

NOW = datetime(2026, 3, 10, 2, 0, tzinfo=UTC)

anything = st.text(alphabet=st.characters(), max_size=60)
numbers = st.sampled_from(
    ["0", "1", "2", "8", "10", "-1", "99999999999", "1-3", "0-5%2", "now+1hour", "gpu:2"]
)
option_values = st.one_of(
    anything, numbers, st.sampled_from(["", "gpu:a:1,gpu:b:2", "a[1-3]", "x%j", "ib&eth"])
)
long_words = st.builds(lambda o, v: f"--{o.name}={v}", st.sampled_from(OPTIONS), option_values)
short_words = st.builds(
    lambda o, v: f"-{o.short}{v}", st.sampled_from([o for o in OPTIONS if o.short]), option_values
)
words = st.one_of(long_words, short_words, anything, st.just("--"), st.just("-"))
starts = st.sampled_from(
    ["#SBATCH ", "#SBATCH", " #SBATCH ", "##SBATCH ", "# SBATCH ", "SBATCH ", "#PBS ", "", "#"]
)
lines = st.builds(lambda start, rest: start + " ".join(rest), starts, st.lists(words, max_size=4))
scripts = st.builds(
    lambda first, rest, end: end.join([first, *rest]),
    st.sampled_from(["#!/bin/bash", "#!/bin/sh -l", "#!", "", "\ufeff#!/bin/sh"]),
    st.lists(lines, max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
environments = st.dictionaries(
    st.sampled_from([name for option in OPTIONS for name in option.variables] + ["SBATCH_X", "HOME"]),
    option_values,
    max_size=4,
)


def check(request: SubmitRequest) -> None:
    found = build(request, NOW, UTC)
    assert (found.spec is None) == bool(found.faults)
    faults = [fault.field_fault() for fault in found.faults]
    assert json.dumps(asdict(lint_result(found, faults, (), None)))
    if found.spec is not None and all("\n" not in value for _, value in found.spec.environment):
        assert render(found.spec).startswith("#!")


@given(scripts, st.lists(words, max_size=5), environments)
@example("#!/bin/sh\n#SBATCH --begin=now+99999999weeks\n", [], {})
@example("#!/bin/sh\n#SBATCH --time=²\n", ["-t²"], {"SBATCH_DEBUG": "²"})
def test_of_scripts_that_look_almost_right(
    script: str, typed: list[str], environment: dict[str, str]
) -> None:
    check(SubmitRequest(script, command_line=tuple(typed), environment=environment))


@given(st.lists(lines, max_size=8))
def test_no_directive_is_lost_in_silence(directives: list[str]) -> None:
    """Scenario 10: each line that starts with #SBATCH counts, is refused, or is named with its number."""
    script = "\n".join(["#!/bin/bash", *(line.replace("\n", "").replace("\0", "") for line in directives)])
    found = build(SubmitRequest(script), NOW, UTC)
    if any(fault.option == "script" for fault in found.faults):
        return
    said = {option.origin.line for option in found.options}
    said |= {fault.origin.line for fault in found.faults}
    said |= {notice.origin.line for notice in found.notices if notice.origin is not None}
    said |= {line.line for line in found.ignored_lines}
    for number, line in enumerate(script.split("\n"), start=1):
        words_in_line, comment, _ = split_words(line[len(MAGIC) :])
        if line.startswith(MAGIC) and (words_in_line or not comment):
            assert number in said, line


@given(st.one_of(st.text(), st.binary()))
@example("#!\x85\n")
def test_of_any_text_and_any_bytes(script: str | bytes) -> None:
    check(SubmitRequest(script, script_name=script if isinstance(script, str) else "x"))


@given(st.lists(words, max_size=8))
def test_every_word_of_a_command_line_has_one_place(typed: list[str]) -> None:
    line = split_command_line(typed)
    script = [] if line.script is None else [line.script]
    together = [*line.option_words, *script, *line.arguments]
    assert [word for word in typed if word != "--"] == [word for word in together if word != "--"]


def test_four_mebibytes_of_directives_are_read_in_linear_time() -> None:
    def seconds(count: int) -> float:
        script = "#!/bin/bash\n" + "#SBATCH --comment='a b' -n 4 # x\n" * count
        start = time.perf_counter()
        build(SubmitRequest(script), NOW, UTC)
        return time.perf_counter() - start

    few, many = min(seconds(1_000) for _ in range(3)), seconds(10_000)
    assert many < few * 60, f"10 times the lines took {many / few:.0f} times as long"
