"""What a learner knows of its nodes, and how many steps it lets each take, whatever is lost, late or repeated."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from impls.training.nodes.actor_node import News, Orders, join, split
from impls.training.nodes.states import Nodes, share_steps

COUNTS = st.integers(0, 10_000)


@given(st.integers(0, 100_000), st.lists(st.tuples(COUNTS, COUNTS), min_size=1, max_size=8))
def test_steps_are_shared_so_that_all_have_equally_many_ahead(total, nodes):
    taken, allowed = [steps for steps, _ in nodes], [steps + more for steps, more in nodes]
    shares = share_steps(total, taken, allowed)
    assert sum(shares) == max(total, sum(allowed))
    assert all(share >= before for share, before in zip(shares, allowed, strict=True))
    raised = [
        share - steps
        for share, before, steps in zip(
            shares,
            allowed,
            taken,
            strict=True,
        )
        if share > before
    ]
    ahead = [share - steps for share, steps in zip(shares, taken, strict=True)]
    assert not raised or max(raised) - min(raised) <= 1
    assert not raised or min(ahead) >= min(raised) - 1  # whoever got more is among those that had the fewest ahead


NUMBERS = st.integers(0, (1 << 62) - 1)


@given(st.tuples(*[NUMBERS] * 6), st.integers(0, 5), st.text(max_size=30), st.binary(max_size=20))
def test_messages_come_back_as_they_were(counts, rows, failure, rest):
    orders = Orders(*counts)
    assert Orders.unpack(orders.pack()) == orders
    episodes = np.arange(2.0 * rows).reshape(rows, 2)
    news = News.unpack(News(*counts, episodes, "ab12", failure).pack())
    assert (*news[:6], *news[7:]) == (
        *counts,
        "ab12",
        failure,
    ) and np.array_equal(news.episodes, episodes)
    assert split(join(orders.pack(), rest)) == (orders.pack(), rest)


def news(place, run, steps, first=0, ended=0, **more):
    """News of a process that has taken so many steps, and whose episodes have their number as score."""
    episodes = np.array([(number, 1) for number in range(first, first + ended)], np.float64).reshape(-1, 2)
    fields = {"restarts": 0, "cpu": 0, "name": f"n{place}", "failure": ""} | more
    return News(place=place, run=run, steps=steps, first=first, episodes=episodes, **fields)


def started(count=2):
    nodes = Nodes([f"n{place}" for place in range(count)], period=10)
    for place in range(count):
        nodes.hear(news(place, run=place + 1, steps=0))
    nodes.note_gone([False] * count)
    return nodes


def test_steps_of_a_lost_node_go_to_the_others():
    nodes = started()
    nodes.allow_steps(100, 0)
    assert [node.allowed for node in nodes.each] == [50, 50]
    nodes.hear(news(0, 1, 20))
    nodes.hear(news(1, 2, 30))
    nodes.note_gone([False, True])
    nodes.allow_steps(100, 0)
    assert nodes.orders_for(0).allowed == 70 and nodes.steps == 50
    assert "n1 is lost" in nodes.events.pop() and not nodes.events


def test_a_node_that_comes_back_has_what_it_was_allowed():
    nodes = started()
    nodes.allow_steps(100, 0)
    nodes.note_gone([False, True])
    nodes.allow_steps(100, 0)
    nodes.note_gone([False, False])
    nodes.allow_steps(100, 0)
    assert [node.allowed for node in nodes.each] == [100, 50]
    nodes.allow_steps(180, 0)
    assert [node.allowed for node in nodes.each] == [100, 80]


def test_a_new_process_of_a_node_begins_with_nothing():
    nodes = started()
    nodes.allow_steps(100, 0)
    assert nodes.is_weighted(1) and not nodes.is_weighted(1)
    nodes.hear(news(1, 2, 40, ended=3))
    nodes.hear(news(1, 9, 0))
    assert nodes.steps == 40 and nodes.orders_for(1)[:2] == (9, 0) and nodes.orders_for(1).episodes == 0
    assert nodes.is_weighted(1) and nodes.orders_for(1).epoch != nodes.orders_for(0).epoch
    nodes.hear(news(1, 2, 45))  # late, of the process that has ended
    nodes.hear(news(1, 9, 7))
    nodes.hear(news(1, 9, 5))  # late, too
    assert nodes.steps == 47 and nodes.orders_for(0).elsewhere == 47


def test_weights_are_sent_again_once_they_are_older():
    nodes = started(1)
    sent = []
    for updates in range(25):
        nodes.allow_steps(100, updates)
        sent += [updates] * nodes.is_weighted(0)
        if updates == 6:  # by the weights of no gradient step
            nodes.hear(news(0, 1, 1))
    assert sent == [0, 10, 20]
    nodes.hear(news(0, 1, 1))
    assert nodes.measure_lag() == {"mean": 5.0, "most": 6}


def test_a_failure_names_its_node():
    nodes = started()
    nodes.hear(news(1, 2, 5, failure="actor 0: no screen"))
    assert nodes.failure == "node n1: actor 0: no screen"


@settings(max_examples=300)
@given(st.data())
def test_no_order_of_news_grants_too_many_steps_or_loses_an_episode(data):
    """Nodes act as they are allowed; what they say arrives late, twice or never, and their processes end."""
    count = data.draw(st.integers(1, 3))
    known, nodes, total, run = 0, Nodes([f"n{place}" for place in range(count)], 10), 50, 0
    steps, ended, runs, received = [0] * count, [0] * count, [0] * count, []
    obeyed = [Orders(0, 0, 0, 0, 0, 0)] * count
    for place in range(count):
        run += 1
        runs[place] = run
    for _ in range(data.draw(st.integers(1, 40))):
        place = data.draw(st.integers(0, count - 1))
        match data.draw(
            st.sampled_from(
                [
                    "act",
                    "say",
                    "say old",
                    "order",
                    "end",
                    "lose",
                    "return",
                    "learn",
                ]
            )
        ):
            case "act" if obeyed[place].run == runs[place]:
                done = data.draw(st.integers(0, max(0, obeyed[place].allowed - steps[place])))
                steps[place], ended[place] = steps[place] + done, ended[place] + (done > 0)
            case "say":
                first = obeyed[place].episodes if obeyed[place].run == runs[place] else 0
                said = news(place, runs[place], steps[place], first, ended[place] - first)
                received.append(said)
                nodes.hear(said)
            case "say old" if received:
                nodes.hear(data.draw(st.sampled_from(received)))
            case "order":
                orders = nodes.orders_for(place)
                obeyed[place] = orders if orders.run == runs[place] else obeyed[place]
            case "end":
                run += 1
                runs[place], steps[place], ended[place] = run, 0, 0
            case "lose" | "return" as event:
                gone = [node.is_gone for node in nodes.each]
                gone[place] = event == "lose"
                nodes.note_gone(gone)
            case "learn":
                total += 7
        assert nodes.steps >= known
        known, before = nodes.steps, [node.allowed for node in nodes.each]
        nodes.allow_steps(total, 0)
        after = [node.allowed for node in nodes.each]
        if after != before:
            living = [node for node in nodes.each if not node.is_gone]
            assert sum(node.allowed - node.steps for node in living) <= total - nodes.steps
    for place in range(count):
        nodes.hear(news(place, runs[place], steps[place], 0, ended[place]))
    assert [node.episodes for node in nodes.each] == ended
    assert [node.steps for node in nodes.each] == steps


def test_steps_beyond_what_was_allowed_grant_nobody_more():
    assert share_steps(105, taken=[70, 40], allowed=[60, 40]) == [70, 40]


def test_a_resumed_run_allows_no_step_before_it_knows_where_it_stands():
    nodes = started()
    nodes.allow_steps(1000, 0)
    nodes.begin_at(steps=5000, updates=4000, epoch=1)
    nodes.allow_steps(5100, 4000)
    assert [node.allowed for node in nodes.each] == [50, 50] and nodes.steps == 5000


def test_a_lost_node_gets_weights_once_it_is_back():
    nodes = started()
    assert nodes.is_weighted(0) and not nodes.is_weighted(0)
    nodes.note_gone([True, False])
    nodes.note_gone([False, False])
    assert nodes.is_weighted(0)
