"""The promises of the port `LogStore`, one test each; see `penstock.subscriptions.log_store.port`."""

from __future__ import annotations

import asyncio

import pytest

from penstock.subscriptions.log_store.port import (
    Durability,
    FeedId,
    LogStore,
    NewRecord,
    OutOfOrder,
    PositionGone,
    ProducerBatch,
    Replaced,
    Row,
    StoredRecord,
    StoreFailed,
)
from tests.conformance.log_store.conftest import Subject
from tests.support.limits import LIMIT_S

MEMORY, WRITTEN, FSYNC = Durability.MEMORY, Durability.WRITTEN, Durability.FSYNC


def new(body: str, *feeds: FeedId, persistent: bool = True, size: int = 0) -> NewRecord:
    return NewRecord(body=body.encode().ljust(size, b"."), feeds=feeds, persistent=persistent)


def bodies(records: list[StoredRecord]) -> list[str]:
    return [stored.record.body.decode().rstrip(".") for stored in records]


async def everything(store: LogStore) -> list[StoredRecord]:
    return await store.read((await store.bounds()).first, 1 << 20)


# Append and read


async def test_records_come_back_as_they_were_given(store: LogStore) -> None:
    feed = await store.make_feed()
    given = NewRecord(
        body=b"\0body\xff",
        key=b"key",
        properties=b"\1\2",
        feeds=(feed,),
        persistent=True,
        encoding=7,
        priority=9,
        ttl_ms=60_000,
    )
    done = await store.append([given, NewRecord(body=b"")], WRITTEN)
    found = await store.read(done.positions[0], 10)
    assert [stored.record for stored in found] == [given, NewRecord(body=b"")]
    assert tuple(stored.position for stored in found) == done.positions


async def test_positions_rise_and_are_never_used_twice(subject: Subject, store: LogStore) -> None:
    positions: list[int] = []
    for life in range(3):
        for number in range(20):
            rows = [Row("t", b"k", b"%d" % number)]
            done = await store.append(
                [new(f"{life} {number}")] * 3, FSYNC if number % 3 else MEMORY, rows=rows
            )
            positions += done.positions
        await (subject.kill() if life % 2 else subject.stop())
        store = await subject.open()
    assert positions == sorted(set(positions))
    kept = [stored.position for stored in await everything(store)]
    assert set(kept) <= set(positions) and kept == sorted(kept)


async def test_a_read_takes_what_it_is_allowed_and_goes_on_behind_it(store: LogStore) -> None:
    for number in range(100):
        await store.append([new(str(number), size=3000)], MEMORY)
    await store.append([new("100")], WRITTEN)
    found: list[str] = []
    position = (await store.bounds()).first
    while some := await store.read(position, 7):
        assert len(some) == 7 or len(found) + len(some) == 101
        found += bodies(some)
        position = some[-1].position + 1
    assert found == [str(number) for number in range(101)]


async def test_scattered_positions_are_read_and_unknown_ones_are_missing(store: LogStore) -> None:
    done = await store.append([new(str(number), size=2000) for number in range(200)], WRITTEN)
    wanted = [done.positions[at] for at in (3, 77, 78, 199)]
    found = await store.read_at([*wanted, done.positions[-1] + 100_000])
    assert list(found) == wanted
    assert bodies(list(found.values())) == ["3", "77", "78", "199"]


async def test_a_time_leads_to_the_first_record_not_older(store: LogStore) -> None:
    await store.append([new("one")], WRITTEN)
    (one,) = await everything(store)
    deadline = asyncio.get_running_loop().time() + LIMIT_S
    two = one
    while two.time_ms <= one.time_ms:  # until the store's clock has moved on
        assert asyncio.get_running_loop().time() < deadline
        done = await store.append([new("two")], WRITTEN)
        (two,) = (await store.read_at(done.positions)).values()
    assert await store.position_for_time(0) <= one.position
    assert await store.position_for_time(two.time_ms) == two.position
    assert await store.position_for_time(two.time_ms + 86_400_000) > two.position


async def test_concurrent_units_keep_the_order_of_their_calls(store: LogStore) -> None:
    feed = await store.make_feed()
    calls = [store.append([new(str(number), feed)], FSYNC if number % 2 else MEMORY) for number in range(50)]
    await asyncio.gather(*calls)
    await store.append([], FSYNC)
    assert bodies(await store.read_feed(feed, 0, 100)) == [str(number) for number in range(50)]


async def test_bounds_say_what_is_there(store: LogStore) -> None:
    done = await store.append([new("x")], FSYNC)
    bounds = await store.bounds()
    assert bounds.first <= done.positions[0] <= bounds.durable <= bounds.readable


async def test_an_impossible_record_is_refused_and_nothing_is_appended(store: LogStore) -> None:
    with pytest.raises(ValueError):
        await store.append([new("fine"), NewRecord(body=b"", key=bytes(65536))], MEMORY)
    with pytest.raises(ValueError):
        await store.append([new("fine"), new("x", FeedId(4711))], MEMORY, rows=[Row("t", b"k", b"v")])
    await store.append([new("after")], WRITTEN)
    assert bodies(await everything(store)) == ["after"]
    assert store.row("t", b"k") is None


