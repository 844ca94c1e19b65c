"""Kernels that are called as nki-library's are, and do as they document, or refuse everything.

`transformer_tkg` adds nothing to a token, so that whoever calls it can tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.kernels.decoding import attend_cache, later_than

QKVOutputLayout = Enum("QKVOutputLayout", "BSD")
NormType = Enum("NormType", "NO_NORM RMS_NORM")
ActFnType = Enum("ActFnType", "SiLU")
RouterActFnType = Enum("RouterActFnType", "SIGMOID SOFTMAX")

REFUSES = '''
"""A kernel."""


def {name}(*args, **kwargs):
    """Takes nothing."""
    assert False, "sizes"
'''
PARTS = {
    "core.qkv.qkv": "qkv",
    "core.attention.attention_cte": "attention_cte",
    "core.attention.attention_tkg": "attention_tkg",
    "core.output_projection.output_projection_cte.output_projection_cte": "output_projection_cte",
    "core.output_projection.output_projection_tkg": "output_projection_tkg",
    "core.mlp.mlp": "mlp",
    "core.subkernels.rmsnorm_tkg": "rmsnorm_tkg",
    "core.router_topk.router_topk": "router_topk",
    "experimental.transformer.transformer_tkg": "transformer_tkg",
}
OTHERS = ("core.utils.common_types", "core.attention.attention_tkg_utils", "core.utils.allocator")


def library(folder: Path, *working: str) -> Path:
    """A library in which all kernels but these refuse; `mlp.py` is published broken, too."""
    root = Path(__file__).parents[2]
    ours = f"import sys\n\nsys.path.append({str(root)!r})\nfrom tests.llm.stand_in import *\n"
    for module, name in [*PARTS.items(), *((other, "") for other in OTHERS)]:
        file = folder.joinpath("src", "nkilib_src", "nkilib", *module.split(".")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        text = REFUSES.format(name=name).lstrip()
        if name == "mlp":
            text = text.partition("\n")[2].replace(
                '    """Takes nothing."""\n',
                '    """Takes nothing.\n    """\n\n    nothing.\n    """\n',
            )
        file.write_text(ours if name in ("", *working) else text)
    return folder


def tile(shape: Any, dtype: Any = nl.float32) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def loaded(view: Any) -> Any:
    made = tile(view.shape, view.dtype)
    nisa.dma_copy(dst=made, src=view)
    return made


def rmsnorm_tkg(
    input: Any, gamma: Any, output: Any, eps: float = 1e-6, single_core_forced: bool = False
) -> Any:
    """Rows (1, rows, n) in HBM or (128, rows, n / 128); output is like the latter."""
    assert single_core_forced
    p, rows, k = output.shape
    assert p == 128 and gamma.shape == (1, p * k)
    if input.shape != output.shape:
        input = loaded(input.reshape((rows, p, k)).permute((1, 0, 2)))
    weight, ones = loaded(gamma.reshape((p, k))), tile((p, p))
    nisa.memset(dst=ones, value=1.0)
    for row in range(rows):
        squares, total, factor = tile((p, k)), nl.ndarray((p, k), nl.float32, nl.psum), tile((p, 1))
        nisa.activation(dst=squares, op=nl.square, data=input[:, row, :])
        nisa.nc_matmul(dst=total, stationary=ones, moving=squares)
        nisa.tensor_reduce(dst=factor, op=nl.add, data=total, axis=1)
        nisa.tensor_scalar(
            dst=factor, data=factor, op0=nl.multiply, operand0=1 / (p * k), op1=nl.add, operand1=eps
        )
        nisa.activation(dst=factor, op=nl.rsqrt, data=factor)
        nisa.scalar_tensor_tensor(
            dst=output[:, row, :],
            data=input[:, row, :],
            op0=nl.multiply,
            operand0=factor,
            op1=nl.multiply,
            operand1=weight,
        )
    return output


def router_topk(
    x: Any,
    w: Any,
    w_bias: Any,
    router_logits: Any,
    expert_affinities: Any,
    expert_index: Any,
    act_fn: Any,
    k: int,
    x_hbm_layout: int,
    x_sb_layout: int,
    norm_topk_prob: bool = False,
    skip_store_expert_index: bool = False,
) -> list[Any]:
    """Softmax of the k largest logits, zero elsewhere; x is (128, tokens, n / 128)."""
    assert act_fn is RouterActFnType.SOFTMAX and norm_topk_prob and x_sb_layout == 0
    p, tokens, n = x.shape
    experts = w.shape[1]
    weights = loaded(w.reshape((p, n, experts)))
    on_psum = nl.ndarray((tokens, experts), nl.float32, nl.psum)
    for j in range(n):
        nisa.nc_matmul(dst=on_psum, stationary=x[:, :, j], moving=weights[:, j, :])
    logits, top, keeps = tile((tokens, experts)), tile((tokens, 8)), tile((tokens, experts))
    nisa.tensor_copy(dst=logits, src=on_psum)
    nisa.dma_copy(dst=router_logits, src=logits)
    nisa.max8(dst=top, src=logits)
    nisa.tensor_scalar(dst=keeps, data=logits, op0=nl.greater_equal, operand0=top[:, k - 1 : k])
    nisa.activation(dst=logits, op=nl.exp, data=logits)
    nisa.tensor_tensor(dst=keeps, data1=keeps, data2=logits, op=nl.multiply)
    total = tile((tokens, 1))
    nisa.tensor_reduce(dst=total, op=nl.add, data=keeps, axis=1)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=keeps, data=keeps, op0=nl.multiply, operand0=total)
    return [router_logits, expert_index, keeps]


@dataclass
class AttnTKGConfig:
    bs: int
    q_head: int
    s_active: int
    curr_sprior: int
    full_sprior: int
    d_head: int
    use_pos_id: bool
    qk_in_sb: bool
    out_in_sb: bool


class Memory:
    def open_scope(self) -> None:
        self.open = True


create_auto_alloc_manager = Memory


def attention_tkg(
    q: Any,
    k_active: Any,
    v_active: Any,
    k_prior: Any,
    v_prior: Any,
    mask: Any,
    out: Any,
    cfg: AttnTKGConfig,
    sbm: Memory,
    rope_pos_ids: Any,
) -> tuple[Any, None]:
    """Attention of a token that is in the cache already; q is scaled."""
    assert sbm.open and cfg.s_active == 1 and cfg.use_pos_id and cfg.qk_in_sb and cfg.out_in_sb
    batch, heads, d, context = cfg.bs, cfg.q_head, cfg.d_head, cfg.full_sprior
    assert k_active.shape == (d, batch) and v_active.shape == (batch, 1, 1, d)
    assert k_prior.shape == (batch, 1, d, context) and v_prior.shape == (batch, 1, context, d)
    assert mask.shape == (1, batch, heads, 1)
    later = later_than(rope_pos_ids[0:1, :], heads, cfg.curr_sprior)
    for b in range(batch):
        own = q[:, b * heads : (b + 1) * heads]
        rows = attend_cache(own, k_prior[b, 0], v_prior[b, 0], later, 1.0)
        turned = nl.ndarray((d, heads), rows.dtype, nl.psum)
        nisa.nc_transpose(dst=turned, data=rows, engine=nisa.tensor_engine)
        nisa.tensor_copy(dst=out[:, b * heads : (b + 1) * heads], src=turned)
    return out, None


def transformer_tkg(X: Any, W_qkvs: Any, *args: Any, **more: Any) -> Any:
    out = nl.ndarray(X.shape, dtype=X.dtype, buffer=nl.shared_hbm)
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=out, src=X)
    return out
