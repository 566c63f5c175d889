"""MQTT 3.1.1, chapter 6: WebSocket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conformance import websocket

VERSION = 4


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    yield from websocket.serving(tmp_path_factory.mktemp("gateway"))


def test_mqtt311_6_0_0_1__frames_are_binary_and_others_close(port: int, unique: str) -> None:
    websocket.frames_are_binary(port, VERSION, unique)


def test_mqtt311_6_0_0_2__packets_and_frames_need_not_begin_together(port: int, unique: str) -> None:
    websocket.packets_and_frames(port, VERSION, unique, goodbye=b"")


def test_mqtt311_6_0_0_4__the_sub_protocol_selected_is_mqtt(port: int) -> None:
    websocket.sub_protocol(port, VERSION)
