"""Where directives are, how their words are split: each case was compared with sbatch of Slurm 22.05."""

from __future__ import annotations

from pathlib import Path

import pytest

import starverse.examples
from starverse.domain.sbatch.scripts import SCRIPT_BYTES_MAX, parse_script


def words_of(script: str) -> list[str]:
    return [word.text for word in parse_script(script).words]


READ_CASES = [
    ("one option a line", "#SBATCH -n 4\n#SBATCH -c 2\n", ["-n", "4", "-c", "2"]),
    ("several on one line", "#SBATCH -n 4 --gres=gpu:2\n", ["-n", "4", "--gres=gpu:2"]),
    ("glued to the dashes", "#SBATCH--ntasks=4\n", ["--ntasks=4"]),
    (
        "blank lines and comments between",
        "#SBATCH -n 4\n\n  \t\n# words\n#SBATCH -c 2\n",
        ["-n", "4", "-c", "2"],
    ),
    ("a comment after an option", "#SBATCH -n 4 # four\n", ["-n", "4"]),
    ("a hash inside a word ends the line", "#SBATCH --comment=a#b -n 4\n", ["--comment=a"]),
    ("a quoted hash stays", '#SBATCH --comment="a#b" -n 4\n', ["--comment=a#b", "-n", "4"]),
    ("single quotes", "#SBATCH --job-name='two words'\n", ["--job-name=two words"]),
    ("quotes in the middle", '#SBATCH --job-name=a"b c"d\n', ["--job-name=ab cd"]),
    ("a backslash takes the next character", "#SBATCH --comment=a\\#b\\'c\n", ["--comment=a#b'c"]),
    ("but no white space", "#SBATCH --comment=two\\ words\n", ["--comment=two", "words"]),
    ("white space only inside quotes", "#SBATCH --comment='two\\ words'\n", ["--comment=two words"]),
    ("a backslash works inside quotes", '#SBATCH --comment="a\\"b\\\\"\n', ['--comment=a"b\\']),
    ("no continued lines", "#SBATCH -n 4\\\n#SBATCH -c 2\n", ["-n", "4", "-c", "2"]),
    ("nothing after the first command", "#SBATCH -n 4\nhostname\n#SBATCH -c 2\n", ["-n", "4"]),
    ("not indented", " #SBATCH -n 4\n", []),
    ("not in small letters", "#sbatch -n 4\n", []),
    ("no plain comments", "##SBATCH -n 4\n# SBATCH -c 2\n", []),
]


@pytest.mark.parametrize(("script", "expected"), [c[1:] for c in READ_CASES], ids=[c[0] for c in READ_CASES])
def test_words(script: str, expected: list[str]) -> None:
    assert words_of("#!/bin/bash\n" + script) == expected


IGNORED_CASES = [
    ("indented", " #SBATCH -n 4", "white space before"),
    ("double hash", "##SBATCH -n 4", "plain comment"),
    ("space after the hash", "# SBATCH -n 4", "white space between"),
    ("small letters", "#sbatch -n 4", "capital letters"),
    ("without the hash", "SBATCH -n 4", "the # is missing"),
    ("of PBS", "#PBS -l nodes=2", "other batch systems"),
    ("of LSF", "#BSUB -n 4", "other batch systems"),
    ("of Grid Engine", "#$ -pe mpi 4", "other batch systems"),
    ("without an option", "#SBATCH", "no option follows"),
    ("cut by a hash", "#SBATCH --comment=a#b -n 4", "comment to Slurm"),
    ("commented out at the end", "#SBATCH -n 4 #-c 2", "comment to Slurm"),
]


@pytest.mark.parametrize(
    ("line", "reason"), [c[1:] for c in IGNORED_CASES], ids=[c[0] for c in IGNORED_CASES]
)
def test_a_line_that_looks_meant_is_named_with_its_number(line: str, reason: str) -> None:
    ignored = parse_script(f"#!/bin/bash\n\n{line}\nhostname\n").ignored
    assert [(found.line, found.text) for found in ignored] == [(3, line)]
    assert reason in ignored[0].reason


