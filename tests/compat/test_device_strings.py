"""PyTorch's device "xla" is the CPU, and the parts of torch_xla that programs import."""

import sys

import pytest

from tests.compat.test_install import fresh

pytest.importorskip("torch")

PROGRAM = """
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.debug.metrics as met

cpu = torch.device("cpu")
moved = torch.nn.Linear(3, 4).to("xla")
made = [
    torch.ones(2, 3).to("xla"),
    torch.ones(2, 3).to(device="xla:0", dtype=torch.bfloat16),
    torch.zeros(2, 3, device=torch.device("xla", 1)),
    torch.tensor([1.0], device="xla"),
    torch.nn.Linear(3, 4, device="xla").weight,
    moved.weight,
    moved(torch.ones(2, 3, device=xm.xla_device())),
]
with torch.device("xla"):
    made.append(torch.ones(2))
assert {t.device for t in made} == {cpu}, [t.device for t in made]
assert made[1].dtype is torch.bfloat16
compiled = torch.compile(lambda a: (a.to("xla") * 2).relu(), backend="eager", fullgraph=True)
assert torch.equal(compiled(torch.tensor([-1.0, 3.0])), torch.tensor([0.0, 6.0]))
assert torch.ones(2).to("meta").device.type == "meta"
assert met.metrics_report() == ""
print("good")
"""


@pytest.mark.parametrize("first", ["torch", "install"])
def test_the_device_is_the_cpu_however_torch_comes(first):
    lines = ["import torch", "from nki_dist import compat\ncompat.install()\ncompat.install()"]
    start = "\n".join(lines if first == "torch" else reversed(lines))
    done = fresh(start + PROGRAM)
    assert done.stdout == "good\n", done.stderr


def test_install_does_not_import_torch():
    code = (
        "import sys\nfrom nki_dist import compat\ncompat.install()\nprint('torch' in sys.modules)"
    )
    assert fresh(code).stdout == "False\n"


def test_a_real_torch_xla_keeps_its_device(tmp_path):
    (tmp_path / "torch_xla").mkdir()
    (tmp_path / "torch_xla" / "__init__.py").write_text("")
    code = (
        "from nki_dist import compat\ncompat.install()\nimport torch, torch_xla\n"
        "print(torch_xla.__file__, len(torch.overrides._get_current_function_mode_stack()))"
    )
    done = fresh(code, PYTHONPATH=f"{tmp_path}:{':'.join(sys.path)}")
    assert done.stdout == f"{tmp_path}/torch_xla/__init__.py 0\n", done.stderr
