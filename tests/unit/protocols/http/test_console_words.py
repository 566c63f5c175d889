"""The console's texts: each is asked for by `t`, and has a translation with the same places for values."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pytest

from penstock.protocols.http.console import files
from tests.unit.protocols.http.test_console_files import OURS, WWW

_TEXT = r'"((?:[^"\\]|\\.)*)"'
_ASKED = re.compile(rf'\bt\({_TEXT}(?:, \{{\}}, "(\w+)")?')
_MANY = re.compile(rf"\bmany\(([^,()]+), {_TEXT}, {_TEXT}")
_ENTRY = re.compile(rf"^  {_TEXT}: {_TEXT},$", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/|^\s*//.*$", re.DOTALL | re.MULTILINE)
_NO_WORDS = {"KiB", "MiB", "GiB", "TiB", "English"}
"""Units, and the language's own name."""
_KEYS = {"Enter", "Ctrl+K"}
"""Of a keyboard."""
_NAMES = {"penstock", "user, queue.delete"}
"""Of the gateway, and of its actions."""
_BARE = (
    re.compile(r'(?<!\bt\()"((?:[A-Z][a-z]|[A-Z]+ [a-z])[^"]*)"'),  # a literal that begins as texts do
    re.compile(r"(?<!html)`([A-Z][a-z][^`]*)`"),  # the same with values in it
    re.compile(r'(?<!\bt\()(?<!class=)"([a-z]+,? [a-z][^"]*)"'),  # a literal of several words
    re.compile(r"\} ([a-z]{3,}[^`{}<>$=]*)[`$]"),  # after a value
    re.compile(r"(?<!=)>\s*([A-Za-z][a-z]+[^<>${}`;=]*)(?=<|\$\{)"),  # after a tag
    re.compile(r"\}([^<>{}`\"'=:;()]*[a-z]{2}[^<>{}`\"'=:;()]*)</"),  # after a value, before a tag
    re.compile(
        r"\b(?:label|title|text|empty|search|help|aria-label|placeholder)(?:=|: )\"([^\"]*[a-z][^\"]*)\""
    ),
)
MODULES = [path for path in OURS if path.name not in ("zh.js", "words.js", "commands.js")]
"""Those with texts; `commands.js` has lines for a shell."""


def _asked() -> set[str]:
    asked = {
        f"{text}|{sense}" if sense else text
        for path in MODULES
        for text, sense in _ASKED.findall(path.read_text())
    }
    return asked | {other for _, _, other in _numbered()}


def _numbered() -> list[tuple[str, str, str]]:
    """The texts that are others for 1: what is counted, the text for 1, and that for other numbers."""
    return [found for path in MODULES for found in _MANY.findall(path.read_text())]


def _bare(source: str) -> list[str]:
    """Texts that readers of English alone would understand."""
    code = _MANY.sub("", _COMMENT.sub("", source))
    found = [text.strip() for pattern in _BARE for text in pattern.findall(code)]
    return [text for text in found if text not in _NO_WORDS | _KEYS | _NAMES]


def _translations() -> list[tuple[str, str]]:
    return _ENTRY.findall((WWW / "zh.js").read_text())


def test_the_texts_are_those_that_have_a_translation() -> None:
    translated = [text for text, _ in _translations()]
    assert len(translated) == len(set(translated)) > 300
    assert set(translated) == _asked()


def test_each_line_of_the_table_is_read_by_this_test() -> None:
    lines = (WWW / "zh.js").read_text().splitlines()
    assert sum(line.startswith('  "') for line in lines) == len(_translations())


def test_a_translation_has_the_places_for_values_of_its_text() -> None:
    for text, translated in _translations():
        places = [sorted(re.findall(r"\{(\w+)\}", one)) for one in (text, translated)]
        assert places[0] == places[1], text


def test_a_text_for_1_has_the_places_of_that_for_others_but_its_number() -> None:
    asked = sum(len(re.findall(r"\bmany\(", path.read_text())) for path in MODULES)
    assert len(_numbered()) == asked > 8
    for _, one, other in _numbered():
        places = [set(re.findall(r"\{(\w+)\}", text)) - {"n"} for text in (one, other)]
        assert places[0] == places[1] and one != other, one


def test_no_text_puts_a_number_before_a_plural_by_itself() -> None:
    """Such a text would say "1 messages"."""
    of_one = re.compile(r"\{n\} (?:\w+ )?(?:messages|entries|queues|times|places)\b")
    assert [text for text in _asked() - {other for *_, other in _numbered()} if of_one.search(text)] == []


def test_a_translation_is_chinese() -> None:
    same = {text for text, translated in _translations() if not re.search(r"[\u4e00-\u9fff]", translated)}
    assert same == {"TLS", "Webhooks", "webhook {name}", "Webhook {name}", "{n} of {total}"}


def test_every_text_is_a_literal() -> None:
    """A text that is put together at run time is not found above."""
    for path in MODULES:
        assert not re.findall(r"\bt\((?!\")[^)]", _COMMENT.sub("", path.read_text())), path


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_no_text_is_shown_without_a_translation(path: Path) -> None:
    assert _bare(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    (
        "html`<h1>Queues</h1>`",
        "html`<p>${count(n)} messages</p>`",
        "html`<h1>Queue ${name}</h1>`",
        'html`<${Rows} label="Queues" />`',
        '{ name: "age", help: "empty: by size only" }',
        '[["Name", (one) => one.name]]',
        "title=${`Delete ${name}`}",
        "more=${`${count(n)} since the start`}",
        'value ? "not known" : name',
        'value ? "Resume" : t("Pause")',
    ),
)
def test_a_bare_text_is_found(source: str) -> None:
    assert _bare(source)


def test_the_first_view_is_small_in_chinese_too() -> None:
    """English loads no table; the others load it besides."""
    index = (WWW / "index.html").read_text()
    names = ["index.html", *re.findall(r'(?:href|src)="console/([^"]+)"', index)]
    assert "words.js" in names and "zh.js" not in names
    assert sum(len(zlib.compress((WWW / name).read_bytes(), 9)) for name in [*names, "zh.js"]) < 100_000
    assert all((WWW / name).suffix in files._TYPES for name in names)
