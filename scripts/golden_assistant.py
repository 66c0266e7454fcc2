"""Writes the golden files of Gemma 4's assistant: what transformers computes with small random weights.

    python scripts/golden_assistant.py OUT                  # with torch (a CPU is enough) and transformers 5.23
    python scripts/golden_assistant.py OUT --mlx-vlm        # compares the files with mlx-vlm 0.7.10

Each runs in an environment of its own, which neither rdchat nor its tests need. OUT is tests/inference/golden. Each
case gets a folder with the assistant as it is published, a folder `target` with a small Gemma 4 (config.json and
weights under their published names, in 16 bits, so that they are small; the reference computes with the same values in
32 bits), and expected.npz:

    text (n,), chain (m,)                    token ids; a root is a token of the text, and the chain is drafted below it
    roots (r,)                               positions of the roots: before the sliding window is full, and after
    target_logits (r, vocabulary)            the target's, at the token before each root
    logits (r, m + 1, vocabulary)            the assistant's, below each root and below each token of the chain

A sliding layer is given the rows that the target itself would see from the root: one less than its window.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from golden_files import draw, write_folder

TOKENS = 32
WINDOW = 8
ROOTS = (5, 9, 23)
FULL = "full_attention"
SLIDING = "sliding_attention"
ROPE = {
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
    SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
}
COMMON: dict[str, Any] = {
    "model_type": "gemma4_text", "vocab_size": TOKENS, "rms_norm_eps": 1e-6, "sliding_window": WINDOW,
    "rope_parameters": ROPE, "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 512,
    "vocab_size_per_layer_input": TOKENS, "attention_bias": False, "use_double_wide_mlp": False,
    "enable_moe_block": False, "head_dim": 8, "global_head_dim": 16, "num_attention_heads": 4,
    "tie_word_embeddings": True, "pad_token_id": 0,
}  # fmt: skip
TARGET = COMMON | {"hidden_size": 32, "intermediate_size": 48, "final_logit_softcapping": 30.0}
ASSISTANT = COMMON | {
    "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 4, "num_kv_shared_layers": 4,
    "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 0,
    "layer_types": [SLIDING, SLIDING, SLIDING, FULL],
}  # fmt: skip
# Both need these.
HEADS = ("num_key_value_heads", "num_global_key_value_heads", "attention_k_eq_v")
# The target's and the assistant's settings. As E2B and E4B have it, and as 26B and 31B do.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "ordered": (
        {
            "num_hidden_layers": 6, "num_kv_shared_layers": 2, "num_key_value_heads": 1, "use_double_wide_mlp": True,
            "layer_types": [SLIDING, FULL, SLIDING, FULL, SLIDING, FULL], "hidden_size_per_layer_input": 8,
        },
        {"use_ordered_embeddings": True, "num_centroids": 8, "centroid_intermediate_top_k": 3},
    ),
    "dense": (
        {
            "num_hidden_layers": 4, "num_kv_shared_layers": 0, "num_key_value_heads": 2,
            "num_global_key_value_heads": 1, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0,
            "layer_types": [SLIDING, SLIDING, SLIDING, FULL],
        },
        {"use_ordered_embeddings": False},
    ),
}  # fmt: skip


def main() -> None:
    """Write all cases, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--mlx-vlm", action="store_true")
    options = parser.parse_args()
    for name, settings in CASES.items():
        folder = options.out / f"assistant_{name}"
        if options.mlx_vlm:
            compare(folder)
        else:
            write(folder, *settings)


