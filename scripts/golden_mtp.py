"""Writes the golden files of MTP layers: what transformers' layers compute with small random weights.

    python scripts/golden_mtp.py OUT

It runs with a Python that has torch (a CPU is enough) and transformers 5.23; neither is needed by rdchat or its tests.
OUT is tests/inference/golden. The layer is transformers' `MtpLayer` around the family's own decoder layer. Each case
gets a folder with the model's config.json as mlx-lm reads it, the MTP tensors under their published names (in 16 bits,
so that they are small; the reference computes with the same values in 32 bits), and expected.npz:

    embeddings, output (vocabulary, width)   the model's tables
    hidden (n, width), following (n,)        the model's hidden states, and the token behind each
    logits (n, vocabulary)                   of each row; the root is the last token of `following`
    chain (m,), chain_logits                 tokens that are drafted below the root, and the logits below each
    chain_before                             the same, where the layer's output is recycled before its norm
    tree (k,), parents (k,), tree_logits     a small tree below the root, nodes by levels, -1 for the root as parent

The folder `several_mtp` has three layers, which draft one token each (transformers' `MtpModel`): `chain` are the
tokens that they draft, and `chain_logits` the logits of these.
"""

import argparse
import importlib
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from golden_files import TREE, draw, path_to, write_folder
from transformers.cache_utils import MtpCache
from transformers.modeling_layers import MtpLayer, MtpModel

# As many tokens as the alphabet of the tests.
WIDTH = 32
VOCABULARY = 31
ROWS = 9
DEPTH = 4
COMMON: dict[str, Any] = {
    "hidden_size": WIDTH, "intermediate_size": 40, "num_attention_heads": 4, "num_key_value_heads": 2,
    "num_hidden_layers": DEPTH, "rms_norm_eps": 1e-5, "vocab_size": VOCABULARY, "max_position_embeddings": 256,
    "tie_word_embeddings": False, "head_dim": 8, "rope_theta": 10000.0, "attention_bias": False,
}  # fmt: skip
LATENT: dict[str, Any] = {
    "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8,
    "v_head_dim": 8, "head_dim": 4,
}  # fmt: skip
ROUTED: dict[str, Any] = {
    "moe_intermediate_size": 16, "n_shared_experts": 1, "n_routed_experts": 4, "routed_scaling_factor": 1.5,
    "n_group": 1, "topk_group": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "norm_topk_prob": True,
    "moe_layer_freq": 1, "scoring_func": "sigmoid", "topk_method": "noaux_tc", "num_nextn_predict_layers": 1,
}  # fmt: skip
INDEXED = {"index_n_heads": 2, "index_head_dim": 8, "index_topk": 64}
LINEAR: dict[str, Any] = {
    "linear_num_value_heads": 2, "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4, "full_attention_interval": 2,
}  # fmt: skip
EXPERTS: dict[str, Any] = {
    "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True,
}  # fmt: skip
HALF_ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
QWEN = {"enorm": "mtp.pre_fc_norm_embedding", "hnorm": "mtp.pre_fc_norm_hidden", "eh_proj": "mtp.fc",
        "post_norm": "mtp.norm", "mtp_block": "mtp.layers.0"}  # fmt: skip
