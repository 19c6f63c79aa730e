"""How far nested loops have come: one share of the whole, which never falls."""

from simulation.core.steps import counted, each, watched


def shares(work):
    found: list[float] = []
    with watched(found.append):
        work()
    return [round(share, 3) for share in found]


def of_seeds(seeds, policies):
    for _ in each(seeds):
        for _ in each(policies):
            pass


def test_inner_loops_are_parts_of_the_outer_ones_step():
    assert shares(lambda: of_seeds("ab", "wxyz")) == [
        0.125,
        0.25,
        0.375,
        0.5,
        0.625,
        0.75,
        0.875,
        1,
    ]


def test_a_step_that_takes_longer_weighs_more():
    def work():
        for item in each(["short", "long"], [1, 3]):
            for _ in each("ab" if item == "long" else ""):
                pass

    assert shares(work) == [0.25, 0.625, 1]


def test_a_loop_may_say_itself_how_far_it_is():
    def work():
        with counted(4) as done:
            for number in (1, 2, 2, 4):
                done(number)

    assert shares(work) == [0.25, 0.5, 1]


def test_a_share_never_falls_and_a_loop_that_was_left_counts_no_longer():
    def work():
        for _ in each("ab"):
            for item in each("wx"):
                if item == "w":
                    break
            of_seeds("a", "b")

    assert shares(work) == [0.5, 1]


def test_nothing_is_counted_while_nobody_watches():
    assert list(each("ab")) == ["a", "b"]
    with counted(3) as done:
        done(1)
    with watched(lambda share: None):
        assert list(each(())) == []


def test_who_watches_a_part_hides_it_from_who_watches_the_whole():
    inner: list[float] = []

    def work():
        with watched(inner.append):
            of_seeds("ab", "c")

    assert shares(work) == []
    assert inner == [0.5, 1]
