"""Every command that an error, a help or a finding of `doctor` recommends is run by a test.

The texts are the strings of the sources, without docstrings, and the calls of `hints.command`. `RUN` says
which test runs the command that a text recommends; a new text needs an entry, and so a test.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from penstock.cli.commands import FOREIGN, MODULES
from penstock.cli.parsing import parser_of
from tests.docs.pages import ROOT

FOLDERS = ("src/penstock", "protocols", "router", "subscriptions", "log_core", "spark")

REMEDIES = "tests/e2e/cli/test_remedies.py"
DOCTOR = (
    "tests/e2e/cli/test_cli_messages.py::test_every_command_that_doctor_recommends_works_and_loses_nothing"
)
PAGES_RUN = "tests/e2e/docs/test_documented_commands.py"
CLUSTER = "tests/cluster/test_cluster.py"

RUN = {
    "audit verify": "tests/e2e/management/test_audit.py::test_the_command_shows_and_verifies_it",
    "cluster rebuild": CLUSTER,
    "cluster status": CLUSTER,
    "completion bash": "tests/e2e/cli/test_completion.py",
    "config reference": PAGES_RUN,
    "config schema": PAGES_RUN,
    "config show": PAGES_RUN,
    "exchanges bind": f"{REMEDIES}::test_a_message_that_no_queue_gets_has_the_binding_as_remedy",
    "exchanges bindings": f"{REMEDIES}::test_a_binding_that_is_not_there_has_the_list_as_remedy",
    "log move": "tests/e2e/gateway/test_move_vhost.py",
    "log repair": "tests/e2e/cli/test_log_commands.py",
    "log stats": "tests/unit/log_tools/test_dump.py::test_a_queue_that_is_not_there_is_said",
    "log verify": "tests/unit/log_tools/test_backup.py::test_a_damaged_log_is_not_backed_up",
    "migrate mosquitto --apply": "tests/e2e/links/test_migrate_mosquitto.py",
    "queues show": DOCTOR,
    "rabbitmqctl": f"{REMEDIES}::test_a_wrong_word_has_help_as_remedy",
    "serve": "tests/e2e/gateway/test_serve.py",
    "spark": "tests/spark/test_pages.py",
    "subs show": DOCTOR,
    "tail --topic": f"{REMEDIES}::test_a_topic_that_is_pulled_as_a_queue_is_read_by_the_remedy",
    "top": "tests/e2e/cli/test_cli_terminal.py::test_top_fills_the_terminal_until_it_is_interrupted",
    "users create": f"{REMEDIES}::test_a_user_without_rights_gets_them_by_the_remedies",
    "users grant": f"{REMEDIES}::test_a_user_without_rights_gets_them_by_the_remedies",
    "users permissions": f"{REMEDIES}::test_a_user_without_rights_gets_them_by_the_remedies",
    "vhosts create": f"{REMEDIES}::test_a_missing_vhost_or_user_is_made",
    "webhooks attempts": DOCTOR,
    "webhooks show": DOCTOR,
}
"""Beginning of a recommended command -> the test (or file of tests) that runs it."""

_COMMANDS = "|".join(sorted(map(re.escape, MODULES), key=len, reverse=True))
_IN_TEXT = re.compile(rf"\bpenstock ((?:{_COMMANDS})\b(?! \w+ed\b)[^`\"'();,:]*)")

_MAY_RECOMMEND = re.compile(r"penstock[^.\w]|\bcommand\(")
"""Matches the source of each module with such a text: others need not be parsed."""


def strings(tree: ast.Module) -> Iterator[str]:
    """The strings of a module that are no docstrings."""
    docs = {
        id(node.value)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        for node in outer.body
        if isinstance(node, ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def calls(tree: ast.Module) -> Iterator[str]:
    """The words of each call of `hints.command`, as far as they stand there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "command":
            words = []
            for argument in node.args:
                if not isinstance(argument, ast.Constant):
                    break
                words.append(str(argument.value))
            if words and words[0] in MODULES:
                yield " ".join(words)


@cache
def recommended() -> dict[str, str]:
    """A command that a text recommends -> the file with the text."""
    found: dict[str, str] = {}
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            if not _MAY_RECOMMEND.search(source := file.read_text()):
                continue
            tree = ast.parse(source)
            texts = [*calls(tree), *(match[1] for text in strings(tree) for match in _IN_TEXT.finditer(text))]
            for text in (" ".join(text.split()) for text in texts):
                # Such a command alone is a name, as in "no file of a penstock log".
                if text not in MODULES or text in FOREIGN or not parser_of(text).verbs():
                    found.setdefault(text, str(file.relative_to(ROOT)))
    return found


def entry_of(text: str) -> str | None:
    """The longest key of `RUN` that a text begins with."""
    fitting = [key for key in RUN if f"{text} ".startswith(f"{key} ")]
    return max(fitting, key=len, default=None)


def test_every_command_that_a_text_recommends_is_run() -> None:
    assert len(recommended()) > 30
    missing = [f"{file}: penstock {text}" for text, file in recommended().items() if entry_of(text) is None]
    assert not missing, "name the test that runs it in RUN"
    assert {entry_of(text) for text in recommended()} == {*RUN}, "an entry that no text needs"


def test_the_tests_that_run_them_are_there_and_have_their_words() -> None:
    for key, test in RUN.items():
        file, _, name = test.partition("::")
        source = (ROOT / file).read_text()
        assert not name or f"def {name}(" in source, test
        if file == PAGES_RUN or "recommended(" in source or test == DOCTOR:
            continue  # what a page shows or an error prints is run, whatever it is
        word = next(word for word in reversed(key.split()) if not word.startswith("-"))
        assert re.search(rf"\W{re.escape(word)}\W", source), test
