"""Reads the directives of a batch script exactly where Slurm does (22.05, ``src/sbatch/opt.c``).

- A line that starts with ``#SBATCH`` is a directive, up to the first line that is neither blank nor a
  comment. What follows is a shell comment and is never read.
- Its rest is split at white space; ``'`` and ``"`` quote, a backslash takes the next character as it is,
  also inside quotes, but white space only there (``a\\ b`` are two words);
  an unquoted ``#`` starts a comment, even in the middle of a word.
- Slurm passes over everything else in silence. Here each line that looks as if it was meant as a
  directive is named with its number (scenarios.md, 10).
- Slurm refuses CRLF; here it is normalised and a notice says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from starverse.domain.sbatch.origins import IgnoredLine, Notice, OptionFault, Origin, Source, script_line

MAGIC = "#SBATCH"
SCRIPT_BYTES_MAX = 4 * 1024 * 1024
"""Slurm's default ``max_script_size``."""

_SPACE = " \t\n\v\f\r"
_LOOKS_MEANT = re.compile(r"[ \t\ufeff]*(#*[ \t]*SBATCH|#(?i:sbatch))(?=[ \t]*-)")
"""An option follows, and the word stands in capitals or right after the ``#``: ``# sbatch --gres=gpu:1 x``
says how a script is called, and prose is prose."""
_OTHER_SYSTEM = re.compile(r"#(PBS|BSUB|COBALT|OAR|PJM)(?=[ \t-])|#\$[ \t]+-")
_SHOWN_MAX = 120


@dataclass(frozen=True, slots=True)
class Word:
    """One word of the options, after quotes were resolved, and the place it stands in."""

    text: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class ScriptDirectives:
    """What a script says about itself. ``text`` is what will be run: no BOM, Unix line ends.

    ``words`` are the option words of all directives in order; ``faults`` stop the submission.
    """

    text: str
    words: tuple[Word, ...] = ()
    ignored: tuple[IgnoredLine, ...] = ()
    notices: tuple[Notice, ...] = ()
    faults: tuple[OptionFault, ...] = ()


def parse_script(script: str | bytes) -> ScriptDirectives:
    """The directives of a script; anything wrong is a fault in the answer, nothing is raised. O(size)."""
    text, fault = _decoded(script)
    if fault is not None:
        return ScriptDirectives(text="", faults=(fault,))
    notices: list[Notice] = []
    if text.startswith("\ufeff"):
        text = text.removeprefix("\ufeff")
        notices.append(Notice("the byte order mark at the start of the script was removed"))
    if "\r\n" in text:
        count = text.count("\r\n")
        text = text.replace("\r\n", "\n")
        notices.append(Notice(f"{count} DOS line ends (CRLF) were changed to Unix line ends (LF)"))
    fault = _unfit(text)
    if fault is not None:
        return ScriptDirectives(text=text, notices=tuple(notices), faults=(fault,))
    words, ignored, faults = _directives(text)
    return ScriptDirectives(text, tuple(words), tuple(ignored), tuple(notices), tuple(faults))


def split_words(rest: str) -> tuple[list[str], str, str | None]:
    """Split the rest of a directive as Slurm does.

    Returns the words, the part that a ``#`` turned into a comment (``""``: none), and what is wrong with
    the line (``None``: nothing).
    """
    words: list[str] = []
    at, end = 0, len(rest)
    while True:
        while at < end and rest[at] in _SPACE:
            at += 1
        if at == end:
            return words, "", None
        if rest[at] == ":":
            return words, "", "no ':': parts of a heterogeneous job are not supported"
        if rest[at] == "#":
            return words, rest[at:], None
        word, at, unclosed = _one_word(rest, at)
        if unclosed:
            return words, "", f"a closing {unclosed} on the same line"
        if not word:
            return words, "", "no empty word: Slurm stops reading the line there"
        words.append(word)


def _one_word(rest: str, at: int) -> tuple[str, int, str]:
    kept: list[str] = []
    quote = ""
    while at < len(rest):
        character = rest[at]
        if character == "\\":
            if not quote and rest[at + 1 : at + 2] in _SPACE:
                at += 1
                break
            kept.append(rest[at + 1 : at + 2])
            at += 2
            continue
        if quote:
            if character == quote:
                quote = ""
            else:
                kept.append(character)
        elif character in "\"'":
            quote = character
        elif character == "#" or character in _SPACE:
            break
        else:
            kept.append(character)
        at += 1
    return "".join(kept), min(at, len(rest)), quote


