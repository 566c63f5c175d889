"""Measures how easy the prose is to read: README, the other pages, docstrings.

    python -m tests.docs.readability [ROOT]        also: make readability

For each group of texts: sentences, words, words per sentence, the share of sentences over 30 words, and the
Flesch reading ease (206.835 - 1.015 words per sentence - 84.6 syllables per word; 60 to 70 is plain English).
Pyphen counts the syllables: its hyphenation patterns come with the package, so nothing is downloaded.

Prose is paragraphs, list items and docstrings. Code blocks, tables, headings, generated pages and layouts
(lines indented further than their text) are left out, because they have no sentences. Inline code counts
as one word of one syllable. A sentence ends with a period, an exclamation or a question mark, and at the
end of its paragraph or list item; a colon or semicolon does not end one.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LONG = 30
"""A sentence of more words counts as long."""

_CODE_BLOCK = re.compile(r"^(```|~~~).*?^\1[ \t]*$", re.M | re.S)
_GENERATED = re.compile(r"<!-- conformance:.*?<!-- /conformance -->", re.S)
_COMMENT = re.compile(r"<!--.*?-->", re.S)
_INLINE_CODE = re.compile(r"``.+?``|`[^`]+`", re.S)
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_ITEM = re.compile(r"[-*+] |\d+\.? ")
_FIELD = re.compile(r"(Args|Returns|Raises|Yields|Attributes):$")
_END = re.compile(r"(?<=[.!?])[\"')\]*_]*\s+(?=[\"'(\[*_]*[A-Z0-9`])")
_ABBREVIATION = re.compile(r"\b(e\.g|i\.e|etc|vs|No|cf)\.")
_WORD = re.compile(r"[A-Za-z0-9][\w'./-]*")
_KERNEL_DOC = re.compile(r'"""(.*?)"""', re.S)


@dataclass(slots=True)
class Measure:
    """The sentences of one group of texts."""

    name: str
    sentences: list[list[str]]
    """Each as its words."""

    @property
    def words(self) -> int:
        return sum(map(len, self.sentences))

    @property
    def mean(self) -> float:
        """Words per sentence; 0 without a sentence."""
        return self.words / len(self.sentences) if self.sentences else 0.0

    @property
    def long(self) -> float:
        """The share of sentences over `LONG` words, in [0, 1]."""
        return sum(len(words) > LONG for words in self.sentences) / max(1, len(self.sentences))

    def ease(self, syllables: Callable[[str], int]) -> float:
        """Flesch reading ease; `syllables` counts those of one word."""
        count = sum(syllables(word) for words in self.sentences for word in words)
        return 206.835 - 1.015 * self.mean - 84.6 * count / max(1, self.words)


def sentences(paragraphs: Iterable[str]) -> Iterator[list[str]]:
    """The sentences of paragraphs of plain text, each as its words; those without words are left out."""
    for paragraph in paragraphs:
        text = _INLINE_CODE.sub("code", paragraph)
        text = _ABBREVIATION.sub(lambda found: found[0].replace(".", ""), _LINK.sub(r"\1", text))
        for sentence in _END.split(" ".join(text.split())):
            words = _WORD.findall(sentence)
            if words:
                yield words


def prose(text: str) -> Iterator[str]:
    """The paragraphs and list items of a Markdown page or a docstring."""
    for pattern in (_CODE_BLOCK, _GENERATED, _COMMENT):
        text = pattern.sub("\n\n", text)
    lines: list[str] = []
    indent = 0
    for line in [*text.splitlines(), ""]:
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        starts = bool(_ITEM.match(stripped))
        other = not stripped or stripped.startswith(("#", "|", "+--", "<", ">")) or _FIELD.match(stripped)
        if other or starts:
            if lines:
                yield " ".join(lines)
            lines = []
        if other:
            indent = depth + 4 if _FIELD.match(stripped) else indent
            continue
        if starts:
            indent = depth + 2
            lines = [_ITEM.sub("", stripped, count=1)]
        elif lines or depth < 4 or depth <= indent:
            if not lines:
                indent = depth
            lines.append(stripped)


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a module, and the texts under its fields."""
    source = path.read_text()
    if path.suffix == ".pyx":
        yield from map(inspect.cleandoc, _KERNEL_DOC.findall(source))
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            if isinstance(node.value.value, str):
                yield inspect.cleandoc(node.value.value)


def measures(root: Path) -> list[Measure]:
    """Each group of texts below `root`, a checkout, and the total of the pages and of the docstrings."""
    pages = [root / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    pages += [page for name in ("SECURITY.md", "CHANGELOG.md") if (page := root / name).exists()]
    found = [Measure(page.name, list(sentences(prose(page.read_text())))) for page in pages]
    folders: dict[str, list[Path]] = {}
    for page in sorted((root / "docs").rglob("*.md")):
        if page.name != "configuration.md":  # generated from docstrings, which are counted themselves
            folders.setdefault(str(page.parent.relative_to(root)), []).append(page)
    for name, files in folders.items():
        texts = (text for file in files for text in prose(file.read_text()))
        found.append(Measure(name, list(sentences(texts))))
    pages_all = [words for one in found for words in one.sentences]
    code: list[Measure] = []
    for folder in ("src/penstock", "protocols", "router", "subscriptions", "log_core", "spark"):
        sources = sorted((root / folder).rglob("*.py")) + sorted((root / folder).rglob("*.pyx"))
        # Links lead to the other folders, which count themselves.
        sources = [path for path in sources if not any(up.is_symlink() for up in path.parents)]
        texts = (text for path in sources for doc in docstrings(path) for text in prose(doc))
        code.append(Measure(f"docstrings of {folder}", list(sentences(texts))))
    code_all = [words for one in code for words in one.sentences]
    return [
        *found,
        Measure("**all pages**", pages_all),
        *code,
        Measure("**all docstrings**", code_all),
        Measure("**everything**", pages_all + code_all),
    ]


def table(found: list[Measure], syllables: Callable[[str], int]) -> str:
    """The measures as a Markdown table."""
    lines = ["| texts | sentences | words | words per sentence | over 30 words | Flesch reading ease |"]
    lines.append("|---|---|---|---|---|---|")
    for one in found:
        cells = (one.name, f"{len(one.sentences):,}", f"{one.words:,}", f"{one.mean:.1f}", f"{one.long:.1%}")
        lines.append(f"| {' | '.join(cells)} | {one.ease(syllables):.0f} |")
    return "\n".join(lines)


def main(root: Path) -> None:
    """Print the table of a checkout."""
    import pyphen

    dictionary = pyphen.Pyphen(lang="en_US")
    known: dict[str, int] = {}

    def syllables(word: str) -> int:
        if word not in known:
            known[word] = len(dictionary.positions(word)) + 1
        return known[word]

    print(table(measures(root), syllables))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