# Durability


@pytest.mark.parametrize("durability", [WRITTEN, FSYNC])
async def test_awaited_units_survive_a_kill(
    subject: Subject, store: LogStore, durability: Durability
) -> None:
    feed = await store.make_feed()
    for number in range(30):
        rows = [Row("t", b"n", b"%d" % number)]
        await store.append([new(str(number), feed, size=4000)], durability, rows=rows)
    await subject.kill()
    store = await subject.open()
    assert bodies(await store.read_feed(feed, 0, 100)) == [str(number) for number in range(30)]
    assert store.row("t", b"n") == b"29"


async def test_unawaited_units_are_lost_from_the_end_only(subject: Subject, store: LogStore) -> None:
    for number in range(40):
        await store.append([new(str(number))], WRITTEN if number == 20 else MEMORY)
    await subject.kill()
    store = await subject.open()
    kept = bodies(await everything(store))
    assert len(kept) > 20 and kept == [str(number) for number in range(len(kept))]


async def test_a_stop_keeps_everything(subject: Subject, store: LogStore) -> None:
    feed = await store.make_feed()
    await store.append([new("x", feed)], MEMORY, rows=[Row("t", b"k", b"v")])
    await subject.stop()
    store = await subject.open()
    assert bodies(await store.read_feed(feed, 0, 10)) == ["x"]
    assert store.row("t", b"k") == b"v"


async def test_a_unit_is_there_whole_or_not_at_all(subject: Subject, store: LogStore) -> None:
    feed = await store.make_feed()
    for number in range(60):
        unit = [new(f"{number}", feed), new(f"{number}"), new(f"{number}", feed)]
        await store.append(unit, WRITTEN if number == 30 else MEMORY, rows=[Row("t", b"n", b"%d" % number)])
    await subject.kill()
    store = await subject.open()
    kept = bodies(await everything(store))
    units = len(kept) // 3
    assert kept == [str(number) for number in range(units) for _ in range(3)] and units > 30
    assert store.row("t", b"n") == b"%d" % (units - 1)
    assert len(await store.read_feed(feed, 0, 1000)) == 2 * units


async def test_records_that_are_not_persistent_leave_their_feeds_with_the_process(
    subject: Subject, store: LogStore
) -> None:
    plain, keeping = await store.make_feed(), await store.make_feed(keeps_all=True)
    await store.append(
        [new("transient", plain, keeping, persistent=False), new("persistent", plain, keeping)], FSYNC
    )
    assert bodies(await store.read_feed(plain, 0, 10)) == ["transient", "persistent"]
    await subject.kill()
    store = await subject.open()
    assert bodies(await store.read_feed(plain, 0, 10)) == ["persistent"]
    assert bodies(await store.read_feed(keeping, 0, 10)) == ["transient", "persistent"]


# Feeds


async def test_a_record_is_in_all_its_feeds_and_in_no_other(store: LogStore) -> None:
    one, two, three = [await store.make_feed() for _ in range(3)]
    done = await store.append([new("a", one), new("b", one, two), new("c"), new("d", two)], WRITTEN)
    assert bodies(await store.read_feed(one, 0, 10)) == ["a", "b"]
    assert bodies(await store.read_feed(two, 0, 10)) == ["b", "d"]
    assert await store.read_feed(three, 0, 10) == []
    assert bodies(await store.read_feed(one, done.positions[1], 10)) == ["b"]
    assert bodies(await store.read_feed(one, 0, 1)) == ["a"]
    assert bodies(await store.read(done.positions[0], 10)) == ["a", "b", "c", "d"]


async def test_a_long_feed_is_read_from_anywhere(subject: Subject, store: LogStore) -> None:
    feed, other = await store.make_feed(), await store.make_feed()
    positions = []
    for number in range(0, 600, 20):
        unit = [new(str(n), feed if n % 2 else other, size=700) for n in range(number, number + 20)]
        positions += (await store.append(unit, WRITTEN)).positions
    await subject.stop()
    store = await subject.open()
    odd = [n for n in range(600) if n % 2]
    assert bodies(await store.read_feed(feed, 0, 1000)) == [str(n) for n in odd]
    assert bodies(await store.read_feed(feed, positions[301], 5)) == ["301", "303", "305", "307", "309"]
    assert bodies(await store.read_feed(other, positions[599], 5)) == []


async def test_a_dropped_feed_is_gone_and_its_name_is_not_given_out_again(
    subject: Subject, store: LogStore
) -> None:
    feed = await store.make_feed()
    await store.append([new("x", feed)], WRITTEN)
    await store.drop_feed(feed)
    with pytest.raises(ValueError):
        await store.read_feed(feed, 0, 10)
    with pytest.raises(ValueError):
        await store.append([new("y", feed)], WRITTEN)
    await subject.kill()
    store = await subject.open()
    with pytest.raises(ValueError):
        await store.read_feed(feed, 0, 10)
    assert await store.make_feed() != feed
    assert bodies(await everything(store)) == ["x"]