def test_a_directive_after_the_first_command_is_named_with_both_numbers() -> None:
    (ignored,) = parse_script("#!/bin/bash\n#SBATCH -n 1\nhostname\n#SBATCH --mem=4G\n").ignored
    assert (ignored.line, ignored.text) == (4, "#SBATCH --mem=4G")
    assert "line 3" in ignored.reason


@pytest.mark.parametrize(
    "line",
    ["# see the sbatch manual", "#   sbatch --tariff spot --gres=gpu:rtx4090:2 train.sh", "# sbatch train.sh",
     "# SBATCH lines stand at the top", "#sbatch is how it is submitted", "## SBATCH options ##",
     "# usage: sbatch -n 4 this.sh", "SBATCH_X=1 true"],
)  # fmt: skip
def test_ordinary_comments_and_commands_are_not_named(line: str) -> None:
    script = f"#!/bin/bash\n#SBATCH -n 4 # four tasks\n{line}\nsbatch next.sh\n"
    assert parse_script(script).ignored == ()


@pytest.mark.parametrize(
    "path", sorted(Path(starverse.examples.__path__[0]).glob("*.sh")), ids=lambda p: p.name
)
def test_the_shipped_scripts_are_read_without_a_remark(path: Path) -> None:
    found = parse_script(path.read_text())
    assert found.words
    assert (found.ignored, found.notices, found.faults) == ((), (), ())


REFUSED_CASES = [
    ("empty file", "", None, "empty"),
    ("no interpreter", "#SBATCH -n 4\n", 1, "This does not look like a batch script"),
    ("blank first line", "\n#!/bin/bash\n", 1, "This does not look like a batch script"),
    ("interpreter without a path", "#! \nhostname\n", 1, "the path of an interpreter"),
    ("NUL byte", "#!/bin/bash\nx\0\n", 2, "NUL"),
    ("binary", b"\x7fELF\xff\xfe", 1, "not a binary one"),
    ("NUL byte in a file", b"#!/bin/sh\n\n\0", 3, "NUL"),
    ("undecodable text", "#!/bin/bash\n\udcff", 2, "not a binary one"),
    ("over 4 MiB", "#!/bin/bash\n#" + "x" * SCRIPT_BYTES_MAX, None, "4 MiB"),
    ("over 4 MiB of bytes", b"#!/bin/bash\n#" + b"x" * SCRIPT_BYTES_MAX, None, "4 MiB"),
    ("open double quote", '#!/bin/bash\n#SBATCH --comment="a\n', 2, "closing"),
    ("open single quote", "#!/bin/bash\n#SBATCH --comment='a\n", 2, "closing"),
    ("colon", "#!/bin/bash\n#SBATCH : -n 4\n", 2, "heterogeneous"),
    ("hetjob", "#!/bin/bash\n#SBATCH hetjob\n", 2, "heterogeneous"),
    ("glued text", "#!/bin/bash\n#SBATCHX -n 4\n", 2, "white space after #SBATCH"),
    ("an empty word hides the rest", '#!/bin/bash\n#SBATCH "" -n 4\n', 2, "empty word"),
]


@pytest.mark.parametrize(
    ("script", "line", "expected"), [c[1:] for c in REFUSED_CASES], ids=[c[0] for c in REFUSED_CASES]
)
def test_a_script_is_refused(script: str | bytes, line: int | None, expected: str) -> None:
    (fault,) = parse_script(script).faults
    assert fault.origin.line == line
    assert expected in f"{fault.value} {fault.expected}"


def test_dos_line_ends_are_normalised_with_a_notice() -> None:
    found = parse_script("#!/bin/bash\r\n#SBATCH -n 4\r\nhostname\r\n")
    assert [word.text for word in found.words] == ["-n", "4"]
    assert found.text == "#!/bin/bash\n#SBATCH -n 4\nhostname\n"
    assert [str(notice) for notice in found.notices] == [
        "3 DOS line ends (CRLF) were changed to Unix line ends (LF)"
    ]


def test_a_byte_order_mark_is_removed_with_a_notice() -> None:
    found = parse_script("\ufeff#!/bin/bash\n#SBATCH -n 4\n".encode())
    assert [word.text for word in found.words] == ["-n", "4"]
    assert found.text.startswith("#!")
    assert "byte order mark" in str(found.notices[0])
