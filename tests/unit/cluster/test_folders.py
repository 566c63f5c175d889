"""A node's folder is changed by its node alone, and one machine's by no cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.config import load
from penstock.errors import StartError
from penstock.gateway.server import open_log
from penstock.log_core.files.layout import Folder
from penstock.log_core.replication.mirror import begin_anew
from penstock.log_core.replication.position import Position
from penstock.log_tools.importing import import_file
from penstock.log_tools.moving import move
from penstock.log_tools.repair import repair

TOOLS: dict[str, Callable[[Path], object]] = {
    "repair": lambda root: repair(Folder(root), apply=True),
    "move": lambda root: move(root, "/", 1),
    "import": lambda root: import_file(root / "export", root),
}


@pytest.mark.parametrize("tool", TOOLS)
def test_tools_refuse_a_folder_that_kafka_keeps(tool: str, tmp_path: Path) -> None:
    config = load(environ={}, sets=[f"log.data_dir={tmp_path}"]).config
    if tool != "import":
        open_log(config).close_sync()
    Position("plant").write(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StartError, match="is a node's") as raised:
        TOOLS[tool](tmp_path)
    assert "penstock cluster rebuild" in raised.value.remedy
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_of_one_machine_follows_no_cluster_any_more(tmp_path: Path) -> None:
    begin_anew(tmp_path, "plant")
    open_log(load(environ={}, sets=[f"log.data_dir={tmp_path}"]).config).close_sync()
    assert Position.read(tmp_path) is None
