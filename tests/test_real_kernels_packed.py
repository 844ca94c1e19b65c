"""What nki-library's harness gets where it meets arrays of packed types."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import nki_dist.language as nl
from bench.real_kernels import packed
from nki_dist.compat.neuron_dtypes import static_cast
from nki_dist.language.tensor import NkiTensor


class Validator:
    """Compares as the harness does what converts to float32."""

    def _compare_outputs(self, actual, golden, params, rank_id=None):
        names = [n for n in golden if not np.allclose(actual[n].astype(np.float32), golden[n], 0.1)]
        return names, params, rank_id


@pytest.fixture
def harness(monkeypatch):
    references = SimpleNamespace(quantize_to_mx=lambda data, dtype: (data, dtype))
    validator = type("Validator", (Validator,), {})
    module = SimpleNamespace(OutputValidator=validator)
    monkeypatch.setitem(sys.modules, "nkilib_src.nkilib.core.utils.mx_torch_common", references)
    monkeypatch.setitem(sys.modules, "test.utils.output_validator", module)
    monkeypatch.setattr(NkiTensor, "base_tensor", None, raising=False)  # taken back afterwards
    packed.install()
    return references, validator()


def test_references_get_the_type_of_an_array_as_nki_names_it(harness):
    dtype = np.zeros(2, nl.float8_e5m2_x4).dtype
    assert harness[0].quantize_to_mx("data", dtype) == ("data", nl.float8_e5m2_x4)


def test_packed_outputs_are_compared_by_their_values(harness):
    values = np.array([[8.0, 1, 1, 1], [1, 1, 1, 8]], np.float32)
    wrong = np.array([[1.0, 1, 1, 1], [1, 1, 1, 8]], np.float32)  # hardly another number as a word
    arrays = [static_cast(v, nl.float8_e4m3fn_x4) for v in (values, wrong)]
    compare = harness[1]._compare_outputs
    golden = {"packed": static_cast(values, nl.float8_e4m3fn_x4), "plain": values}
    assert compare({"packed": arrays[0], "plain": values}, golden, 1, rank_id=2) == ([], 1, 2)
    assert compare({"packed": arrays[1], "plain": values}, golden, 1)[0] == ["packed"]
