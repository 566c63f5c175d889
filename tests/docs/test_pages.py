"""Checks of the pages without a gateway: links and paths exist, configurations are valid."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.config import load
from tests.docs.pages import PAGES, ROOT, blocks


def each_page() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", PAGES, ids=str)


def anchors(path: Path) -> set[str]:
    """The anchors that the headings of a page make."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page()
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", (ROOT / page).read_text()):
        if target.startswith("https://"):
            continue
        name, _, anchor = target.partition("#")
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), f"{page}: {target}"
        assert not anchor or anchor in anchors(path), f"{page}: {target}"


FOLDERS = {path.name for top in (ROOT, ROOT / "tests", ROOT / "src/penstock") for path in top.iterdir()}
_FILE = re.compile(r"`((?:[\w-]+/)+[\w-]+\.(?:py|pyx|pxd|pyi|h|js|go|json|md|toml))`")


@each_page()
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    """Files are named from the root, from tests/, or from the folder that the page is about."""
    for name in _FILE.findall((ROOT / page).read_text()):
        first = name.partition("/")[0]
        if first in FOLDERS:
            places = [ROOT / name, ROOT / "tests" / name, ROOT / "src/penstock" / name]
            assert any(place.exists() for place in places), f"{page}: {name}"


@each_page()
def test_every_target_of_make_that_a_page_names_is_there(page: Path) -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M))
    assert set(re.findall(r"`make ([a-z0-9-]+)", (ROOT / page).read_text())) <= targets


def listed(index: str) -> set[str]:
    """The pages of docs/ that a page of it links to, by their path below docs/."""
    path = ROOT / "docs" / index
    targets = re.findall(r"\]\(([^)\s#]+\.md)\)", path.read_text())
    found = {(path.parent / target).resolve() for target in targets}
    return {str(page.relative_to(ROOT / "docs")) for page in found if page.is_relative_to(ROOT / "docs")}


def test_the_index_has_every_page() -> None:
    pages = {str(page.relative_to("docs")) for page in PAGES if page.parts[0] == "docs"}
    assert pages - {"README.md"} == listed("README.md") | listed("adr/README.md")


def test_the_site_has_every_page_in_its_navigation() -> None:
    """`make docs-site` is as strict; this finds it without MkDocs."""
    navigation = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    pages = {str(page.relative_to("docs")) for page in PAGES if page.parts[0] == "docs"}
    assert {page for page in navigation if not page.startswith("project/")} == {
        page for page in pages if not re.match(r"adr/\d", page)
    }


def test_a_page_is_of_one_of_the_four_kinds() -> None:
    kinds = {page.parts[1] for page in PAGES if page.parts[0] == "docs"}
    assert kinds == {"README.md", "tutorials", "how-to", "reference", "explanation", "adr"}


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = sorted(path.name[:4] for path in (ROOT / "docs/adr").glob("0*.md"))
    assert numbers == [f"{number:04}" for number in range(1, len(numbers) + 1)]
    for path in (ROOT / "docs/adr").glob("0*.md"):
        assert path.read_text().startswith(f"# {path.name[:4]}: "), path


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@each_page()
def test_every_configuration_is_valid(page: Path, tmp_path: Path) -> None:
    for block in blocks(page):
        if block.language == "toml":
            file = tmp_path / "penstock.toml"
            file.write_text(block.code)
            load(file=file)


def test_checked_blocks_are_of_a_kind_that_is_checked() -> None:
    kinds = {block.language for page in PAGES for block in blocks(page)}
    assert kinds <= {"toml", "python", "bash"}
    assert {"toml", "python", "bash"} <= kinds, "the marks are not found any more"


PARTS = ("src/penstock", "protocols", "router", "subscriptions", "log_core", "spark")


def test_the_map_of_the_architecture_is_that_of_the_tree() -> None:
    """Each folder of modules down to the second level, and the folders of a front end by their names."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    table = text[text.index("\n| folder |") : text.index("`src/penstock` has a link")]
    rows = dict(re.findall(r"^\| `([\w/]+)` \| (.*) \|$", table, re.M))
    told = set(rows) | {
        f"{folder}/{name}"
        for folder, says in rows.items()
        for name in re.findall(r"`(\w+)`", says)
        if folder.startswith("protocols/")
    }
    here = {
        str(path.parent.relative_to(ROOT)) for part in PARTS for path in (ROOT / part).rglob("__init__.py")
    }
    links = tuple(f"src/penstock/{part}" for part in PARTS[1:])
    here = {folder for folder in here if not folder.startswith(links)}
    deep = {
        folder for folder in here if folder.count("/") > 1 and not folder.startswith(("src/", "protocols/"))
    }
    deep |= {folder for folder in here if folder.startswith("src/") and folder.count("/") > 2}
    deep |= {folder for folder in here if folder.startswith("protocols/") and folder.count("/") > 2}
    assert told == here - deep


def test_the_answers_to_the_twelve_questions_are_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    answers = re.findall(r"^\| .*\? \| `([\w/]+)` \| `(\w+\.\w+)`: `([\w.]+)` \|$", text, re.M)
    assert len(answers) == 12
    for folder, module, name in answers:
        source = (ROOT / folder / module).read_text()
        for word in name.split("."):
            assert re.search(rf"\b(?:class|def|cpdef|cdef class) {word}\b", source), (
                f"{folder}/{module}: {word}"
            )
