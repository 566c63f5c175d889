"""Class tx: publishes and acknowledgements of a channel at once, or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pamqp import commands
from pamqp.commands import Basic, Tx

from penstock.protocols.amqp.options import AmqpOptions
from tests.support.amqp_session import Client, World
from tests.support.logs import files_made


@pytest.fixture
def tx(client: Client) -> Client:
    """A transactional channel 1, and a durable queue "q"."""
    client.call(1, commands.Queue.Declare(queue="q", durable=True), commands.Queue.DeclareOk)
    client.call(1, Tx.Select(), Tx.SelectOk)
    return client


def ready(client: Client, queue: str = "q") -> int:
    client.read()
    return client.session.vhost.queues[queue].queue.ready_count


def deliver(client: Client, *bodies: bytes) -> list[int]:
    """Publish outside of the transaction, consume on channel 1; the delivery tags."""
    client.call(2, commands.Channel.Open(), commands.Channel.OpenOk)
    for body in bodies:
        client.publish("", "q", body, channel=2, delivery_mode=2)
    client.call(1, Basic.Consume(queue="q", consumer_tag="c"), Basic.ConsumeOk)
    return [client.message(1, Basic.Deliver)[0].delivery_tag for _ in bodies]


def unacked(client: Client) -> int:
    core = client.session.codec.channel(1)
    assert core is not None
    return core.unacked_count


def test_nothing_is_published_before_the_commit(tx: Client) -> None:
    for body in (b"1", b"2"):
        tx.publish("", "q", body)
    assert ready(tx) == 0
    tx.call(1, Tx.Commit(), Tx.CommitOk)
    assert ready(tx) == 2


def test_a_rollback_forgets_the_messages(tx: Client) -> None:
    tx.publish("", "q", b"never")
    tx.call(1, Tx.Rollback(), Tx.RollbackOk)
    tx.call(1, Tx.Commit(), Tx.CommitOk)
    assert ready(tx) == 0


def test_selecting_again_keeps_what_is_under_way(tx: Client) -> None:
    tx.publish("", "q", b"kept")
    tx.call(1, Tx.Select(), Tx.SelectOk)
    tx.call(1, Tx.Commit(), Tx.CommitOk)
    assert ready(tx) == 1


def test_a_closed_channel_takes_its_transaction_with_it(tx: Client) -> None:
    tx.publish("", "q", b"never")
    tx.call(1, commands.Channel.Close(200, "", 0, 0), commands.Channel.CloseOk)
    tx.call(1, commands.Channel.Open(), commands.Channel.OpenOk)
    tx.send(1, Tx.Commit())
    assert tx.expect(1, commands.Channel.Close).reply_code == 406
    assert ready(tx) == 0


def test_acknowledgements_wait_for_the_commit(tx: Client) -> None:
    tags = deliver(tx, b"1", b"2", b"3")
    tx.send(1, Basic.Ack(tags[1], multiple=True))
    assert unacked(tx) == 3
    tx.call(1, Tx.Commit(), Tx.CommitOk)
    assert unacked(tx) == 1


def test_after_a_rollback_a_delivery_awaits_its_acknowledgement_again(tx: Client) -> None:
    (tag,) = deliver(tx, b"1")
    tx.send(1, Basic.Ack(tag))
    tx.call(1, Tx.Rollback(), Tx.RollbackOk)
    tx.nothing()
    tx.send(1, Basic.Ack(tag))
    tx.call(1, Tx.Commit(), Tx.CommitOk)
    assert unacked(tx) == 0


@pytest.mark.parametrize("multiple", [False, True])
def test_a_delivery_is_acknowledged_once_in_a_transaction(tx: Client, multiple: bool) -> None:
    (tag,) = deliver(tx, b"1")
    tx.send(1, Basic.Ack(tag))
    tx.send(1, Basic.Ack(tag, multiple))
    close = tx.expect(1, commands.Channel.Close)
    assert close.reply_text == f"PRECONDITION_FAILED - unknown delivery tag {tag}"
    assert ready(tx) == 1


def test_all_so_far_leaves_out_what_is_acknowledged_already(tx: Client) -> None:
    tags = deliver(tx, b"1", b"2")
    tx.send(1, Basic.Reject(tags[0], requeue=True))
    tx.send(1, Basic.Ack(0, multiple=True))
    tx.call(1, Basic.Cancel("c"), Basic.CancelOk)
    tx.call(1, Tx.Commit(), Tx.CommitOk)
    assert ready(tx) == 1


def test_recover_leaves_planned_acknowledgements_alone(tx: Client) -> None:
    tags = deliver(tx, b"1", b"2")
    tx.send(1, Basic.Ack(tags[0]))
    tx.send(1, Basic.Recover(requeue=True))
    tx.expect(1, Basic.RecoverOk)
    method, _, body = tx.message(1, Basic.Deliver)
    assert (body, method.redelivered) == (b"2", True)
    tx.call(1, Tx.Commit(), Tx.CommitOk)
    assert unacked(tx) == 1


def test_prefetch_counts_until_the_commit(tx: Client) -> None:
    tx.call(1, Basic.Qos(0, 1, False), Basic.QosOk)
    (tag,) = deliver(tx, b"1")
    tx.publish("", "q", b"2", channel=2)
    tx.send(1, Basic.Ack(tag))
    tx.nothing()
    tx.send(1, Tx.Commit())
    assert tx.message(1, Basic.Deliver)[2] == b"2"
    tx.expect(1, Tx.CommitOk)  # it waited for the disk, the delivery did not


def test_returns_leave_before_commit_ok(tx: Client) -> None:
    tx.publish("", "nowhere", b"back", mandatory=True)
    tx.nothing()
    tx.send(1, Tx.Commit())
    method, _, body = tx.message(1, Basic.Return)
    assert (method.reply_code, method.reply_text, body) == (312, "NO_ROUTE", b"back")
    tx.expect(1, Tx.CommitOk)


def test_messages_are_routed_at_the_commit(tx: Client) -> None:
    tx.publish("amq.fanout", "", b"late")
    tx.call(1, commands.Queue.Bind(queue="q", exchange="amq.fanout"), commands.Queue.BindOk)
    tx.call(1, Tx.Commit(), Tx.CommitOk)
    assert ready(tx) == 1


def test_one_refused_message_refuses_the_commit(tx: Client) -> None:
    tx.call(1, commands.Exchange.Declare(exchange="x"), commands.Exchange.DeclareOk)
    tx.publish("", "q", b"fine")
    tx.publish("x", "q", b"too late")
    tx.call(1, commands.Exchange.Delete(exchange="x"), commands.Exchange.DeleteOk)
    tx.send(1, Tx.Commit())
    close = tx.expect(1, commands.Channel.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (404, 90, 20)
    assert ready(tx) == 0


@pytest.mark.parametrize("method", [Tx.Commit(), Tx.Rollback()])
def test_without_select(client: Client, method: Tx.Commit | Tx.Rollback) -> None:
    client.send(1, method)
    close = client.expect(1, commands.Channel.Close)
    assert close.reply_text == "PRECONDITION_FAILED - channel is not transactional"


def test_no_transactions_with_confirms(client: Client) -> None:
    client.call(1, commands.Confirm.Select(), commands.Confirm.SelectOk)
    client.send(1, Tx.Select())
    close = client.expect(1, commands.Channel.Close)
    assert close.reply_text == "PRECONDITION_FAILED - cannot switch from confirm to tx mode"


def test_no_confirms_with_transactions(tx: Client) -> None:
    tx.send(1, commands.Confirm.Select())
    close = tx.expect(1, commands.Channel.Close)
    assert close.reply_text == "PRECONDITION_FAILED - cannot switch from tx to confirm mode"


def test_the_size_of_a_transaction_is_bounded(tmp_path: Path) -> None:
    world = World(tmp_path, AmqpOptions(max_message_bytes=1000))
    client = world.client()
    client.call(1, Tx.Select(), Tx.SelectOk)
    client.publish("", "q", b"x" * 900)
    client.call(1, Tx.Rollback(), Tx.RollbackOk)
    client.publish("", "q", b"x" * 900)
    client.nothing()
    client.publish("", "q", b"x" * 900)
    assert client.expect(0, commands.Connection.Close).reply_code == 506
    world.close()


def test_a_commit_is_whole_after_a_crash(tx: Client, world: World, tmp_path: Path) -> None:
    (tag,) = deliver(tx, b"old")
    tx.publish("", "q", b"new", delivery_mode=2)
    tx.send(1, Basic.Ack(tag))
    tx.call(1, Basic.Cancel("c"), Basic.CancelOk)
    world.log.flush()
    before, after = tmp_path / "before", tmp_path / "after"
    files_made(world.log)
    shutil.copytree(world.folder, before, ignore=shutil.ignore_patterns("before", "after"))
    tx.call(1, Tx.Commit(), Tx.CommitOk)
    shutil.copytree(world.folder, after, ignore=shutil.ignore_patterns("before", "after"))
    found = []
    for folder in (before, after):
        crashed = World(folder)
        client = crashed.client()
        client.call(1, Basic.Consume(queue="q", no_ack=True), Basic.ConsumeOk)
        found.append(client.wait_bodies(1))
        assert ready(client) == 0
        crashed.close()
    assert found == [[b"old"], [b"new"]]


def test_records_and_cursors_are_one_unit(tx: Client, world: World) -> None:
    (tag,) = deliver(tx, b"old")
    tx.publish("", "q", b"new", delivery_mode=2)
    tx.send(1, Basic.Ack(tag))
    world.turn()
    take = world.log.appender.take_closed
    tx.send(1, Tx.Commit())
    batches = take()
    assert [batch.attrs & 1 for batch in batches] == [1, 0]
    assert [batch.kind for batch in batches] == [1, 2]


@pytest.mark.parametrize("commit", [True, False])
def test_a_rejected_delivery_is_dead_lettered_by_the_commit(client: Client, commit: bool) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    client.call(1, commands.Queue.Declare(queue="dead"), commands.Queue.DeclareOk)
    client.call(1, commands.Queue.Declare(queue="q", arguments=arguments), commands.Queue.DeclareOk)
    client.call(1, Tx.Select(), Tx.SelectOk)
    (tag,) = deliver(client, b"1")
    client.send(1, Basic.Reject(tag, requeue=False))
    assert ready(client, "dead") == 0
    end = (Tx.Commit(), Tx.CommitOk) if commit else (Tx.Rollback(), Tx.RollbackOk)
    client.call(1, *end)
    assert ready(client, "dead") == commit
