"""A program for test_unlike_nodes: a Ray cluster of this machine with a node that isn't like it.

`python -m tests.core_actor.on_unlike_nodes PART FOLDER` prints JSON for the test.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sys
import time
import types
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import ray
from ray.cluster_utils import Cluster

import nki_dist as nki
from nki_dist import errors
from nki_dist.cli import main as command
from tests.launcher import kernels as K

STORE = 200 << 20
RANKS = 128  # two instances on trn2
X, W = np.arange(24, dtype=np.int32).reshape(6, 4), np.ones((6, 4), np.int32)


def cluster_of(*workers: dict[str, Any], **head: Any) -> tuple[Cluster, list[Any]]:
    """A head without processors, and workers."""
    options = {"object_store_memory": STORE, "include_dashboard": False, "num_cpus": 0, **head}
    cluster = Cluster(initialize_head=True, head_node_args=options)
    made = [
        cluster.add_node(**{"num_cpus": 1, "object_store_memory": STORE, **worker})
        for worker in workers
    ]
    cluster.wait_for_nodes()
    return cluster, made


def edited(folder: Path, file: str = "", old: str = "", new: str = "") -> dict[str, Any]:
    """A worker whose package has another text in a file, or that has no package."""
    folder /= "other"  # Ray adds the program's own to the path of every worker
    package = folder / "nki_dist"
    if not file:
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(
            "raise ModuleNotFoundError(\"No module named 'nki_dist'\", name='nki_dist')\n"
        )
        return {"env_vars": {"PYTHONPATH": str(folder)}}
    shutil.copytree(Path(nki.__file__).parent, package)
    text = (package / file).read_text()
    assert old in text
    (package / file).write_text(text.replace(old, new))
    return {"env_vars": {"PYTHONPATH": str(folder)}}


def attempt(cluster: Cluster, x: np.ndarray = X) -> dict[str, Any]:
    """A launch of two instances: its error, and how long it took."""
    start = time.monotonic()
    try:
        with nki.World.trn2(ranks=RANKS, address=cluster.address) as world:
            world.run(K.add_weights, x, np.zeros_like(x))
            said, code = "none", ""
    except errors.NkiError as error:
        said, code = f"{type(error).__name__}: {error}", error.code
    return {"error": said, "code": code, "seconds": time.monotonic() - start}


def ids() -> dict[str, str]:
    """Nodes by the size of their store, which is another for each part's odd one."""
    return {str(int(n["Resources"]["object_store_memory"]) >> 20): n["NodeID"] for n in ray.nodes()}


def unlike(folder: Path, how: str) -> dict[str, Any]:
    changes = {
        "missing": (),
        "edited": ("isa/core.py", "from __future__", "# edited\nfrom __future__"),
        "classes": ("isa/core.py", "class CoreSlot", "class CoreSlotOfAnotherName"),
    }
    odd = edited(folder, *changes[how])
    if how == "classes":
        init = folder / "other" / "nki_dist" / "__init__.py"
        init.write_text(init.read_text().replace(nki.__version__, "97.5.3"))
    cluster, _ = cluster_of({}, {**odd, "object_store_memory": STORE // 2})
    found = attempt(cluster)
    return {**found, "node": ids()["100"]}


def processors() -> dict[str, Any]:
    math = np._core._multiarray_umath  # type: ignore[attr-defined]
    used = [name for name in math.__cpu_dispatch__ if math.__cpu_features__[name]]
    cluster, _ = cluster_of({}, {"env_vars": {"NPY_DISABLE_CPU_FEATURES": " ".join(used)}})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with nki.World.trn2(ranks=RANKS, address=cluster.address) as world:
            outs = [world.run(K.add_weights, X, W) for _ in range(2)]
    told = [str(w.message) for w in caught if isinstance(w.message, errors.ClusterWarning)]
    right = all(np.array_equal(out, X + W) for several in outs for out in several)
    return {"used": used, "told": told, "right": right}


def functions() -> dict[str, Any]:
    """per_rank of a function that Ray sends by its name, of a module that only this process has."""
    module = types.ModuleType("only_here")
    exec(
        "import os\nimport numpy as np\ndef own(rank):\n"
        "    return np.full((6, 4), 1000 * os.getpid() + rank, np.int64).astype(np.int32)\n"
        "def bad(rank):\n    raise ImportError('of its own')\n",
        module.__dict__,
    )
    sys.modules["only_here"] = module
    cluster, _ = cluster_of({}, {})
    home = os.getpid()

    def lazy(rank: int) -> np.ndarray:
        if os.getpid() != home:
            raise FileNotFoundError("of the launcher's machine")
        return X + rank

    with nki.World.trn2(ranks=RANKS, address=cluster.address) as world:
        outs = world.run(K.add_weights, nki.per_rank(lazy), W)
        right = [np.array_equal(out, lazy(n) + W) for n, out in enumerate(outs)]
    with nki.World.trn2(ranks=RANKS, address=cluster.address) as world:
        for _ in range(2):
            outs = world.run(K.add_weights, nki.per_rank(module.own), W)
            right += [np.array_equal(out, module.own(n) + W) for n, out in enumerate(outs)]
        try:
            world.run(K.add_weights, nki.per_rank(module.bad), W)
            raised = "none"
        except errors.LaunchError as error:
            raised = error.message
        alive = world.run(K.add_weights, X, W)
    return {"right": all(right), "raised": raised, "alive": np.array_equal(alive[-1], X + W)}


def store() -> dict[str, Any]:
    cluster, _ = cluster_of({}, {"object_store_memory": 80 << 20})
    found = attempt(cluster, np.ones((128, 3000), np.float32))
    return {**found, "node": ids()["80"]}


def doctor(folder: Path) -> dict[str, Any]:
    """A node without the package, and one that is frozen."""
    from nki_dist.cli.doctor import cluster as looked_at

    cluster, (_, frozen) = cluster_of(edited(folder), {"object_store_memory": 90 << 20})
    ray.init(address=cluster.address, log_to_driver=False)
    looked_at.WAIT = 8.0  # type: ignore[misc]  # of a test
    (raylet,) = frozen.all_processes["raylet"]
    os.kill(raylet.process.pid, signal.SIGSTOP)
    said = io.StringIO()
    with redirect_stdout(said):
        status = command(["doctor", "--cluster", "--address", cluster.address, "--json"])
    os.kill(raylet.process.pid, signal.SIGKILL)
    return {"status": status, "frozen": ids().get("90"), **json.loads(said.getvalue())}


def client() -> dict[str, Any]:
    with __import__("socket").socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cluster_of(ray_client_server_port=port, num_cpus=1)
    for _ in range(60):
        try:
            ray.init(f"ray://127.0.0.1:{port}")
            break
        except ConnectionError:
            time.sleep(1)
    start, found = time.monotonic(), []
    for launch in (nki.World(ranks=2).run, lambda kernel, *xs: kernel[2](*xs)):
        try:
            launch(K.add_weights, X, W)
            found.append("none")
        except errors.LaunchError as error:
            found.append(str(error))
    return {"errors": found, "seconds": time.monotonic() - start}


def main(part: str, folder: Path) -> None:
    alone = {"processors": processors, "functions": functions, "store": store, "client": client}
    if part in alone:
        found = alone[part]()
    else:
        found = doctor(folder) if part == "doctor" else unlike(folder, part)
    print(json.dumps(found), flush=True)
    os._exit(0)  # however Ray ends isn't asked here


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
