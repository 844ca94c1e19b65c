"""Functions of the closed list are known by name: one of each, in every thread and process."""

import pickle
import subprocess
import sys

import numpy as np
import pytest

from nki_dist.dtypes import bfloat16, float8_e4m3, float32
from nki_dist.dtypes.scratch import Scratch
from nki_dist.ops.arrays import fill
from nki_dist.ops.function import conversion, copy, find, function, functions, of_ufunc
from nki_dist.ops.operation import op


@pytest.mark.parametrize("made", [copy, fill, of_ufunc(np.add), conversion(float32, bfloat16)])
def test_a_function_is_found_by_its_name(made):
    assert find(made.name) is made
    assert pickle.loads(pickle.dumps(made)) is made
    assert made in functions()


@pytest.mark.parametrize(
    "asked, arguments", [(of_ufunc, (np.add,)), (conversion, (float32, bfloat16))]
)
def test_two_threads_that_ask_for_the_first_time_get_the_same(asked, arguments):
    """Caches of functions let both of them in."""
    assert asked.__wrapped__(*arguments) is asked(*arguments)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("ufunc", [np.maximum, np.minimum])
def test_a_ufunc_that_warns_of_a_third_argument_is_told_where_to_write(ufunc):
    a, b, out = np.float32([1, 5, np.nan]), np.float32([4, 2, 3]), np.empty(3, np.float32)
    op(ufunc, a, b, out).function(a, b, out)
    np.testing.assert_array_equal(out, ufunc(a, b))


def test_other_processes_find_what_nobody_has_asked_for_there():
    program = (
        "import pickle, sys\n"
        "made = pickle.loads(sys.stdin.buffer.read())\n"
        "print(*[of.name for of in made])\n"
    )
    sent = pickle.dumps([of_ufunc(np.logaddexp), conversion(float32, bfloat16)])
    found = subprocess.run([sys.executable, "-c", program], input=sent, capture_output=True)
    assert found.stdout.decode().strip() == "logaddexp convert float32 bfloat16", found.stderr


def test_conversions_work_in_the_memory_of_those_who_share_them():
    """What threads do at the same time mustn't meet in the same scratch."""

    class Asked(Scratch):
        count = 0

        def get(self, *asked):
            self.count += 1
            return super().get(*asked)

    mine, theirs = Asked(), Asked()
    convert = conversion(float32, float8_e4m3).within(mine)
    convert(np.empty(9, float8_e4m3.storage), np.ones(9, np.float32))
    assert mine.count > 0
    assert theirs.count == 0


def test_a_conversion_to_the_same_type_is_a_copy():
    assert conversion(float32, float32) is copy


def test_no_two_functions_have_a_name():
    with pytest.raises(TypeError, match="two functions are called fill"):
        function(writes="out", name="fill")(lambda out, value: None)
    assert find("fill") is fill


@pytest.mark.parametrize("name", ["made up", "ndarray", "convert"])
def test_other_names_are_refused(name):
    with pytest.raises(LookupError, match=f"no function is called '{name}'"):
        find(name)
