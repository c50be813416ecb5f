"""Work in pauses: as much as fits, never more than is wanted, and in the order in which it was made."""

from evaluator.judge.ahead import Ahead


class Clock:
    """A clock that only moves when something is made."""

    def __init__(self, seconds_each: float) -> None:
        self.now = 0.0
        self.each = seconds_each
        self.made = 0

    def __call__(self) -> float:
        return self.now

    def make(self) -> int:
        self.now += self.each
        self.made += 1
        return self.made


def ahead(clock: Clock, *, wanted: int = 100, room: int = 1_000) -> Ahead[int]:
    return Ahead(clock.make, wanted=wanted, size=lambda thing: 10, room=room, clock=clock)


def test_a_pause_is_used_and_not_exceeded() -> None:
    clock = Clock(0.015)
    store = ahead(clock)
    store.use(0.05)
    assert clock.made == 0, "how long one takes is not known yet"
    assert store.take() == 1
    began = clock.now
    store.use(0.05)
    assert clock.made == 4 and clock.now - began < 0.05
    assert [store.take() for _ in range(4)] == [2, 3, 4, 5]


def test_what_takes_longer_than_a_pause_is_left_for_later() -> None:
    clock = Clock(0.06)
    store = ahead(clock)
    store.take()
    store.use(0.05)
    assert clock.made == 1


def test_no_more_is_made_than_is_wanted_or_has_room() -> None:
    for store, clock, most in (
        (ahead(c := Clock(0.001), wanted=3), c, 3),
        (ahead(c := Clock(0.001), room=50), c, 5),
    ):
        store.take()
        for _ in range(3):
            store.use(1.0)
        assert clock.made == 1 + most
