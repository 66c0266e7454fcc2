"""Writes the golden files of EAGLE-3: what the reference implementations compute with small random weights.

    PYTHONPATH=CLONE_OF_EAGLE:CLONE_OF_DEEPSPEC python scripts/golden_eagle3.py OUT

It runs with a Python that has torch (a CPU is enough), transformers and vLLM's speculators, and with clones of
SafeAILab/EAGLE and deepseek-ai/DeepSpec; none of these is a part of rdchat, and neither rdchat nor its tests need them.
OUT is tests/inference/golden. Each case gets a folder with the checkpoint as its layout has it (config.json, weights
in 16 bits, so that they are small; the reference computes with the same values in 32 bits), and expected.npz:

    features (n, width), following (n,)    the target's features, and the token behind each
    logits (n, candidates)                 of each row; the root is the last token of `following`
    chain (m,), chain_logits               tokens that are drafted below the root, and the logits below each
    tree (k,), parents (k,), tree_logits   a small tree below the root, nodes by levels, -1 for the root as parent
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from deepspec.modeling.eagle3.gemma4.modeling import Gemma4Eagle3Model
from deepspec.modeling.eagle3.qwen3.modeling import Qwen3Eagle3Model
from eagle.model.cnets import Model
from eagle.model.configs import EConfig
from golden_files import GEMMA4, LLAMA3, TREE, YARN, path_to, write_folder
from speculators import SpeculatorsConfig, VerifierConfig
from speculators.models.eagle3.config import Eagle3SpeculatorConfig
from speculators.models.eagle3.core import Eagle3DraftModel
from speculators.proposals.greedy import GreedyTokenProposalConfig
from transformers import DynamicCache, Qwen3Config
from transformers.models.gemma4.configuration_gemma4 import Gemma4TextConfig

WIDTH = 32
VOCABULARY = 48
CANDIDATES = 20
DEPTH = 12
ROWS = 9
LLAMA = {
    "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": 40, "num_attention_heads": 4,
    "num_key_value_heads": 2, "num_hidden_layers": 1, "rms_norm_eps": 1e-5, "vocab_size": VOCABULARY,
    "hidden_act": "silu", "max_position_embeddings": 256, "tie_word_embeddings": False, "pad_token_id": 0,
}  # fmt: skip
GEMMA = GEMMA4 | {
    "hidden_size": WIDTH, "intermediate_size": 40, "num_hidden_layers": 1, "global_head_dim": 16,
    "vocab_size": VOCABULARY, "pad_token_id": 0, "layer_types": ["full_attention"],
}  # fmt: skip

# From the rows of a prompt and a path below its root, the logits of each row and then below each token of the path.
Reference = Callable[[torch.Tensor, torch.Tensor, list[int]], torch.Tensor]


def main() -> None:
    """Write all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    with torch.no_grad():
        write_safeailab(options.out / "eagle3_safeailab")
        own = {"target_layer_ids": [1, 3, 5, 7, 9], "num_target_layers": DEPTH, "ttt_length": 7, "step_loss_decay": 0.8}
        qwen = LLAMA | {"model_type": "qwen3", "head_dim": 16, "rope_parameters": YARN, **own}
        write_deepspec(options.out / "eagle3_deepspec", qwen, Qwen3Eagle3Model, Qwen3Config)
        write_deepspec(options.out / "eagle3_deepspec_gemma4", GEMMA | own, Gemma4Eagle3Model, Gemma4TextConfig)
        write_speculators(
            options.out / "eagle3_speculators_llama",
            LLAMA | {"head_dim": 16, "num_hidden_layers": 2, "attention_bias": True, "mlp_bias": True},
            {"norm_before_residual": True, "norm_before_fc": True},
        )
        write_speculators(
            options.out / "eagle3_speculators_qwen3",
            LLAMA | {"model_type": "qwen3", "head_dim": 8, "rope_parameters": LLAMA3},
            {"norm_before_residual": False, "fc_norm": True, "norm_output": True},
        )
        window = {"sliding_window": 4, "use_sliding_window": True, "layer_types": ["sliding_attention"]}
        write_speculators(
            options.out / "eagle3_speculators_window",
            LLAMA | {"model_type": "qwen3", "head_dim": 8, **window},
            {"norm_before_residual": True},
            drafts=False,  # its training masks do not move the window on with the drafted tokens, as decoding does
        )


