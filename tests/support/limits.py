"""How long tests wait at most for what has to happen: so long that only what never happens reaches it.

A machine may be slow, its disk busy, and all of it stand still for seconds. Libraries think otherwise (httpx
gives up after 5 s), so a test says this at each of their calls; `tests/unit/test_waiting.py` holds that for
httpx.
"""

from typing import Final

__all__ = ["LIMIT_S"]

LIMIT_S: Final = 120.0
