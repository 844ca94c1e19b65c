"""Access patterns, reinterpreted bytes and indirect views, and how views are made."""

import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import OutOfBoundsError
from tests.language.test_tensor_views import elements, pair, refused, same


def test_ap(trace):
    t, _ = pair((6, 32), nl.sbuf)
    view = t.ap(pattern=[[32, 3], [2, 5]], offset=7)
    np.testing.assert_array_equal(elements(view), 7 + 32 * np.arange(3)[:, None] + 2 * np.arange(5))
    assert t.ap(t.get_pattern()).shape == t.shape
    part = t[2:4, 3:9]
    assert part.get_pattern() == [[32, 2], [1, 6]]
    same(part.ap(part.get_pattern()), elements(part))
    assert elements(part.ap([[32, 2], [0, 4]], offset=1)).tolist() == [[68] * 4, [100] * 4]
    wide = t.ap([[64, 6], [1, 4]], offset=2, dtype=nl.bfloat16)
    assert (wide.dtype, wide.offset, wide.shape) == (nl.bfloat16, 2, (6, 4))
    register = nisa.register_alloc()
    assert t.ap([[32, 6], [1, 2]], scalar_offset=register, indirect_dim=1).dynamic.stride == 1
    assert t.reshape((6, 4, 8)).ap([[32, 6], [1, 8]], 0, register, None, 1).dynamic.stride == 8


def test_ap_outside_its_storage_is_refused_where_it_is_used(trace):
    t, _ = pair((6, 32), nl.sbuf)
    dst = nl.ndarray((6, 4), nl.float32)
    nisa.tensor_copy(dst, t.ap([[32, 6], [1, 4]], offset=28))
    with refused(r"\[32, 6\]", OutOfBoundsError):
        nisa.tensor_copy(dst, t.ap([[32, 6], [1, 4]], offset=29))


def test_view_reinterprets_bytes(trace):
    t, _ = pair((5, 64), nl.sbuf)
    assert t.view(nl.uint8).shape == (5, 256)
    assert t.view(nl.int32).shape == (5, 64)
    assert t[1:, 8:24].reinterpret_cast(nl.bfloat16).offset == 2 * (64 + 8)
    u, _ = pair((5, 256), nl.sbuf, nl.uint8)
    assert u.view(nl.float32).shape == (5, 64)
    with refused("offset 2 in .* is no whole number"):
        u[:, 2:6].view(nl.float32)
    with refused("needs a contiguous last dimension"):
        t[:, ::2].view(nl.uint8)


def test_indirect(trace):
    t, index = nl.ndarray((16, 40), nl.float32), nl.ndarray((16, 3), nl.uint32)
    assert t.indirect(index).shape == (16, 48)
    assert t.indirect(index, num_elem=5).shape == (16, 5)
    with refused("num_elem=49 of 48"):
        t.indirect(index, 49)
    with refused("index has 8 partitions, the tensor 16"):
        t.indirect(nl.ndarray((8, 3), nl.uint32))
    with refused("already has a run-time index"):
        t.indirect(index).indirect(index)


def test_is_contiguous(trace):
    h, _ = pair((3, 4, 5))
    assert h.is_contiguous() and h[1:].is_contiguous() and h[1:2, 2:].is_contiguous()
    assert not h[:, 1:].is_contiguous() and not h.permute((1, 0, 2)).is_contiguous()
    t, _ = pair((3, 4, 5), nl.sbuf)
    assert t[:, 1:].is_contiguous() and t[::2].is_contiguous()
    assert not t[:, :, 1:].is_contiguous()


def test_attributes_and_constructor(trace):
    t = nl.ndarray((3, 4), nl.bfloat16, buffer=nl.psum, name="acc")
    assert (t.ndim, t.size, t.name, t.dtype, t.buffer) == (2, 12, "acc", nl.bfloat16, nl.psum)
    assert (t.offset, t.strides) == (0, (4, 1))
    placeholder = nl.NkiTensor((2, 3), nl.float32, None, nl.hbm, "x")
    assert placeholder.shape == (2, 3) and placeholder.buffer == nl.hbm
    assert [t][0]  # of a field or item, truth asks whether a tensor is there, as kernels do
    with refused("Python can't branch on the tensor"):
        bool(t)  # a variable that can only hold a tensor
    with refused("Python can't branch on the tensor"):
        bool(t[0:1, 0:1])


@pytest.mark.parametrize("given", [True, False])
def test_a_variable_of_a_conditional_expression_may_be_absent(trace, given):
    tensors = [nl.ndarray((3, 4), nl.float32)] if given else None
    first = tensors[0] if tensors else None
    last = None if not tensors else tensors[-1]
    assert bool(first) is given and ("there" if last else "absent") == ["absent", "there"][given]
    always = nl.ndarray((3, 4), nl.float32)
    with refused("Python can't branch on the tensor"):
        bool(always)


def test_empty_windows_like_empty_slices(trace):
    t = nl.ndarray((6, 4), nl.float32, buffer=nl.shared_hbm)
    for start in (0, 3, 6):
        assert t[nl.ds(start, 0)].shape == t[start:start].shape == (0, 4)
    with pytest.raises(OutOfBoundsError, match=r"nl.ds\(7, 0\) on dimension 0 of size 6"):
        t[nl.ds(7, 0)]


def test_ap_on_a_part_of_the_columns_counts_partitions_in_either_way(trace):
    """Row pitch of the storage, as an address; or of the view, as published kernels have it."""
    whole = nl.ndarray((6, 20), nl.float32, buffer=nl.sbuf)
    part = whole[:, 12:20]
    expected = (12, (6, 4), (20, 2))
    for step in (20, 8):
        view = part.ap([[step, 6], [2, 4]])
        assert (view.offset, view.shape, view.strides) == expected
    every_second = part.ap([[16, 3], [1, 8]], offset=2)
    assert (every_second.offset, every_second.strides) == (14, (40, 1))
    bytes_of = part.ap([[32, 6], [1, 32]], dtype=nl.uint8)
    assert (bytes_of.offset, bytes_of.strides) == (48, (80, 1))
    in_hbm = nl.ndarray((6, 20), nl.float32, buffer=nl.shared_hbm)[:, 12:20]
    assert in_hbm.ap([[8, 6], [1, 4]]).strides == (8, 1)  # an address, nothing else