def write_safeailab(folder: Path) -> None:
    """Write SafeAILab's layout, computed with its own cache and, for the tree, its own mask."""

    config = LLAMA | {"architectures": ["LlamaForCausalLM"], "draft_vocab_size": CANDIDATES}
    model = Model(EConfig(**config, rope_scaling={"type": "linear", "factor": 2.0}, target_hidden_size=WIDTH))
    ids = randomise(model)
    written = config | {"rope_scaling": {"type": "linear", "factor": 2.0}}

    def reference(features: torch.Tensor, following: torch.Tensor, path: list[int]) -> torch.Tensor:
        model.reset()
        out, cache = model(features[None], input_ids=following[None], use_cache=True)
        outputs = [out[0]]
        for depth, token in enumerate(path):
            position = torch.tensor([len(following) + depth])
            out, cache = model(
                outputs[-1][-1:][None],
                input_ids=torch.tensor([[token]]),
                past_key_values=cache,
                position_ids=position,
                use_cache=True,
            )
            outputs.append(out[0])
        return model.lm_head(model.norm(torch.cat(outputs)))

    def complete_tree(features: torch.Tensor, following: torch.Tensor, tokens: list[int]) -> torch.Tensor:
        model.reset()
        out, cache = model(features[None], input_ids=following[None], use_cache=True)
        outputs: list[torch.Tensor] = []
        seen = torch.zeros(1, 0)
        start = 0
        above = out[:, -1:]
        for level, nodes in enumerate(levels(TREE[1])):
            parents = [TREE[1][node] for node in nodes]
            inner = [parent - (start - len(outputs[-1])) if outputs else 0 for parent in parents]
            seen = torch.cat([seen[inner], torch.eye(len(nodes))], dim=1)
            model.tree_mask = seen[None, None]
            position = torch.full((len(nodes),), len(following) + level)
            out, cache = model(
                above[:, inner],
                input_ids=torch.tensor([[tokens[node] for node in nodes]]),
                past_key_values=cache,
                position_ids=position,
                use_cache=True,
            )
            outputs.append(out[0])
            above = out
            start = start + len(nodes)
        return model.lm_head(model.norm(torch.cat(outputs)))

    write(folder, written, model, ids, reference, complete_tree=complete_tree, depth_of_features=3)


def write_deepspec(folder: Path, written: dict[str, Any], kind: Any, configuration: Any) -> None:
    """Write DeepSpec's layout, computed with its own cache."""

    model = kind(configuration(**written, attn_implementation="sdpa"))
    ids = randomise(model)

    def reference(features: torch.Tensor, following: torch.Tensor, path: list[int]) -> torch.Tensor:
        cache = DynamicCache()
        positions = torch.arange(len(following) + len(path))[None]
        rows = len(following)
        out = model(features[None], following[None], positions[:, :rows], past_key_values=cache, use_cache=True)
        outputs = [out[0]]
        for depth, token in enumerate(path):
            position = positions[:, rows + depth : rows + depth + 1]
            out = model(out[:, -1:], torch.tensor([[token]]), position, past_key_values=cache, use_cache=True)
            outputs.append(out[0])
        return model.compute_logits(torch.cat(outputs))

    written = {**written, "architectures": [kind.__name__]}
    write(folder, written, model, ids, reference, depth_of_features=5)