def _decoded(script: str | bytes) -> tuple[str, OptionFault | None]:
    if isinstance(script, bytes):
        if len(script) > SCRIPT_BYTES_MAX:
            return "", _script_fault(f"{len(script)} bytes", f"at most {SCRIPT_BYTES_MAX} bytes (4 MiB)")
        if b"\0" in script:
            return "", _null_byte(script.index(b"\0"), script[: script.index(b"\0")].count(b"\n") + 1)
        try:
            return script.decode(), None
        except UnicodeDecodeError as error:
            line = script[: error.start].count(b"\n") + 1
            shown = f"byte 0x{script[error.start]:02x} at offset {error.start}"
            return "", _script_fault(shown, "a text file in UTF-8, not a binary one", line)
    if "\0" in script:
        return "", _null_byte(script.index("\0"), script.count("\n", 0, script.index("\0")) + 1)
    try:
        size = len(script.encode())
    except UnicodeEncodeError as error:
        line = script.count("\n", 0, error.start) + 1
        shown = f"undecodable character at offset {error.start}"
        return "", _script_fault(shown, "a text file in UTF-8, not a binary one", line)
    if size > SCRIPT_BYTES_MAX:
        return "", _script_fault(f"{size} bytes", f"at most {SCRIPT_BYTES_MAX} bytes (4 MiB)")
    return script, None


def _null_byte(offset: int, line: int) -> OptionFault:
    return _script_fault(f"NUL byte at offset {offset}", "a text file without NUL bytes", line)


def _unfit(text: str) -> OptionFault | None:
    """Slurm's own two checks: not empty, and an interpreter named in the first line."""
    if not text:
        return _script_fault("", "a batch script; this file is empty")
    if not text.startswith("#!"):
        expected = (
            "a first line with #! and the path of an interpreter, for instance #!/bin/bash"
            " (This does not look like a batch script)"
        )
        return _script_fault(_shown(text.split("\n", 1)[0]), expected, 1)
    if not text.split("\n", 1)[0].removeprefix("#!").strip():
        return _script_fault("#!", "the path of an interpreter after #!, for instance #!/bin/bash", 1)
    return None


def _script_fault(value: str, expected: str, line: int | None = None) -> OptionFault:
    return OptionFault("script", value, expected, Origin(Source.SCRIPT, line=line))


def _directives(text: str) -> tuple[list[Word], list[IgnoredLine], list[OptionFault]]:
    words: list[Word] = []
    ignored: list[IgnoredLine] = []
    faults: list[OptionFault] = []
    command_line: int | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        if command_line is None and line.startswith(MAGIC):
            _one_directive(number, line, words, ignored, faults)
            continue
        reason = _why_ignored(line, command_line)
        if reason:
            ignored.append(IgnoredLine(number, _shown(line), reason))
        if command_line is None and line.strip(_SPACE) and not line.lstrip(_SPACE).startswith("#"):
            command_line = number
    return words, ignored, faults


def _one_directive(
    number: int, line: str, words: list[Word], ignored: list[IgnoredLine], faults: list[OptionFault]
) -> None:
    found, comment, wrong = split_words(line[len(MAGIC) :])
    origin = script_line(number)
    glued = line[len(MAGIC) : len(MAGIC) + 1]
    if glued and glued not in _SPACE and glued not in "-#\\\"'" and not wrong:
        expected = "white space after #SBATCH, then an option"
        faults.append(OptionFault(MAGIC, _shown(line), expected, origin))
        return
    for word in found:
        if word.lower() in {"hetjob", "packjob"}:
            faults.append(OptionFault(MAGIC, word, "one job: heterogeneous jobs are not supported", origin))
        else:
            words.append(Word(word, origin))
    if wrong:
        faults.append(OptionFault(MAGIC, _shown(line), wrong, origin))
    if re.search(r"#\s*-|\S#", comment) or (comment and not line[: -len(comment)][-1:].isspace()):
        reason = f"everything from the # on is a comment to Slurm: {_shown(comment)!r}; quote it or escape it"
        ignored.append(IgnoredLine(number, _shown(line), reason))
    elif not found and not comment and not wrong:
        ignored.append(IgnoredLine(number, _shown(line), "no option follows"))


def _why_ignored(line: str, command_line: int | None) -> str:
    """Why a line that looks meant as a directive is none; ``""`` for every other line."""
    if "BATCH" not in line.upper() and not _OTHER_SYSTEM.match(line):
        return ""
    if command_line is not None:
        if line.startswith(MAGIC):
            return f"it stands after the first command (line {command_line}), where directives end"
        return ""
    if _OTHER_SYSTEM.match(line):
        return "directives of other batch systems are not read; write #SBATCH"
    if _LOOKS_MEANT.match(line) is None:
        return ""
    bare = line.lstrip(_SPACE)
    if bare.startswith(MAGIC):
        return "white space before #SBATCH: it must stand at the start of the line"
    if bare.startswith("##"):
        return "## makes it a plain comment"
    if not bare.startswith("#"):
        missing = re.match(r"SBATCH\s+-", bare) is not None
        return "the # is missing: it is a command, and directives end here" if missing else ""
    if bare[1:2].isspace():
        return "white space between # and SBATCH makes it a plain comment"
    return "#SBATCH must be written in capital letters"


def _shown(line: str) -> str:
    return line if len(line) <= _SHOWN_MAX else line[: _SHOWN_MAX - 1] + "…"
