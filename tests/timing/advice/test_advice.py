"""Advice: each rule against a kernel that follows it, whose time the finding must have foretold."""

import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.cli import main
from tests.timing.advice.foretelling import finding, foretold, rules, time_of


def products(x, dtype):
    """Sixty products that don't wait for loads."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray((128, 128), dtype=dtype, buffer=nl.sbuf)
    right = nl.ndarray((128, 512), dtype=dtype, buffer=nl.sbuf)
    nisa.memset(dst=left, value=1.0, engine=nisa.vector_engine)
    nisa.memset(dst=right, value=2.0, engine=nisa.gpsimd_engine)
    total = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for _ in range(60):
        nisa.nc_matmul(dst=total, stationary=left, moving=right)
    tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=total)
    nl.store(out, tile)
    return out


def test_float32_products():
    wide, narrow = (time_of(products, (128, 512), d) for d in (nl.float32, nl.bfloat16))
    found = foretold(wide, narrow, "float32 products", rel=0.02)
    assert "60 products of float32 take 4 passes each" in found.text
    assert rules(wide)[0] == "float32 products" and len(found.lines) == 1


def rows_scaled(x, y, again):
    """Rows of x by y, which is loaded for each block of rows or once."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    kept = None if again else nl.load(y)
    for n in range(0, x.shape[0], 128):
        factor = nl.load(y) if again else kept
        tile = nl.load(x[n : n + 128])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=factor, op=nl.multiply)
        nl.store(out[n : n + 128], tile)
    return out


def test_repeated_loads():
    shapes = (1280, 2048), (128, 2048)
    again, once = (time_of(rows_scaled, *shapes, how) for how in (True, False))
    found = foretold(again, once, "repeated loads", rel=0.05)
    assert f"9 loads fetch {9 * 128 * 2048 * 4:,} bytes again" in found.text
    assert "8,192 bytes of each partition" in found.text


def test_what_is_written_in_between_is_no_repetition():
    def counted(x):
        """Loads what it stored before."""
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        for _ in range(10):
            more = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(dst=more, data=nl.load(out), op0=nl.add, operand0=1.0)
            nl.store(out, more)
        return out

    assert "repeated loads" not in rules(time_of(counted, (128, 2048)))


def by_columns(x, width):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for n in range(0, x.shape[1], width):
        tile = nl.load(x[:, n : n + width])
        nl.store(out[:, n : n + width], tile)
    return out


def test_small_transfers():
    small, large = (time_of(by_columns, (128, 4096), width) for width in (4, 1024))
    found = finding(small, "small transfers")
    assert "2,048 transfers, of 2,048 bytes on average, are moved in pieces of 16," in found.text
    assert "make contiguous rows longer" in found.text and "one by one" not in found.text
    # Fewer transfers also have fewer starts, which the replay doesn't take away.
    assert 0.5 * (small.total_us - large.total_us) < found.saves_us
    assert found.saves_us <= (small.total_us - large.total_us) * 1.01
    assert "small transfers" not in rules(large)


def turned(x):
    out = nl.ndarray((x.shape[1], x.shape[0]), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x.permute((1, 0))))
    return out


def test_elements_that_are_moved_one_by_one():
    found = finding(time_of(turned, (384, 96)), "small transfers")
    assert "1 transfer, of 147,456 bytes, is moved in pieces of 4," in found.text
    assert "one by one" in found.text and "nisa.nc_transpose" in found.text


def sums(x, engines, psum):
    """Copies out of `psum` or SBUF by engines in turn."""
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    source = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum if psum else nl.sbuf)
    nisa.memset(dst=source, value=1.0, engine=nisa.vector_engine)
    for n in range(40):
        tile = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf, name=f"tile{n}")
        nisa.tensor_copy(dst=tile, src=source, engine=engines[n % len(engines)])
    nl.store(out, tile)
    return out


def test_psum_emptied_by_a_crowded_engine():
    vector, scalar = nisa.vector_engine, nisa.scalar_engine
    one = time_of(sums, (1, 1), (vector,), True)
    both = time_of(sums, (1, 1), (scalar, vector), True)
    found = finding(one, "PSUM emptied by a busy engine")
    saved = one.total_us - both.total_us
    assert saved > 0.3 * one.total_us
    assert found.saves_us >= 0.99 * saved
    assert "Vector is busy" in found.text and "engine=nki.isa.scalar_engine" in found.text
    assert not any("scalar" in f.text for f in both.advice())


