"""The totals of worker 0: sums, and pages of metrics."""

from __future__ import annotations

from penstock.protocols.http.server.worker_totals import added, labelled


def test_numbers_are_added_lists_joined_and_the_rest_is_the_first_ones() -> None:
    whole = {"a": 1, "on": True, "name": "x", "deep": {"rate": 0.5}, "list": [{"n": 1}], "own": 7}
    part = {"a": 2, "on": True, "name": "y", "deep": {"rate": 0.25}, "list": [{"n": 1}, {"n": 2}]}
    assert added(whole, [part, part]) == {
        "a": 5,
        "on": True,
        "name": "x",
        "deep": {"rate": 1.0},
        "list": [{"n": 1}, {"n": 2}],
        "own": 7,
    }


def test_samples_are_added_by_their_time() -> None:
    def details(*samples: tuple[int, int]) -> dict[str, object]:
        return {"samples": [{"sample": value, "timestamp": moment} for moment, value in samples]}

    whole, late = details((15, 9), (10, 5), (5, 1)), details((15, 2), (10, 1))
    assert added(whole, [late, late]) == details((15, 13), (10, 7), (5, 1))
    assert added(late, [whole]) == details((15, 11), (10, 6), (5, 1))


def test_metrics_of_all_pages_come_by_name_with_a_label() -> None:
    first = b'# TYPE a gauge\n# HELP a text\na 1\n# TYPE b counter\n# HELP b text\nb{vhost="{ x"} 2\n'
    second = b"# TYPE a gauge\n# HELP a text\na 3\n# TYPE c gauge\n# HELP c text\nc 4\n"
    assert labelled([first, second]).decode().splitlines() == [
        "# TYPE a gauge",
        "# HELP a text",
        'a{worker="0"} 1',
        'a{worker="1"} 3',
        "# TYPE b counter",
        "# HELP b text",
        'b{worker="0",vhost="{ x"} 2',
        "# TYPE c gauge",
        "# HELP c text",
        'c{worker="1"} 4',
    ]
