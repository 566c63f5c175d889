"""Folders of released versions, and a backup of this one, in a gateway of this version."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from penstock.cli import main
from penstock.testing import Gateway
from tests.support.older_folders import FOLDERS, SETTINGS, check, write

pytestmark = pytest.mark.penstock_only("this is about penstock's own files")


@pytest.mark.parametrize("archive", sorted(FOLDERS.iterdir()), ids=lambda path: path.name)
def test_a_folder_of_a_released_version_opens_with_all_that_was_in_it(archive: Path, tmp_path: Path) -> None:
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="data")
    with Gateway(tmp_path / "data", settings=SETTINGS) as gateway:
        check(gateway)


def test_a_backup_of_a_running_gateway_has_all_that_is_in_it(tmp_path: Path) -> None:
    with Gateway(tmp_path / "data", settings=SETTINGS) as gateway:
        write(gateway)
        assert main(["log", "backup", str(tmp_path / "data"), "--to", str(tmp_path / "backup")]) == 0
    with Gateway(tmp_path / "backup", settings=SETTINGS) as gateway:
        check(gateway)
