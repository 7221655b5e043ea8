"""One room for several links: nobody is promised what is not there, and nobody starves."""

import random

from router.links.sharing import IDLE_SECONDS, Sharing

MOST = 1000


def shared(*links: str, room: int) -> Sharing[str]:
    sharing = Sharing[str](MOST)
    for link in links:
        sharing.join(link, 0.0)
    sharing.review(room, 0.0)
    return sharing


def test_each_link_is_granted_what_it_may_have_while_there_is_room_for_all() -> None:
    sharing = shared("a", "b", room=5000)
    assert (sharing.credit("a"), sharing.credit("b")) == (MOST, MOST)


def test_little_room_is_shared() -> None:
    sharing = shared("a", "b", "c", "d", room=100)
    assert [sharing.credit(link) for link in "abcd"] == [25, 25, 25, 25]


def test_what_waits_counts_for_the_link_that_sent_it() -> None:
    sharing = shared("a", room=5000)
    sharing.used("a", 600, 0.0, waiting=600)
    sharing.review(4400, 0.0)
    assert sharing.credit("a") == 400
    sharing.done("a", 600)
    assert sharing.review(4400, 0.0) == ["a"]
    assert sharing.credit("a") == MOST


def test_a_link_that_comes_gets_its_share_of_what_others_have() -> None:
    sharing = shared("a", room=100)
    sharing.join("b", 0.0)
    assert sorted(sharing.review(100, 0.0)) == ["a", "b"]
    assert (sharing.credit("a"), sharing.credit("b")) == (50, 50)


def test_credit_that_nobody_uses_goes_to_the_link_that_needs_it() -> None:
    sharing = shared("a", "b", "c", room=90)
    room = 90
    for second in range(1, 6):
        sent = sharing.credit("a")
        sharing.used("a", sent, float(second), waiting=0)
        room -= sent
        sharing.review(room, float(second))
    assert room <= 3, "but for one for each link, it has had all of it"


def test_a_link_that_sends_again_is_idle_no_more() -> None:
    sharing = shared("a", "b", room=100)
    sharing.used("a", 50, IDLE_SECONDS, waiting=0)
    sharing.review(50, IDLE_SECONDS)
    assert sharing.credit("b") == 1
    sharing.used("b", 1, IDLE_SECONDS, waiting=0)
    sharing.used("a", 1, IDLE_SECONDS, waiting=0)
    sharing.review(1000, IDLE_SECONDS)
    assert (sharing.credit("a"), sharing.credit("b")) == (500, 500)


def test_more_links_than_room_have_it_in_turn() -> None:
    links = [f"{number}" for number in range(10)]
    sharing = shared(*links, room=3)
    had: set[str] = set()
    now = 0.0
    for _ in range(10):
        had.update(link for link in links if sharing.credit(link))
        now = sharing.deadline or now
        sharing.review(3, now)
        assert sharing.granted == 3
    assert had == set(links)


def test_less_room_than_was_granted_is_taken_back() -> None:
    sharing = shared("a", "b", room=100)
    sharing.review(10, 0.0)
    assert sharing.granted == 10
    sharing.review(0, 0.0)
    assert sharing.granted == 0


def test_what_a_link_was_granted_is_free_when_it_leaves() -> None:
    sharing = shared("a", "b", room=100)
    sharing.leave("a")
    sharing.used("b", 50, 0.0, waiting=0)
    sharing.review(50, 0.0)
    assert (sharing.granted, sharing.credit("b")) == (50, 50)


def test_whatever_happens_no_more_is_granted_than_there_is_and_everybody_gets_something() -> None:
    for seed in range(100):
        chance = random.Random(seed)
        most, now, stored = chance.choice([1, 5, 40, 3000]), 0.0, 0
        sharing = Sharing[int](MOST)
        links: list[int] = []
        waiting: dict[int, int] = {}
        for step in range(200):
            now += chance.choice([0.0, 0.01, 1.0])
            doing = chance.randrange(6)
            if doing == 0 and len(links) < 12:
                links.append(step)
                waiting[step] = 0
                sharing.join(step, now)
            elif doing == 1 and len(links) > 1:
                gone = links.pop(chance.randrange(len(links)))
                stored += waiting.pop(gone)
                sharing.leave(gone)
            elif doing == 2 and stored:
                stored -= chance.randint(1, stored)
            elif links:
                link = chance.choice(links)
                if doing == 3:
                    stored += waiting[link]
                    sharing.done(link, waiting[link])
                    waiting[link] = 0
                else:
                    count = chance.randint(0, sharing.credit(link))
                    waiting[link] += count
                    sharing.used(link, count, now, waiting=count)
            room = most - stored - sum(waiting.values())
            assert sharing.granted == sum(map(sharing.credit, links)) <= room, seed
            sharing.review(room, now)
            assert sharing.granted == sum(map(sharing.credit, links)) <= room, seed
            assert all(sharing.credit(link) + waiting[link] <= MOST for link in links)
        stored, had = 0, set[int]()
        for link in links:
            sharing.done(link, waiting[link])
        for _ in range(30):
            now += 1.0
            sharing.review(most, now)
            had.update(filter(sharing.credit, links))
        assert had == set(links), seed
