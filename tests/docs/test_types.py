"""The programs of the SDK's pages are typed as they stand there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, blocks


def test_sdk_examples_of_the_pages_pass_mypy_strict(tmp_path: Path) -> None:
    programs = []
    for page in (Path("docs/tutorials/python-sdk.md"), Path("docs/reference/sdk.md")):
        for block in blocks(page):
            if block.language == "python" and "import penstock" in block.code:
                program = tmp_path / f"{page.stem}_line_{block.line}.py"
                program.write_text(block.code)
                programs.append(program)
    assert len(programs) > 8
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *programs],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