def write_speculators(folder: Path, layer: dict[str, Any], flags: dict[str, Any], drafts: bool = True) -> None:
    """Write the layout of vLLM's speculators, computed by its training-time test: a chain below each row."""

    read = [2, 6, 9]
    config = Eagle3SpeculatorConfig(
        transformer_layer_config=layer | {"attn_implementation": "eager"},
        draft_vocab_size=CANDIDATES,
        eagle_aux_hidden_state_layer_ids=read,
        speculators_config=SpeculatorsConfig(
            algorithm="eagle3",
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=3)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=None, architectures=[]),
        ),
        **flags,
    )
    config.transformer_layer_config._attn_implementation = "eager"
    model = Eagle3DraftModel(config)
    ids = randomise(model)
    seen: list[torch.Tensor] = []
    model.lm_head.register_forward_hook(lambda _module, _inputs, output: seen.append(output[0]))

    def reference(features: torch.Tensor, following: torch.Tensor, path: list[int]) -> torch.Tensor:
        seen.clear()
        rows = len(following)
        # behind the root's row come rows that it does not see: only their tokens are looked at, as what is drafted
        tokens = torch.cat([following, torch.tensor(path, dtype=torch.long)])[None]
        padded = torch.cat([features, torch.randn(len(path), features.shape[1])])[None]
        model(padded, tokens, torch.zeros_like(tokens), ttt_steps=1 + len(path))
        return torch.cat([seen[0][:rows], *[step[rows - 1 : rows] for step in seen[1:]]])

    written = flags | {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "draft_vocab_size": CANDIDATES,
        "eagle_aux_hidden_state_layer_ids": read,
        "transformer_layer_config": layer,
        "speculators_config": {"algorithm": "eagle3", "verifier": {"name_or_path": "someone/a-model"}},
    }
    write(folder, written, model, ids, reference, depth_of_features=3, drafts=drafts)


def randomise(model: torch.nn.Module) -> list[int]:
    """Give a model random weights that 16 bits hold, and its tables of tokens; return the tokens that it can draft."""
    generator = torch.Generator().manual_seed(20)
    model.eval()
    scalars = [(name, buffer) for name, buffer in model.named_buffers() if name.endswith("layer_scalar")]
    for name, weights in [*model.named_parameters(), *scalars]:
        wide = 0.25 if weights.ndim > 1 else 0.15
        ones = 1.0 if name.endswith(("norm.weight", "layer_scalar")) else 0.0
        random = wide * torch.randn(weights.shape, generator=generator) + ones
        weights.copy_((random + ("fc_norm" in name)).half().float())
    if getattr(model, "d2t", None) is None:
        return list(range(VOCABULARY))
    ids = torch.randperm(VOCABULARY, generator=generator)[:CANDIDATES].sort().values
    model.d2t.copy_(ids - torch.arange(CANDIDATES))
    model.t2d.zero_()
    model.t2d[ids] = True
    return [int(token) for token in ids]


def levels(parents: list[int]) -> list[list[int]]:
    """Return the nodes of each level."""
    depths = [len(path_to(node, parents)) for node in range(len(parents))]
    return [[node for node, own in enumerate(depths) if own == depth] for depth in range(1, max(depths) + 1)]


def write(
    folder: Path,
    config: dict[str, Any],
    model: torch.nn.Module,
    ids: list[int],
    reference: Reference,
    *,
    depth_of_features: int,
    complete_tree: Callable[[torch.Tensor, torch.Tensor, list[int]], torch.Tensor] | None = None,
    drafts: bool = True,
) -> None:
    """Write one case."""
    torch.manual_seed(5)
    features = torch.randn(ROWS, depth_of_features * WIDTH)
    following = torch.randint(0, VOCABULARY, (ROWS,))
    expected = {"features": features, "following": following, "logits": reference(features, following, [])}
    if drafts:
        chain = torch.randint(0, VOCABULARY, (5,)).tolist()
        tree = [ids[index] for index in TREE[0]]
        paths = [path_to(node, TREE[1]) for node in range(len(tree))]
        below = [reference(features, following, [tree[node] for node in path])[-1] for path in paths]
        expected |= {"chain": torch.tensor(chain), "chain_logits": reference(features, following, chain)[ROWS:]}
        expected |= {"tree": torch.tensor(tree), "parents": torch.tensor(TREE[1]), "tree_logits": torch.stack(below)}
        if complete_tree is not None:
            together = complete_tree(features, following, tree)
            assert torch.allclose(together, expected["tree_logits"], atol=1e-5), "its tree is not its paths"
            expected["tree_logits"] = together
    left_out = ("verifier_", "rotary_emb")
    tensors = {name: value for name, value in model.state_dict().items() if not name.startswith(left_out)}
    write_folder(folder, config, tensors, expected)


if __name__ == "__main__":
    main()
