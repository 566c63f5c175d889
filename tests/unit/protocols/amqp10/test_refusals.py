"""Every refusal of the layers below has a condition that the peer understands."""

from __future__ import annotations

import pytest

from penstock.errors import RoutingError, SubscriptionError
from penstock.protocols.amqp10.channel.refusals import told
from penstock.protocols.amqp10.codec.performatives import Error
from penstock.router.errors import AccessRefused, NotFound
from penstock.subscriptions.errors import ConsumerRefused


@pytest.mark.parametrize(
    ("error", "condition"),
    [
        (NotFound("queue", "q", "/"), "amqp:not-found"),
        (AccessRefused("queue", "q", "/", "u", "read"), "amqp:unauthorized-access"),
        (ConsumerRefused("taken"), "amqp:resource-locked"),
        (RoutingError("any other"), "amqp:precondition-failed"),
    ],
)
def test_a_refusal_has_its_condition(error: RoutingError | SubscriptionError, condition: str) -> None:
    assert told(error) == Error(condition, str(error))


def test_an_error_that_is_no_refusal_keeps_its_words_to_the_log() -> None:
    assert told(SubscriptionError("secret path")) == Error("amqp:internal-error", "see the broker logfile")