@pytest.mark.parametrize("engines, psum", [(("vector",), False), (("scalar", "vector"), True)])
def test_what_is_not_to_be_moved(engines, psum):
    """What doesn't empty PSUM; and to GpSimd, which doesn't reach it, nothing."""
    chosen = [getattr(nisa, f"{name}_engine") for name in engines]
    profile = time_of(sums, (1, 1), tuple(chosen), psum)
    assert not any("engine=nki.isa" in f.text for f in profile.advice())


def shares(x, first):
    """Core 0 takes `first` of the 16 blocks of columns."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    begin, end = (0, first) if nl.program_id(0) == 0 else (first, 16)
    for n in range(begin, end):
        columns = nl.ds(n * 512, 512)
        tile = nl.load(x[:, columns])
        for _ in range(8):
            nisa.activation(dst=tile, op=nl.exp, data=tile)
        nl.store(out[:, columns], tile)
    return out


def test_unbalanced_cores():
    uneven, even = (time_of(shares, (128, 8192), n, grid=2) for n in (13, 8))
    found = foretold(uneven, even, "unbalanced cores", rel=0.2)
    assert found.saves_us < uneven.total_us - even.total_us  # waits don't get shorter in the replay
    assert "rank 0 core 0" in found.text


def scattered(x, mode):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for n in range(0, x.shape[1], 128):
        tile = nl.ndarray((128, 128), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, n : n + 128], dge_mode=mode)
        nisa.dma_copy(dst=out[:, n : n + 128], src=tile, dge_mode=nisa.dge_mode.none)
    return out


def test_one_queue_for_descriptors():
    made, static = (
        time_of(scattered, (128, 8192), m) for m in (nisa.dge_mode.hwdge, nisa.dge_mode.none)
    )
    found = foretold(made, static, "one queue for descriptors", rel=0.02)
    assert "64 transfers have descriptors that are made when they run, 600 ns each" in found.text


def test_findings_are_few_sorted_and_worth_it():
    profile = time_of(rows_scaled, (1280, 2048), (128, 2048), True)
    found = profile.advice()
    assert len(found) <= 5
    assert [f.saves_us for f in found] == sorted((f.saves_us for f in found), reverse=True)
    assert all(f.share >= 0.01 for f in found)


def test_a_replay_without_changes_takes_as_long():
    profile = time_of(rows_scaled, (1280, 2048), (128, 2048), True)
    launch = profile.timeline.launch
    assert launch.total_ns(launch.parts) == profile.timeline.total_ns
    before = profile.to_dict()
    profile.advice()
    assert profile.to_dict() == before
    assert launch.total_ns(launch.parts) == profile.timeline.total_ns


def test_the_text_has_advice_once_it_was_asked_for(tmp_path):
    profile = time_of(products, (128, 512), nl.float32)
    assert "advice:" not in str(profile)
    profile.advice()
    assert "float32 products: 60 products" in str(profile)
    narrow = time_of(products, (128, 512), nl.bfloat16)
    if not narrow.advice():
        assert str(narrow).endswith("advice: none that would save 1 %")
    profile.write_report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "<h2>Advice</h2>" in page and "60 products of float32" in page


PROGRAM = """
import numpy as np
import nki_dist as nki
import nki_dist.language as nl

@nki.jit
def narrow(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for n in range(64):
        nl.store(out[:, n : n + 1], nl.load(x[:, n : n + 1]))
    return out

nki.simulate(narrow)(np.ones((128, 64), np.float32))
"""


def test_the_command_gives_advice(tmp_path, capfd):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    assert main(["profile", "-o", str(tmp_path / "found"), str(program)]) == 0
    assert "advice:" not in capfd.readouterr().out
    assert main(["profile", "--advice", "-o", str(tmp_path / "found"), str(program)]) == 0
    out = capfd.readouterr().out
    assert "small transfers: 128 transfers" in out and "at program.py:10" in out
