"""``.starverseignore``: which files of a folder are not packed.

The patterns mean what they mean in ``.gitignore`` (gitignore manual page, PATTERN FORMAT), with two limits:
only the file in the folder's root is read, and a backslash escapes a leading ``#`` or ``!`` and the
characters ``*?[\\`` only. One pattern a line; ``#`` starts a comment; ``!`` takes a path back in; a trailing
``/`` means folders only; a pattern with a ``/`` before its end starts at the root, another one matches at any
depth; ``*`` and ``?`` stop at ``/``; ``**/``, ``/**`` and ``/**/`` cross folders. The last pattern that
matches decides. What lies in a folder that is left out cannot be taken back in.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

IGNORE_FILE_NAME = ".starverseignore"
DEFAULT_PATTERNS = (".git/", ".hg/", ".svn/", "__pycache__/", ".venv/", "node_modules/", ".DS_Store")
"""Left out unless ``!.git/`` and the like take them back in."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    expression: re.Pattern[str]
    folders_only: bool
    takes_back: bool


class IgnoreRules:
    """The default patterns followed by those of the file's text."""

    def __init__(self, text: str = "") -> None:
        lines = [*DEFAULT_PATTERNS, *text.splitlines()]
        self._patterns = [pattern for line in lines if (pattern := _read(line)) is not None]

    def ignores(self, path: str, *, is_folder: bool) -> bool:
        """``path`` is relative to the root, with ``/``; folders above it are asked for on their own."""
        for pattern in reversed(self._patterns):
            if (is_folder or not pattern.folders_only) and pattern.expression.fullmatch(path):
                return not pattern.takes_back
        return False


def _read(line: str) -> _Pattern | None:
    text = re.sub(r"(?<!\\) +$", "", line.rstrip("\r\n")).replace("\\ ", " ")
    if not text or text.startswith("#"):
        return None
    takes_back = text.startswith("!")
    text = text[1:] if takes_back else text
    folders_only = text.endswith("/")
    text = text.removesuffix("/")
    if not text:
        return None
    anchored = "/" in text
    text = text.removeprefix("/")
    prefix = "" if anchored else "(?:.*/)?"
    return _Pattern(re.compile(prefix + _expression(text), re.DOTALL), folders_only, takes_back)


def _expression(text: str) -> str:
    """The pattern as a regular expression; one that is malformed matches its own characters."""
    parts: list[str] = []
    at = 0
    while at < len(text):
        if text.startswith("**/", at) and (at == 0 or text[at - 1] == "/"):
            parts.append("(?:.*/)?")
            at += 3
        elif text[at:] == "**" and (at == 0 or text[at - 1] == "/"):
            parts.append(".+")
            at += 2
        elif text[at] == "*":
            parts.append("[^/]*")
            at += 1
        elif text[at] == "?":
            parts.append("[^/]")
            at += 1
        elif text[at] == "[" and (found := re.compile(r"\[(!|\^)?(\]?[^\]/]*)\]").match(text, at)):
            inside = found[2].replace("\\", "\\\\").replace("[", "\\[")
            parts.append(f"(?!/)[{'^' if found[1] else ''}{inside}]")
            at = found.end()
        else:
            at += 1 if text[at] == "\\" and at + 1 < len(text) else 0
            parts.append(re.escape(text[at]))
            at += 1
    return "".join(parts)
