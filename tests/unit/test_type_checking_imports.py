"""Names that are imported for type checkers only are not used at run time."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("bench", "demo", "log_core", "protocols", "router", "spark", "src/penstock", "subscriptions")


def is_for_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imported(node: ast.AST) -> Iterator[str]:
    """The names that are imported anywhere in `node`."""
    for each in ast.walk(node):
        if isinstance(each, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).partition(".")[0] for alias in each.names)


def used(node: ast.AST, names: set[str]) -> Iterator[int]:
    """Lines that use one of `names` at run time: not in an annotation, nor where a function imports it."""
    if is_for_checkers(node):
        return
    if isinstance(node, ast.Name) and node.id in names:
        yield node.lineno
    parts: Sequence[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        parts = [*node.body, *node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
        names = names - set(imported(node))
    elif isinstance(node, ast.AnnAssign):
        parts = [node.value] if node.value is not None else []
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "cast":
        parts = node.args[1:]
    for part in parts:
        yield from used(part, names)


def misused(text: str) -> list[int]:
    tree = ast.parse(text)
    only = {name for node in ast.walk(tree) if is_for_checkers(node) for name in imported(node)}
    at_run_time = {
        name for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom) for name in imported(node)
    }
    return sorted(used(tree, only - at_run_time)) if only else []


def test_names_for_type_checkers_are_not_used_at_run_time() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "TYPE_CHECKING" in (text := path.read_text())
        for line in misused(text)
    ]
    assert not found, "import these where they are used: " + ", ".join(found)


def test_the_check_finds_such_a_name() -> None:
    text = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from a import A, B, C
def f(a: A) -> bool:
    from b import B
    b: A = B()
    return isinstance(a, C)
"""
    assert misused(text) == [8]