NEXTN = {name: f"model.layers.{DEPTH}.{name}" for name in ("enorm", "hnorm", "eh_proj")} | {
    "post_norm": f"model.layers.{DEPTH}.shared_head.norm", "mtp_block": f"model.layers.{DEPTH}",
}  # fmt: skip
MIMO = {"enorm": "model.mtp_layers.0.token_layernorm", "hnorm": "model.mtp_layers.0.hidden_layernorm",
        "eh_proj": "model.mtp_layers.0.input_proj", "post_norm": "model.mtp_layers.0.final_layernorm",
        "mtp_block": "model.mtp_layers.0"}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One family.

    Attributes:
        module: Transformers' package of the model.
        classes: Beginning of its classes' names.
        names: Published names of the parts of `MtpLayer`.
        written: Config.json, as mlx-lm reads it.
        options: Further fields of transformers' configuration.
        fused: Whether published experts are in one tensor.
    """

    module: str
    classes: str
    names: dict[str, str]
    written: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    rotary: str = "RotaryEmbedding"
    config: str = "Config"
    fused: bool = False


CASES = {
    "mimo": Case("qwen2", "Qwen2", MIMO, COMMON | {"num_nextn_predict_layers": 1}, {"mtp_hidden_states_first": True}),
    "qwen3_5": Case(
        "qwen3_5", "Qwen3_5", QWEN, COMMON | LINEAR | {"rope_parameters": HALF_ROPE},
        rotary="TextRotaryEmbedding", config="TextConfig",
    ),
    "qwen3_5_moe": Case(
        "qwen3_5_moe", "Qwen3_5Moe", QWEN, COMMON | LINEAR | EXPERTS | {"rope_parameters": HALF_ROPE},
        rotary="TextRotaryEmbedding", config="TextConfig", fused=True,
    ),
    "qwen3_next": Case(
        "qwen3_next", "Qwen3Next", QWEN, COMMON | LINEAR | EXPERTS | {"partial_rotary_factor": 0.5},
        {"rope_parameters": HALF_ROPE},
    ),
    "deepseek_v3": Case("deepseek_v3", "DeepseekV3", NEXTN, COMMON | LATENT | ROUTED),
    "glm4_moe": Case(
        "glm4_moe", "Glm4Moe", NEXTN,
        COMMON | ROUTED | {"use_qk_norm": True, "partial_rotary_factor": 0.5, "rope_scaling": None},
        {"rope_parameters": HALF_ROPE},
    ),
    "deepseek_v32": Case("deepseek_v32", "DeepseekV32", NEXTN, COMMON | LATENT | ROUTED | INDEXED),
    "glm_moe_dsa": Case(
        "glm_moe_dsa",
        "GlmMoeDsa",
        NEXTN,
        COMMON | LATENT | ROUTED | INDEXED | {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    ),
    "glm4_moe_lite": Case("glm4_moe_lite", "Glm4MoeLite", NEXTN, COMMON | LATENT | ROUTED),
}  # fmt: skip


def main() -> None:
    """Write all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    with torch.no_grad():
        for name, case in CASES.items():
            write(options.out / f"mtp_{name}", name, case)
        write_several(options.out / "several_mtp", "glm4_moe", CASES["glm4_moe"])


def loaded(case: Case, written: dict[str, Any]) -> tuple[Any, Any]:
    """Return transformers' module of a family, and a configuration."""
    package = f"transformers.models.{case.module}"
    modeling = importlib.import_module(f"{package}.modeling_{case.module}")
    configuration = importlib.import_module(f"{package}.configuration_{case.module}")
    config = getattr(configuration, case.classes + case.config)(**written | case.options)
    config._attn_implementation = "eager"
    if hasattr(config, "_experts_implementation"):
        config._experts_implementation = "eager"
    return modeling, config


