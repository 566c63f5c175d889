"""The lexer of selectors: it takes a text apart into words, from the left to the right, once.

    'text'  "text"    a text; its quote stands twice inside
    12  1.5  1.5E6    a number; 5L and 2.5F as in Java
    0x426F            bytes
    name  $x  [any name]    an identifier; in brackets, it may have any characters but ]
    = <> != < <= > >= + - * / % ( ) , .

A text, and whoever wrote it, may do nothing worse than be refused: each word is one match of a pattern
without backtracking.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal

from penstock.lazy_dataclass import dataclass
from penstock.protocols.amqp10.filters.errors import SelectorError

__all__ = ["LENGTH_MAX", "Word", "words_of"]

LENGTH_MAX: Final = 8192
"""Characters of a selector."""

Kind = Literal["constant", "name", "delimited", "sign", "end"]

_WORD: Final = re.compile(
    r"""\s*(?:
      (?P<text>'(?:[^']|'')*'|"(?:[^"]|"")*")
    | (?P<binary>0[xX](?:[0-9A-Fa-f]{2})+)(?![\w$])
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[lLfFdD]?(?![\w$])
    | (?P<name>[^\W\d][\w$]*|\$[\w$]*)
    | \[(?P<delimited>[^\]]+)\]
    | (?P<sign><>|!=|<=|>=|[=<>+\-*/%(),.])
    | (?P<end>\Z)
    )""",
    re.VERBOSE,
)
_DIGITS_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class Word:
    """One word, and where it begins."""

    kind: Kind
    value: Any
    at: int


def words_of(text: str) -> list[Word]:
    """The words, and an `end` behind them. Raises SelectorError."""
    if len(text) > LENGTH_MAX:
        raise SelectorError(f"a selector of more than {LENGTH_MAX} characters")
    words: list[Word] = []
    at = 0
    while True:
        found = _WORD.match(text, at)
        if found is None or found.lastgroup is None:
            raise SelectorError(f"a selector has no word at {text[at : at + 20]!r}")
        kind = found.lastgroup
        words.append(_word(kind, found[kind], found.start(kind)))
        if kind == "end":
            return words
        at = found.end()


def _word(kind: str, raw: str, at: int) -> Word:
    if kind == "text":
        return Word("constant", raw[1:-1].replace(raw[0] * 2, raw[0]), at)
    if kind == "binary":
        return Word("constant", bytes.fromhex(raw[2:]), at)
    if kind == "number":
        if len(raw) > _DIGITS_MAX:
            raise SelectorError(f"a selector has a number of more than {_DIGITS_MAX} digits")
        return Word("constant", int(raw) if raw.isdigit() else float(raw), at)
    if kind == "sign":
        return Word("sign", raw, at)
    if kind == "end":
        return Word("end", "", at)
    return Word("delimited" if kind == "delimited" else "name", raw, at)
