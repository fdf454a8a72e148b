import asyncio

from verillm_node.feed import Feed


async def test_readers_join_anywhere_and_miss_nothing() -> None:
    feed: Feed[str] = Feed(["a"])

    async def read(after: int) -> list[tuple[int, str]]:
        return [entry async for entry in feed.follow(after) if entry is not None]

    early, late = asyncio.create_task(read(0)), asyncio.create_task(read(2))
    await asyncio.sleep(0)
    for event in "bcd":
        feed.append(event)
        await asyncio.sleep(0)
    feed.append("e", last=True)
    assert await early == list(enumerate("abcde", 1))
    assert await late == [(3, "c"), (4, "d"), (5, "e")]
    assert await read(9) == []


async def test_nothing_comes_after_the_last_event() -> None:
    feed: Feed[str] = Feed()
    feed.append("end", last=True)
    feed.append("late")
    assert [entry async for entry in feed.follow()] == [(1, "end")]


async def test_a_quiet_feed_says_so() -> None:
    feed: Feed[str] = Feed()
    follower = feed.follow(0, idle=0.01)
    assert await anext(follower) is None
    feed.append("a", last=True)
    assert await anext(follower) == (1, "a")