# Rows


async def test_rows_change_delete_and_survive(subject: Subject, store: LogStore) -> None:
    await store.append([], WRITTEN, rows=[Row("t", b"a", b"1"), Row("t", b"b", b"2"), Row("u", b"a", b"3")])
    await store.append(
        [], WRITTEN, rows=[Row("t", b"a", b"1'"), Row("t", b"b", None), Row("t", b"none", None)]
    )
    for _ in range(2):
        assert store.rows("t") == {b"a": b"1'"}
        assert store.row("u", b"a") == b"3" and store.row("t", b"b") is None
        assert store.rows("nothing") == {}
        await subject.kill()
        store = await subject.open()


async def test_rows_are_seen_at_once(store: LogStore) -> None:
    waiting = asyncio.ensure_future(store.append([], FSYNC, rows=[Row("t", b"k", b"v")]))
    await asyncio.sleep(0)
    assert store.row("t", b"k") == b"v"
    await waiting


# Release


async def test_only_released_records_may_be_deleted(store: LogStore) -> None:
    feed, stream = await store.make_feed(), await store.make_feed(keeps_all=True)
    done = await store.append([new(str(n), feed, size=2000) for n in range(100)], FSYNC)
    await store.append([new("kept", stream)], FSYNC)
    await store.release(done.positions[60])
    first = (await store.bounds()).first
    assert first <= done.positions[60]
    left = [int(body) for body in bodies(await store.read_feed(feed, done.positions[60], 1000))]
    assert left == list(range(60, 100))
    assert bodies(await store.read_feed(stream, 0, 10)) == ["kept"]
    try:
        below = await store.read(done.positions[0], 1000)
    except PositionGone as gone:
        assert gone.first == first
    else:
        numbers = [int(body) for body in bodies(below) if body != "kept"]
        assert numbers == sorted(numbers) and numbers[-40:] == list(range(60, 100))


# Producers


async def test_a_batch_that_comes_again_is_appended_once(subject: Subject, store: LogStore) -> None:
    feed = await store.make_feed()
    batches = [ProducerBatch("p", 1, first) for first in (0, 2, 4)]
    done = [await store.append([new("a", feed), new("b", feed)], FSYNC, producer=batch) for batch in batches]
    assert not any(one.duplicate for one in done)
    for _ in range(2):
        for batch, first in zip(batches, done, strict=True):
            again = await store.append([new("a", feed), new("b", feed)], FSYNC, producer=batch)
            assert again.duplicate and again.positions == first.positions
        await subject.kill()
        store = await subject.open()
    assert len(await store.read_feed(feed, 0, 100)) == 6
    assert not (await store.append([new("c", feed)], FSYNC, producer=ProducerBatch("p", 1, 6))).duplicate


async def test_a_hole_in_a_producers_numbers_is_refused(store: LogStore) -> None:
    await store.append([new("a")], WRITTEN, producer=ProducerBatch("p", 1, 0))
    with pytest.raises(OutOfOrder):
        await store.append(
            [new("c")], WRITTEN, producer=ProducerBatch("p", 1, 2), rows=[Row("t", b"k", b"v")]
        )
    assert store.row("t", b"k") is None
    await store.append([new("b")], WRITTEN, producer=ProducerBatch("p", 1, 1))
    await store.append([new("other")], WRITTEN, producer=ProducerBatch("q", 1, 0))
    assert bodies(await everything(store)) == ["a", "b", "other"]


async def test_a_newer_epoch_replaces_an_older_process(subject: Subject, store: LogStore) -> None:
    await store.append([new("old")], FSYNC, producer=ProducerBatch("p", 1, 0))
    with pytest.raises(OutOfOrder):
        await store.append([new("x")], FSYNC, producer=ProducerBatch("p", 2, 1))
    await store.append([new("new")], FSYNC, producer=ProducerBatch("p", 2, 0))
    for _ in range(2):
        with pytest.raises(Replaced):
            await store.append([new("late")], FSYNC, producer=ProducerBatch("p", 1, 1))
        await subject.kill()
        store = await subject.open()
    assert bodies(await everything(store)) == ["old", "new"]


# Failure


async def test_nothing_is_confirmed_after_the_store_failed_and_what_was_confirmed_is_there(
    subject: Subject, store: LogStore
) -> None:
    feed = await store.make_feed()
    await store.append([new("confirmed", feed)], FSYNC, rows=[Row("t", b"k", b"1")])
    subject.break_disk()
    waiting = [store.append([new(str(n), feed)], FSYNC, rows=[Row("t", b"k", b"2")]) for n in range(3)]
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(answer, StoreFailed) for answer in answers)
    for durability in (MEMORY, WRITTEN, FSYNC):
        with pytest.raises(StoreFailed):
            await store.append([new("refused", feed)], durability)
    await subject.stop()
    store = await subject.open()
    kept = bodies(await store.read_feed(feed, 0, 10))
    assert kept[0] == "confirmed" and "refused" not in kept
    assert store.row("t", b"k") == (b"1" if len(kept) == 1 else b"2")
