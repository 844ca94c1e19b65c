"""Edges of the order graph that don't come from tensors: registers, tests, groups, exchanges."""

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.timing import order
from tests.timing.build import compiled


def tile(*shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype, buffer=nl.sbuf)


def graph_of(kernel, shapes=((2, 2),), trips=(), **options):
    programs, _ = compiled(kernel, list(shapes), **options)
    return order(programs[0], trips)


def test_a_register_is_reused_when_it_was_read():
    def kernel(x):
        cells = [tile(1, 1, dtype=nl.int32) for _ in range(3)]
        register = nisa.register_alloc()
        nisa.register_move(register, 3)  # 0
        nisa.register_store(cells[0], register)  # 1: data on 0
        nisa.register_store(cells[1], register)  # 2: data on 0
        nisa.register_move(register, 4)  # 3: reuse of 0, 1 and 2
        nisa.register_move(register, 5)  # 4: reuse of 3 alone, nobody read 4
        nisa.register_store(cells[2], register)  # 5: data on 4

    graph = graph_of(kernel)
    assert graph.data == [(), (0,), (0,), (), (), (4,)]
    assert graph.reuse == [(), (), (), (0, 1, 2), (3,), ()]


def placed(move):
    """Stores to `out[index]` and `out[2]`, the index in a register that `move` fills."""

    def kernel(x):
        out = nl.ndarray((8, 16, 4), nl.float32, buffer=nl.shared_hbm)
        source = tile(16, 4)
        nisa.memset(dst=source, value=0)
        nisa.dma_copy(dst=out.select(0, move()), src=source)
        nisa.dma_copy(dst=out[2], src=source)
        return out

    graph = graph_of(kernel)
    return len(graph) - 2 in graph.reuse[-1]  # whether the second waits for the first


def constant(value):
    register = nisa.register_alloc()
    nisa.register_move(register, value)
    return register


def copied(value):
    other = nisa.register_alloc()
    nisa.register_move(other, constant(value))
    return other


def loaded(first):
    """A register that held a constant and then something from memory."""
    register, cell = constant(first), tile(1, 1, dtype=nl.int32)
    nisa.memset(dst=cell, value=first)
    nisa.register_load(register, cell)
    return register


def test_values_of_registers_are_followed_until_they_come_from_memory():
    assert [placed(lambda n=n: constant(n)) for n in (1, 2, 3)] == [False, True, False]
    assert [placed(lambda n=n: copied(n)) for n in (1, 2, 3)] == [False, True, False]
    assert placed(lambda: loaded(3))


def test_what_follows_a_test_waits_for_every_test_around_it():
    """Also where the inner loop's bound was known before the outer one's."""

    def kernel(x):
        early, late = tile(1, 1, dtype=nl.int32), tile(1, 1, dtype=nl.int32)
        target = tile(4, 4)
        nisa.memset(dst=early, value=2)  # 0
        nisa.memset(dst=late, value=3)  # 1
        inner = nisa.register_alloc(early)  # 2
        outer = nisa.register_alloc(late)  # 3
        for _ in nl.dynamic_range(0, outer):
            for _ in nl.dynamic_range(0, inner):
                nisa.memset(dst=target, value=0)  # 4, 5, ...

    graph = graph_of(kernel, trips=[1, 2])
    assert graph.data == [(), (), (0,), (1,), (2, 3), (2, 3)]


def test_a_while_loop_tests_before_every_round_and_after_the_last():
    """The loop has a register of its own, moved to before it and at the end of every round."""

    def kernel(x):
        cell, target = tile(1, 1, dtype=nl.int32), tile(4, 4)
        nisa.memset(dst=cell, value=1)  # 0
        register = nisa.register_alloc(cell)  # 1, and its move 2

        def body(_):
            nisa.memset(dst=target, value=0)  # 3, 6
            nisa.register_load(register, cell)  # 4, 7, and their moves 5, 8
            return register

        nl.while_loop(register, body)
        nisa.memset(dst=target, value=1)  # 9

    graph = graph_of(kernel, trips=[2])
    assert [graph.data[at] for at in (3, 6, 9)] == [(2,), (5,), (8,)]


def test_groups_that_keep_their_order_are_independent_of_each_other():
    def kernel(x):
        tiles = [tile(4, 4) for _ in range(6)]
        for group in (tiles[:3], tiles[3:5]):
            with nl.no_reorder():
                for one in group:
                    nisa.memset(dst=one, value=0)
        nisa.memset(dst=tiles[5], value=0)

    assert graph_of(kernel).issue == [(), (0,), (1,), (), (3,), ()]


def test_exchanges_are_issued_in_their_order():
    def kernel(x):
        me = nl.program_id(0)
        out = nl.ndarray((2, 16, 4), nl.float32, buffer=nl.shared_hbm)
        mine, theirs = tile(16, 4), tile(16, 4)
        nisa.memset(dst=mine, value=me)  # 0
        nisa.core_barrier(out, (0, 1))  # 1
        nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
        nisa.dma_copy(dst=out[me], src=theirs)  # 3: after the barrier, which orders all of `out`
        nisa.core_barrier(out, (0, 1))  # 4

    graph = graph_of(kernel, cores=2)
    assert graph.issue == [(), (), (1,), (), (2,)]
    assert graph.data == [(), (), (0,), (2,), ()]
    assert graph.reuse == [(), (), (), (1,), (1, 3)]  # 3 wrote a half of `out` only


def test_an_exchange_may_be_the_first_instruction():
    def kernel(x):
        out = nl.ndarray((16, 4), nl.float32, buffer=nl.shared_hbm)
        for _ in range(3):
            nisa.core_barrier(out, (0, 1))

    assert graph_of(kernel, cores=2).issue == [(), (0,), (1,)]


def test_accumulators_of_engines_are_independent():
    """Scalar's and Vector's are registers of their own; idle commands leave them alone."""
    reset, go_on = nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce

    def kernel(x):
        source, columns = tile(16, 4), [tile(16, 1) for _ in range(4)]
        outs = [tile(16, 4) for _ in range(4)]
        nisa.memset(dst=source, value=1)  # 0
        for n, command in enumerate((reset, go_on)):
            nisa.activation(
                dst=outs[n],
                op=nl.exp,
                data=source,
                reduce_op=nl.add,
                reduce_res=columns[n],
                reduce_cmd=command,
            )  # 1, 3
            nisa.tensor_scalar_reduce(
                outs[2 + n], source, nl.multiply, 2.0, nl.add, columns[2 + n]
            )  # 2, 4

    assert graph_of(kernel).data == [(), (0,), (0,), (0, 1), (0, 2)]
