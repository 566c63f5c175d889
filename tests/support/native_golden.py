"""The frames of `tests/golden/native-frames.json`."""

from __future__ import annotations

import json

from tests.support.brokers import ROOT

GOLDEN: dict[str, dict[str, str]] = json.loads((ROOT / "tests/golden/native-frames.json").read_text())
FRAMES = {name: bytes.fromhex(one["hex"]) for name, one in GOLDEN.items()}
