"""What can't be shown to stay the same has no key, and its reason is told."""

from __future__ import annotations

import pytest

from nki_dist.launcher.cachekey import Fingerprinter, Unprovable
from tests.cachekey.kernels import key_of, namespace


@pytest.mark.parametrize(
    "body",
    [
        "import time\ndef kernel(x): return time.time()",
        "from time import perf_counter as now\ndef kernel(x): return now()",
        "import random\ndef kernel(x): return random.random()",
        "from random import randint\ndef kernel(x): return randint(0, 3)",
        "import numpy as np\ndef kernel(x): return np.random.rand(3)",
        "import numpy as np\nrng = np.random.default_rng(0)\ndef kernel(x): return rng.normal()",
        "from numpy.random import rand\ndef kernel(x): return rand(2)",
        "def kernel(x):\n    import time\n    return time.time()",
        "def kernel(x):\n    import numpy as np\n    return np.random.rand()",
        "def kernel(x): return open('f').read()",
        "def kernel(x): return input()",
        "def kernel(x): breakpoint()",
        "def kernel(x): return eval('TILE')",
        "def kernel(x): return globals()['TILE']",
        "from io import FileIO\ndef kernel(x): return FileIO('f').read()",
        "import os\ndef kernel(x): return os.listdir('.')",
        "import os\ndef kernel(x): return os.path.exists('.')",
        "import sys\ndef kernel(x): return sys.modules['a'].TILE",
        "import numpy as np\ndef kernel(x): return x(np)",
        "from pathlib import Path\ndef kernel(x): return Path('a').exists()",
        "import datetime\ndef kernel(x): return datetime.datetime.now()",
        "COUNT = 0\ndef kernel(x):\n    global COUNT\n    COUNT += 1",
        "import types\nC = types.SimpleNamespace(n=0)\ndef kernel(x): C.n = 1",
        "def make():\n    n = 0\n    def kernel(x):\n        nonlocal n\n        n += 1\n"
        "    return kernel\nkernel = make()",
        "import threading\nLOCK = threading.Lock()\ndef kernel(x): LOCK.acquire()",
        "STREAM = iter([1, 2])\ndef kernel(x): return next(STREAM)",
        "def gen():\n    yield 1\nG = gen()\ndef kernel(x): return next(G)",
        "import itertools\nIDS = itertools.count()\ndef kernel(x): return next(IDS)",
        "def kernel(x):\n    import not_imported_anywhere as n\n    return n.X",
        "import numpy as np\nclass F(np.float64): pass\nF0 = F(1)\ndef kernel(x): return F0",
        "import numpy as np\nD = np.dtype('f4', metadata={'t': 1})\ndef kernel(x): return D",
        "import numpy as np\nD = np.dtype([('a', np.dtype(('f4', 3), metadata={'t': 1}))])\n"
        "def kernel(x): return D",
        "import numpy as np\nA = np.zeros(3, np.dtype('f4', metadata={'t': 1}))\n"
        "def kernel(x): return A",
        "import time\ndef helper(): return [time.time() for _ in range(2)]\n"
        "class K:\n    def run(self): return helper()\nk = K()\ndef kernel(x): return k.run()",
    ],
)
def test_unprovable_kernels_have_no_key(keys: Fingerprinter, body: str) -> None:
    kernel = namespace(body)["kernel"]
    for _ in range(2):
        with pytest.raises(Unprovable, match=r"\w"):
            keys.fingerprint(kernel, ())


def test_pure_path_functions_are_allowed(keys: Fingerprinter) -> None:
    key_of(keys, namespace("import os\ndef kernel(x): return os.path.join('a', x)")["kernel"])


def test_memoised_helper_that_predates_a_change(keys: Fingerprinter) -> None:
    names = namespace(
        "import functools\nT = 1\n@functools.lru_cache\ndef helper(): return T\n"
        "def kernel(x): return helper()"
    )
    before = key_of(keys, names["kernel"])
    names["helper"]()
    assert key_of(keys, names["kernel"]) == before
    names["T"] = 2
    with pytest.raises(Unprovable, match="the cache of helper predates a change"):
        keys.fingerprint(names["kernel"], ())  # helper() still answers 1
    names["helper"].cache_clear()
    assert keys.fingerprint(names["kernel"], ()) != before


def test_memoised_helper_that_saw_a_change_is_spoiled_until_it_is_cleared(
    keys: Fingerprinter,
) -> None:
    """While T was 2, the helper may have been called with arguments it hadn't seen."""
    names = namespace(
        "import functools\nT = 1\n@functools.lru_cache\ndef helper(n): return n * T\n"
        "def kernel(x): return helper(x)"
    )
    before = key_of(keys, names["kernel"])
    names["helper"](1)
    for names["T"] in (2, 1):
        with pytest.raises(Unprovable, match="predates a change"):
            keys.fingerprint(names["kernel"], ())
        names["helper"](names["T"])
    names["helper"].cache_clear()
    assert keys.fingerprint(names["kernel"], ()) == before
