"""Each line of `penstock spark` and `spark-submit` on the pages is one that the command takes.

`make spark-docs` runs them.
"""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from functools import partial

import pytest

from penstock.cli import main
from penstock.spark.jobs.verbs import VERBS
from penstock.spark.logs.storage import LocalStorage
from tests.docs.pages import PAGES, commands

LINES = [
    words
    for page in PAGES
    for words in map(partial(shlex.split, comments=True), commands(page, "penstock", "spark-submit"))
    if words[0] == "spark-submit" or words[1] == "spark"
]
SUBMITTED = re.compile(r"import penstock\.spark\.jobs\.(\w+) as job; print\(job\.__file__\)")


def words_of(words: list[str]) -> list[str]:
    """VERB and its arguments."""
    if words[0] != "spark-submit":
        return words[2:]
    # shlex knows no $(...): its words end with the one that ends in a bracket.
    end = next(index for index, word in enumerate(words) if word.endswith(")"))
    found = SUBMITTED.search(" ".join(words[: end + 1]))
    assert found is not None, words
    return [found[1], *words[end + 1 :]]


@pytest.mark.parametrize("words", LINES, ids=" ".join)
def test_a_line_of_the_pages_is_taken(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    verb, *rest = words_of(words)
    taken: list[argparse.Namespace] = []

    def run(arguments: argparse.Namespace) -> int:
        taken.append(arguments)
        return 0

    monkeypatch.setattr(importlib.import_module(f"penstock.spark.jobs.{verb}"), "_run", run)
    # The folders of the pages are not here, and a command looks for its log before it starts Spark.
    monkeypatch.setattr(LocalStorage, "refresh", lambda storage: None)
    assert main(["spark", verb, *rest]) == 0
    assert len(taken) == 1


def test_every_verb_is_on_a_page() -> None:
    assert {words_of(words)[0] for words in LINES} == set(VERBS)
    assert any(words[0] == "spark-submit" for words in LINES)
