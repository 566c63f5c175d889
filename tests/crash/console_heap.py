"""The heap of a page of the console, while somebody scrolls, sorts and follows it: `make console-heap`.

Ten minutes of it, quicker: a list of queues is asked for again as often as in `MINUTES` and its pages are
turned and scrolled each time; then the overview follows the gateway as many seconds as that has, with four
events a second. The garbage is collected before the heap is measured (CDP), eight times.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Final

from playwright.sync_api import CDPSession, Page, Route, expect

from tests.support.brokers import Gateway
from tests.support.browser import chromium, watched_page
from tests.support.console import sign_in
from tests.support.management import SETTINGS, Api

__all__ = ["GROWTH_MAX", "grown", "heap_of_a_list", "heap_of_plots"]

MINUTES: Final = 10
QUEUES: Final = 1000
GROWTH_MAX: Final = 512 << 10
"""Bytes that the heap may grow."""
_REFRESH_S: Final = 5
_HEARD: Final = """wanted => new Promise((done) => {
  const look = () => (heard >= wanted ? done() : setTimeout(look, 100));
  look();
})"""
_CHANGED: Final = "dispatchEvent(new Event('penstock-changed'))"


def _heap(cdp: CDPSession) -> int:
    """Bytes in use behind a collection of the garbage."""
    for _ in range(3):
        cdp.send("HeapProfiler.collectGarbage")
    return int(cdp.send("Runtime.getHeapUsage")["usedSize"])


def heap_of_a_list(page: Page, times: int, vhost: str = "", pages: int = QUEUES // 100) -> list[int]:
    """The heap at eight moments, while the pages of the list are turned and scrolled `times` times."""
    cdp = page.context.new_cdp_session(page)
    page.goto(f"/#/queues?vhost={vhost}")
    rows = page.get_by_role("region", name="Queues").locator("tbody tr")
    expect(rows).to_have_count(100)
    found = []
    for number in range(times):
        with page.expect_response(lambda answer: "/api/queues" in answer.url):
            page.evaluate(f"location.hash = '#/queues?vhost={vhost}&page={number % pages + 1}'; {_CHANGED}")
        page.evaluate("document.scrollingElement.scrollTo(0, document.body.scrollHeight)")
        rows.first.wait_for()
        if (number + 1) % max(times // 8, 1) == 0:
            found.append(_heap(cdp))
    return found


def heap_of_plots(page: Page, events: int) -> list[int]:
    """The heap at eight moments, while the overview draws `events` events of the gateway."""

    def sooner(route: Route) -> None:
        route.continue_(url=route.request.url.replace("each_ms=1000", "each_ms=250"))

    page.route(lambda url: "/v1/live?" in url, sooner)
    page.add_init_script(
        """const Source = EventSource;
        globalThis.heard = 0;
        globalThis.EventSource = class extends Source {
          constructor(url) { super(url); this.addEventListener("totals", () => { globalThis.heard += 1; }); }
        };"""
    )
    page.goto("about:blank")
    page.goto("/#/overview?range=0")
    cdp = page.context.new_cdp_session(page)
    found = []
    for part in range(1, 9):
        page.evaluate(_HEARD, events * part // 8)
        found.append(_heap(cdp))
    return found


def grown(heaps: list[int]) -> int:
    """Bytes that the least of the second half has more than that of the first.

    A drawing at the moment of a measurement comes and goes; a leak stays.
    """
    half = len(heaps) // 2
    return min(heaps[half:]) - min(heaps[:half])


def main() -> int:
    """Measure, print, and fail if the heap grew."""
    with tempfile.TemporaryDirectory() as folder, Gateway(Path(folder), settings=SETTINGS) as gateway:
        with closing(Api(gateway)) as api, chromium() as browser:
            for number in range(QUEUES):
                assert api.status("PUT", f"queues/%2F/queue-{number:04}", {}) == 201
            with watched_page(browser, f"http://127.0.0.1:{gateway.ports['management']}") as page:
                sign_in(page)
                found = {
                    "a list": heap_of_a_list(page, 60 * MINUTES // _REFRESH_S),
                    "live plots": heap_of_plots(page, 60 * MINUTES),
                }
    for what, heaps in found.items():
        print(f"{what:12} {grown(heaps):+,} bytes   ", *(f"{one / 1e6:.2f}" for one in heaps), "MB")
    return int(any(grown(heaps) > GROWTH_MAX for heaps in found.values()))


if __name__ == "__main__":
    sys.exit(main())