class Reference:
    """An MTP layer of transformers with random weights, and tables."""

    def __init__(self, case: Case) -> None:
        modeling, config = loaded(case, case.written)
        kinds = getattr(config, "layer_types", None) or ["full_attention"] * DEPTH
        number = max(index for index, kind in enumerate(kinds) if not kind.startswith("linear"))
        layer, norm = (getattr(modeling, case.classes + part) for part in ("DecoderLayer", "RMSNorm"))
        self.layer = MtpLayer(config, layer, norm, number)
        self.zero_centred = float(self.layer.enorm.weight.mean()) == 0
        self.rotary = getattr(modeling, case.classes + case.rotary)(config)
        generator = torch.Generator().manual_seed(20)
        tensors = [*self.layer.named_parameters(), *self.layer.named_buffers()]
        for name, weights in tensors:
            draw(weights, float(weights.ndim == 1 and "norm" in name and not self.zero_centred), generator)
        self.layer.eval()
        self.before: torch.Tensor = torch.empty(0)
        self.layer.mtp_block.register_forward_hook(self._keep)
        self.embeddings = torch.randn(VOCABULARY, WIDTH, generator=generator).half().float()
        self.output = (0.3 * torch.randn(VOCABULARY, WIDTH, generator=generator)).half().float()
        self.output[0] = 0  # so that a reply seldom ends

    def _keep(self, _module: torch.nn.Module, _inputs: Any, output: Any) -> torch.Tensor:
        self.before = output[0] if isinstance(output, tuple) else output  # GLM-5 returns its indices too
        return self.before

    def logits(
        self, hidden: torch.Tensor, following: torch.Tensor, path: list[int], before: bool = False
    ) -> torch.Tensor:
        """Return the logits of all rows, then below each token of a path; all rows are computed anew each time."""
        out = self._rows(hidden, following)
        for token in path:
            recycled = self.before[0, -1:] if before else out[-1:]
            hidden = torch.cat([hidden, recycled])
            following = torch.cat([following, torch.tensor([token])])
            out = self._rows(hidden, following)
        return out @ self.output.T

    def _rows(self, hidden: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        rows = len(following)
        positions = torch.arange(rows)[None]
        mask = torch.full((rows, rows), torch.finfo(torch.float32).min).triu(1)[None, None]
        embeddings = self.embeddings[following][None]
        turned = self.rotary(embeddings, position_ids=positions)
        return self.layer(embeddings, hidden[None], turned, mask, positions, None)[0]


def write(folder: Path, model_type: str, case: Case) -> None:
    """Write one case."""
    reference = Reference(case)
    torch.manual_seed(5)
    hidden = torch.randn(ROWS, WIDTH)
    following = torch.randint(0, VOCABULARY, (ROWS,))
    chain = torch.randint(0, VOCABULARY, (5,)).tolist()
    tree, parents = TREE
    logits = partial(reference.logits, hidden, following)
    below = [logits([tree[node] for node in path_to(node, parents)])[-1] for node in range(len(tree))]
    expected = {
        "embeddings": reference.embeddings, "output": reference.output, "hidden": hidden, "following": following,
        "logits": logits([]), "chain": torch.tensor(chain), "chain_logits": logits(chain)[ROWS:],
        "chain_before": logits(chain, True)[ROWS:], "tree": torch.tensor(tree), "parents": torch.tensor(parents),
        "tree_logits": torch.stack(below),
    }  # fmt: skip
    tensors = dict(published(reference.layer.state_dict(), case))
    write_folder(folder, {"model_type": model_type, **case.written}, tensors, expected)


def write_several(folder: Path, model_type: str, case: Case) -> None:
    """Write several layers that draft in turn."""
    reference = Reference(case)
    layers = 3
    written = case.written | {"num_nextn_predict_layers": layers}
    modeling, config = loaded(case, written)
    model = MtpModel(getattr(modeling, f"{case.classes}ForCausalLM")(config), layers)
    generator = torch.Generator().manual_seed(21)
    for name, weights in [*model.layers.named_parameters(), *model.layers.named_buffers()]:
        draw(weights, float(weights.ndim == 1 and "norm" in name), generator)
    model.embed_tokens.weight.copy_(reference.embeddings)
    model.shared_head.weight.copy_(reference.output)
    model.eval()
    torch.manual_seed(5)
    hidden = torch.randn(ROWS, WIDTH)
    following = torch.randint(0, VOCABULARY, (ROWS,))
    cache = MtpCache(config=config.get_mtp_config())
    chain, logits, _ = model(following[None], hidden[None], None, torch.arange(1, ROWS + 1)[None], cache)
    expected = {
        "embeddings": reference.embeddings, "output": reference.output, "hidden": hidden, "following": following,
        "chain": chain[0], "chain_logits": logits[0],
    }  # fmt: skip
    tensors = {}
    for number, layer in enumerate(model.layers):
        for name, value in published(layer.state_dict(), case):
            tensors[name.replace(f".{DEPTH}.", f".{DEPTH + number}.", 1)] = value
    write_folder(folder, {"model_type": model_type, **written}, tensors, expected)


def published(state: dict[str, torch.Tensor], case: Case) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors under their published names; transformers keeps the experts of all families in two tensors."""
    tensors = []
    for name, value in state.items():
        part, _, rest = name.partition(".")
        full = f"{case.names[part]}.{rest}"
        if ".experts." not in full or case.fused:
            tensors.append((full, value))
            continue
        prefix = full.rpartition(".")[0]
        for number, matrix in enumerate(value):
            if full.endswith("gate_up_proj"):
                gate, up = matrix.chunk(2)
                tensors += [
                    (f"{prefix}.{number}.gate_proj.weight", gate),
                    (f"{prefix}.{number}.up_proj.weight", up),
                ]
            else:
                tensors.append((f"{prefix}.{number}.down_proj.weight", matrix))
    return tensors


if __name__ == "__main__":
    main()
