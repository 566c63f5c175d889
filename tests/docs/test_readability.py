"""The measuring of prose finds sentences as a reader does."""

from __future__ import annotations

import pytest

from tests.docs.readability import ROOT, Measure, measures, prose, sentences


@pytest.mark.parametrize(
    ("text", "lengths"),
    [
        ("One two. Three four five!", [2, 3]),
        ("See `a.b. C` for e.g. this. Then stop.", [5, 2]),
        ("A colon: one sentence; and still it is.", [8]),
        ("[a link](https://example.org/x.y) of three words.", [5]),
        ("Version 3.1 and 0.5 s.", [5]),
    ],
)
def test_a_paragraph_is_cut_into_its_sentences(text: str, lengths: list[int]) -> None:
    assert [len(words) for words in sentences([text])] == lengths


def test_prose_is_paragraphs_and_list_items_without_code_tables_and_headings() -> None:
    page = """\
# A heading

A paragraph over
two lines.

- an item
  that goes on
- another

| a | table |
|---|---|

```python
code()
```

<!-- conformance: written -->
generated
<!-- /conformance -->
The end.
"""
    assert list(prose(page)) == ["A paragraph over two lines.", "an item that goes on", "another", "The end."]


def test_layouts_and_section_names_of_docstrings_are_no_prose() -> None:
    text = "What it is.\n\n    | base u64 | size u32 |\n    a layout\n\nArgs:\n    start: The first offset."
    assert list(prose(text)) == ["What it is.", "start: The first offset."]


def test_figures_of_a_group() -> None:
    group = Measure("x", [["word"] * 40, ["word"] * 10])
    assert (group.words, group.mean, group.long) == (50, 25.0, 0.5)
    assert group.ease(lambda word: 1) == pytest.approx(206.835 - 1.015 * 25 - 84.6)


def test_sentences_of_pages_and_docstrings_stay_short_on_average() -> None:
    """CONTRIBUTING promises an average under 17 words; each folder of pages has to keep it by itself."""
    found = {one.name: round(one.mean, 1) for one in measures(ROOT)}
    assert {"README.md", "docs/reference", "docs/adr", "docstrings of log_core"} <= set(found)
    assert {name: mean for name, mean in found.items() if mean >= 17} == {}
