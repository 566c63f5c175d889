"""A hook of MkDocs: pages outside docs/ that a page links to become pages of the site, too.

The pages of docs/ link to README.md, ARCHITECTURE.md and bench/results/*.md by their place in the
repository, so that the links work in an editor and on a code host. The site has no such files. This hook
adds every Markdown file that a page links to as `project/<its path>`, and points the links there. A link to
any other file outside docs/ becomes plain code, because the site does not carry sources. `mkdocs build
--strict` then reports a link that leads nowhere.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
_LINK = re.compile(r"(\[(?P<label>(?:[^\[\]]|\[[^\]]*\])*)\])\((?P<target>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the Markdown files outside docs/ that can be reached from a page of docs/."""
    waiting = sorted(DOCS.rglob("*.md"))
    seen = set(waiting)
    while waiting:
        page = waiting.pop()
        for link in _LINK.finditer(page.read_text()):
            path = _target(page, link["target"])
            if path is not None and path.suffix == ".md" and path.is_file() and path not in seen:
                seen.add(path)
                waiting.append(path)
                source = f"project/{path.relative_to(ROOT)}"
                files.append(File.generated(config, source, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point the links of a page at the pages of the site."""
    source = page.file.src_uri
    here = ROOT / source.removeprefix("project/") if source.startswith("project/") else DOCS / source

    def link(found: re.Match[str]) -> str:
        path = _target(here, found["target"])
        if path is None:
            return found[0]
        if path.is_relative_to(DOCS):
            there = str(path.relative_to(DOCS))
        elif path.suffix == ".md":
            there = f"project/{path.relative_to(ROOT)}"
        else:
            return found["label"] if "`" in found["label"] else f"`{found['label']}`"
        place = os.path.relpath(there, os.path.dirname(source) or ".")
        return f"{found[1]}({place}{found['anchor'] or ''})"

    return _LINK.sub(link, markdown)


def _target(page: Path, target: str) -> Path | None:
    """The file that a link of a page names; None for an address and for an anchor of the page itself."""
    if not target or re.match(r"[a-z]+:", target):
        return None
    return Path(os.path.normpath(page.parent / target))
