"""Messages: in the order they were sent, compared with what waits, and how errors name them."""

import pytest

from nki_dist.errors import CollectiveMismatchError
from nki_dist.runtime.deadlock import deadlock, waiting
from nki_dist.runtime.messages import Mailbox, Message, Wait, agree, core_names, title

WHAT = {"op": "sendrecv", "shape": (3, 5), "tensors": "a to b"}


def message(sequence=0, what=WHAT, source=2, channel="pipe 0", number=None):
    return Message(source, 5, channel, sequence, None, what, "k.py:3", number)


def wait(what=WHAT, source=2, channel="pipe 0", lnc=0, number=None, location="k.py:9"):
    return Wait(5, source, channel, what, location, lnc, number)


def test_messages_are_taken_in_the_order_they_were_sent():
    """Whatever the order they arrive in: a later one waits for those before it."""
    box = Mailbox()
    arriving = [2, 0, 3, 1]
    for sequence in arriving:
        box.put(message(sequence))
    assert [box.take(wait(), n).sequence for n in range(4)] == [0, 1, 2, 3]
    assert box.take(wait(), 4) is None


def test_a_message_waits_for_those_sent_before_it():
    box = Mailbox()
    box.put(message(1))
    assert box.take(wait(), 0) is None
    box.put(message(0))
    assert [box.take(wait(), n).sequence for n in range(2)] == [0, 1]


def test_sources_and_channels_have_queues_of_their_own():
    box = Mailbox()
    for source, channel in ((2, "pipe 0"), (3, "pipe 0"), (2, "pipe 1")):
        box.put(message(source=source, channel=channel))
    assert box.take(wait(source=4), 0) is None
    for source, channel in ((2, "pipe 1"), (3, "pipe 0"), (2, "pipe 0")):
        got = box.take(wait(source=source, channel=channel), 0)
        assert (got.source, got.channel) == (source, channel)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((WHAT, None), (WHAT | {"shape": (5, 3)}, None)),
        ((WHAT, None), (WHAT | {"op": "core_barrier"}, None)),
        ((WHAT, 3), (WHAT, 4)),
        ((WHAT, 3), (WHAT, None)),
    ],
)
def test_both_sides_must_be_in_the_same_operation(one, other):
    assert agree(message(what=one[0], number=one[1]), wait(what=one[0], number=one[1]))
    assert not agree(message(what=one[0], number=one[1]), wait(what=other[0], number=other[1]))
    met = wait(what=other[0], number=other[1])._replace(met=message(what=one[0], number=one[1]))
    error = deadlock([met], [2])
    assert type(error) is CollectiveMismatchError and "disagree" in str(error)


def test_a_disagreement_names_both_sides():
    """By core numbers in a world of one rank, else by ranks and their cores."""
    theirs = message(what={"op": "core_barrier", "cores": 2}, number=7)
    error = deadlock([wait()._replace(met=theirs)], [2])
    assert error.message == (
        "core 2 and core 5 disagree: nisa.core_barrier(number=7, cores=2) at k.py:3 meets "
        "nisa.sendrecv(shape=(3, 5), tensors=a to b) at k.py:9"
    )
    assert (error.location, error.core, error.instruction) == ("k.py:3", 2, "nisa.core_barrier")
    error = deadlock([wait(lnc=2)._replace(met=theirs)], [2])
    assert error.message.startswith("rank 1 core 0 and rank 2 core 1 disagree")
    assert error.core == "rank 1 core 0"


def test_a_wait_is_described():
    """Without the tensors: the line says them."""
    assert waiting([wait()]) == [
        "core 5 waits in nisa.sendrecv (shape (3, 5)) for core 2 at k.py:9"
    ]
    (text,) = waiting([wait({"op": "all_gather", "tensors": [1], "width": 3})])
    assert "all_gather (width 3) for" in text
    (bare,) = waiting([wait({"op": "all_gather"}, lnc=2, number=3, location=None)])
    assert bare == "rank 2 core 1 waits in ncc.all_gather (number 3) for rank 1 core 0"
    (barrier,) = waiting([wait({"op": "core_barrier"}, location=None)])
    assert barrier == "core 5 waits in nisa.core_barrier for core 2"


def test_names():
    assert [core_names([5], lnc) for lnc in (0, 1, 2)] == [
        "core 5",
        "rank 5 core 0",
        "rank 2 core 1",
    ]
    assert (wait().title, title({"op": "all_reduce"})) == ("nisa.sendrecv", "ncc.all_reduce")
    assert title({"op": "a phase of ours"}) == "a phase of ours"
