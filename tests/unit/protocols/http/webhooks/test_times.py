"""The times of a webhook's requests: those of the last ones, and the share that was answered within one."""

from __future__ import annotations

from penstock.protocols.http.webhooks.delivery.ledger import Counts


def test_nothing_is_told_before_the_first_request() -> None:
    assert Counts().took_ms(0.99) is None


def test_a_share_of_the_requests_was_answered_within_its_time() -> None:
    counts = Counts()
    counts.recent_s.extend(n / 1000 for n in range(200, 0, -1))
    assert [counts.took_ms(share) for share in (0.5, 0.99, 1.0)] == [100.0, 198.0, 200.0]
    counts.recent_s.clear()
    counts.recent_s.append(0.25)
    assert counts.took_ms(0.5) == counts.took_ms(0.99) == 250.0


def test_old_requests_are_forgotten() -> None:
    counts = Counts()
    counts.recent_s.extend([9.0] * 500 + [1.0] * 500)
    assert counts.took_ms(1.0) == 1000.0
