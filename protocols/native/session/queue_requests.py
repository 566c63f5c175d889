"""The requests of a native client about AMQP's queues and bindings; see `requests`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.protocols.native.codec.errors import RequestError
from penstock.router.arguments import encode_table
from penstock.router.queues.backfill import ARGUMENT
from penstock.subscriptions.dispatch.strategies import Kind

if TYPE_CHECKING:
    from penstock.protocols.native.codec.frames import Fields
    from penstock.protocols.native.session.session import Session
    from penstock.router.queues.backfill import History

__all__ = ["bind", "declare", "delete", "describe", "purge", "queues", "unbind"]


def declare(session: Session, id: int, fields: Fields) -> None:
    """{queue?, durable?, exclusive?, auto_delete?, arguments?}: fine when it is there like that."""
    name = fields.text("queue", "")
    durable, exclusive = fields.switch("durable", True), fields.switch("exclusive", False)
    auto_delete, arguments = fields.switch("auto_delete", False), _table(fields)
    fields.done()
    declared = session.vhost.declare_queue(
        name,
        session.actor,
        durable=durable,
        exclusive=exclusive,
        auto_delete=auto_delete,
        arguments=arguments,
    )
    answer = {"queue": declared.name, "messages": declared.message_count}
    _answer_with_history(session, id, answer, declared.lsn, declared.history)


def delete(session: Session, id: int, fields: Fields) -> None:
    """{queue, if_unused?, if_empty?}: with its messages; fine when there is none."""
    name, if_unused = fields.text("queue"), fields.switch("if_unused", False)
    if_empty = fields.switch("if_empty", False)
    fields.done()
    entry = session.vhost.queues.get(name)
    if entry is not None and entry.queue.kind is Kind.STREAM:
        session.vhost.queue(name, session.actor, "configure")  # who may not delete it is not told what it is
        raise RequestError(
            "not_a_queue", f"queue '{name}' is a stream", remedy="delete it as what it is: delete_topic"
        )
    deleted = session.vhost.delete_queue(name, session.actor, if_unused=if_unused, if_empty=if_empty)
    session.answer(id, {"messages": deleted.message_count}, deleted.lsn)


def purge(session: Session, id: int, fields: Fields) -> None:
    """{queue}: what is ready is dropped, what is out stays."""
    queue = session.vhost.queue(fields.text("queue"), session.actor, "read")
    fields.done()
    if queue.kind is Kind.STREAM:
        raise RequestError(
            "not_a_queue",
            f"queue '{queue.name}' is a stream",
            remedy="delete the topic, or give it a max_age",
        )
    session.answer(id, {"messages": queue.purge()}, session.log.appender.next_lsn - 1)


def queues(session: Session, id: int, fields: Fields) -> None:
    """The queues that the user may read, without streams and the exclusive ones of others."""
    fields.done()
    session.codec.spend(256 * len(session.vhost.queues))
    vhost, allow, owners = session.vhost, session.broker.authorizer.allow, (None, session.owner)
    names = [
        name
        for name, entry in vhost.queues.items()
        if entry.queue.kind is not Kind.STREAM
        and entry.owner in owners
        and allow(session.identity, vhost.name, "read", name)
    ]
    session.answer(id, {"queues": sorted(names)})


def describe(session: Session, id: int, fields: Fields) -> None:
    """{queue}: what it holds, and who consumes it."""
    queue = session.vhost.queue(fields.text("queue"), session.actor, "read")
    fields.done()
    if queue.kind is Kind.STREAM:
        raise RequestError("not_a_queue", f"queue '{queue.name}' is a stream", remedy="describe it as topic")
    cursor = queue.cursor
    answer = {
        "queue": queue.name,
        "durable": queue.durable,
        "ready": queue.ready_count,
        "unacked": cursor.outstanding,
        "consumers": queue.consumer_count,
        "arguments": {name: str(value) for name, value in queue.arguments.items()},
    }
    session.answer(id, answer)


def bind(session: Session, id: int, fields: Fields) -> None:
    """{topic or queue, exchange, routing_key, arguments?, since?}: what the exchange routes by that key goes
    there, too; with `since` also what it would have brought from then on, for a queue that is new."""
    name, exchange, key, arguments = _ends(fields)
    since = fields.any("since")
    fields.done()
    if since is not None:
        arguments[ARGUMENT] = since
    bound = session.vhost.bind_queue_since(name, exchange, key, session.actor, arguments)
    _answer_with_history(session, id, {}, bound.lsn, bound.history)


def unbind(session: Session, id: int, fields: Fields) -> None:
    """{topic or queue, exchange, routing_key, arguments?}: not any more; fine when it did not."""
    name, exchange, key, arguments = _ends(fields)
    fields.done()
    session.answer(id, {}, session.vhost.unbind_queue(name, exchange, key, session.actor, arguments))


def _ends(fields: Fields) -> tuple[str, str, str, dict[str, Any]]:
    name = fields.text("queue") if fields.has("queue") else fields.text("topic")
    return name, fields.text("exchange"), fields.text("routing_key", ""), _table(fields)


def _table(fields: Fields) -> dict[str, Any]:
    value = fields.any("arguments", {})
    try:
        if not isinstance(value, dict):
            raise ValueError("not an object")
        encode_table(value)
    except ValueError as error:
        raise RequestError(
            "bad_field", f"the field 'arguments': {error}", remedy="an object of names and values is wanted"
        ) from error
    return value


def _answer_with_history(
    session: Session, id: int, answer: dict[str, Any], lsn: int, history: History | None
) -> None:
    if history is None:
        session.answer(id, answer, lsn)
        return

    def told(ok: bool) -> None:
        if not session.running:
            return
        if ok:
            session.answer(id, answer, lsn)
        else:
            session.answer_error(
                id, RequestError("log_failed", "what was published before cannot be read", remedy="try again")
            )

    history(told)