def write(folder: Path, target_settings: dict[str, Any], settings: dict[str, Any]) -> None:
    """Write one case."""
    import torch  # noqa: PLC0415  mlx-vlm's environment has none
    from transformers.models.gemma4 import Gemma4ForCausalLM, Gemma4TextConfig  # noqa: PLC0415
    from transformers.models.gemma4_assistant import (  # noqa: PLC0415
        Gemma4AssistantConfig,
        Gemma4AssistantForCausalLM,
    )

    Gemma4TextConfig.kv_sharing_modes = property(sharing_modes)
    generator = torch.Generator().manual_seed(11)

    def randomised(model: Any) -> Any:
        for name, weights in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith(("inv_freq", "embed_scale", "token_ordering")):
                continue
            draw(weights, float(weights.ndim == 1), generator)
        return model.eval()

    with torch.no_grad():
        written = TARGET | target_settings
        layers = ASSISTANT | {name: value for name, value in written.items() if name in HEADS}
        target_config = Gemma4TextConfig(**written)
        config = Gemma4TextConfig(**layers)
        both = Gemma4AssistantConfig(text_config=config, backbone_hidden_size=written["hidden_size"], **settings)
        for each in (target_config, config, both):
            each._attn_implementation = "eager"
        target = randomised(Gemma4ForCausalLM(target_config))
        assistant = randomised(Gemma4AssistantForCausalLM(both))
        if assistant.masked_embedding is not None:
            order = torch.randperm(TOKENS, generator=generator)
            assistant.masked_embedding.token_ordering.copy_(order)
        text = torch.randint(3, TOKENS, (ROOTS[-1] + 1,), generator=generator)
        chain = torch.randint(3, TOKENS, (4,), generator=generator)
        target_logits = []
        logits = []
        for root in ROOTS:
            made = target.model(text[None, :root], return_shared_kv_states=True)
            target_logits.append(target(text[None, :root]).logits[0, -1])
            rows = dict(made.shared_kv_states)
            rows[SLIDING] = tuple(part[:, :, -(WINDOW - 1) :] for part in rows[SLIDING])
            hidden = made.last_hidden_state[:, -1:]
            levels = []
            for token in [text[root], *chain]:
                embedding = target.model.embed_tokens(token.reshape(1, 1))
                output = assistant(
                    inputs_embeds=torch.cat([embedding, hidden], dim=-1),
                    position_ids=torch.tensor([[root]]),
                    shared_kv_states=rows,
                )
                hidden = output.last_hidden_state
                levels.append(output.logits[0, 0])
            logits.append(torch.stack(levels))
        content = {
            "model_type": "gemma4_assistant", "backbone_hidden_size": written["hidden_size"],
            "tie_word_embeddings": True, "text_config": layers, **settings,
        }  # fmt: skip
        expected = {
            "text": text, "chain": chain, "roots": torch.tensor(ROOTS), "target_logits": torch.stack(target_logits),
            "logits": torch.stack(logits),
        }  # fmt: skip
        for part, model, config, computed in (
            (folder, assistant, content, expected), (folder / "target", target, written, {}),
        ):  # fmt: skip
            state = {name: value for name, value in model.state_dict().items() if name != "lm_head.weight"}
            write_folder(part, config, state, computed)


def sharing_modes(config: Any) -> list[str | None]:
    """Return which layers give their keys and values to others, and which take them.

    The property of transformers 5.23 refuses an assistant, none of whose layers has its own, and names no layer of a
    target whose layers all have their own.
    """
    own = config.num_hidden_layers - config.num_kv_shared_layers
    last = {kind: number for number, kind in enumerate(config.layer_types[:own])}
    stored = ["store" if number in last.values() else None for number in range(own)]
    return [*stored, *["reuse"] * config.num_kv_shared_layers]


def compare(folder: Path) -> None:
    """Print how far mlx-vlm's assistant is from one case, with the rows and hidden states of its own target.

    It is called with transformers' position; by itself it drafts from the position before.
    """
    import mlx.core as mx  # noqa: PLC0415
    from mlx.utils import tree_map  # noqa: PLC0415
    from mlx_vlm.models.gemma4.config import TextConfig  # noqa: PLC0415
    from mlx_vlm.models.gemma4.language import LanguageModel  # noqa: PLC0415
    from mlx_vlm.speculative.drafters.gemma4_assistant import Model, ModelConfig  # noqa: PLC0415

    expected = np.load(folder / "expected.npz")
    assistant = Model(ModelConfig.from_dict(json.loads((folder / "config.json").read_text())))
    target = LanguageModel(TextConfig.from_dict(json.loads((folder / "target" / "config.json").read_text())))
    for model, path in ((assistant, folder), (target, folder / "target")):
        weights = model.sanitize(mx.load(str(path / "model.safetensors")))
        model.load_weights(list(weights.items()), strict=False)
        model.update(tree_map(lambda x: x.astype(mx.float32) if mx.issubdtype(x.dtype, mx.floating) else x,
                              model.parameters()))  # fmt: skip
        model.eval()
    assistant.bind(target)
    text = mx.array(expected["text"])
    worst = 0.0
    for root, reference in zip(expected["roots"].tolist(), expected["logits"], strict=True):
        hidden_sink: list[Any] = []
        rows: dict[str, Any] = {}
        target(text[None, :root], hidden_sink=hidden_sink, shared_kv_sink=rows)
        rows[SLIDING] = tuple(part[:, :, -(WINDOW - 1) :] for part in rows[SLIDING])
        hidden = target.speculative_draft_hidden(hidden_sink[-1][:, -1:])
        assistant.set_shared_kv(rows, root, position=root)
        for token, logits in zip([int(expected["text"][root]), *expected["chain"].tolist()], reference, strict=True):
            embedding = target.model.embed_tokens(mx.array([[token]])) * target.model.embed_scale
            hidden, mine = assistant(mx.concatenate([embedding, hidden], -1), rows, mx.array([[root]]))
            worst = max(worst, float(np.abs(np.array(mine[0, 0]) - logits).max()))
    print(f"{folder.name}: at most {worst:.1e} from mlx-vlm")


if __name__ == "__main__":
    main()
