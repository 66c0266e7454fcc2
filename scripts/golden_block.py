"""Writes what the references of block drafters compute with tiny random weights, for `tests/inference/golden`.

Runs the references' own code on a CPU, in an environment with torch, transformers 5.10.2 (which DeepSpec asks for) and
safetensors that is not the project's. They are fetched by whoever runs this, those whose cases are wanted:

    git clone https://github.com/z-lab/dflash
    git clone https://github.com/deepseek-ai/DeepSpec
    git clone https://github.com/vllm-project/speculators
    git clone https://github.com/sgl-project/SpecForge
    git clone https://github.com/hao-ai-lab/JetSpec
    pip install --no-deps --target mlx-vlm mlx-vlm==0.7.10
    python scripts/golden_block.py --dflash dflash --deepspec DeepSpec --speculators speculators/src \\
        --specforge SpecForge --jetspec JetSpec --mlx-vlm mlx-vlm --out tests/inference/golden

DFlash 2 and XPress need speculators 0.9, which `pip install --no-deps --target` brings too; JetSpec was run at commit
2c7b3fa. mlx-vlm needs mlx and pillow beside it. Each file has a checkpoint as it would
be published (tensors under `weights.`, the configuration in the metadata), the target's hidden states and tables, and
for two blocks, the second after more text, the logits of a whole block along the tokens that the reference drafts
greedily: of all tokens, or of `candidates`.
"""

import argparse
import importlib.util
import json
import sys
import types
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from golden_files import GEMMA4, LLAMA3, YARN
from safetensors.torch import save_file
from torch.nn.attention.flex_attention import create_mask
from transformers import DynamicCache
from transformers.models.gemma4.configuration_gemma4 import Gemma4TextConfig
from transformers.models.qwen3.modeling_qwen3 import Qwen3Config, Qwen3RMSNorm, Qwen3RotaryEmbedding

HIDDEN = 16
VOCABULARY = 40
TEXT = 7
MORE = 4
TARGET_LAYERS = [0, 2]
TARGET_DEPTH = 4
BLOCK = 4
MASK = 39
REDUCED = 25
SPECULATORS = ("dflash", "dflash2", "dspark", "xpress")
# The token before the root, which XPress reads.
BEFORE = 1
Tensors = dict[str, Any]
# ids (1, block), hidden states (1, n, width) of new text, positions of both, cache -> logits and tokens of the block,
# perhaps the ids of the logits
Block = Callable[[Any, Any, Any, Any], tuple[Any, ...]]
QWEN3: dict[str, Any] = {
    "model_type": "qwen3", "hidden_size": HIDDEN, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": VOCABULARY, "rms_norm_eps": 1e-6,
    "hidden_act": "silu", "max_position_embeddings": 512, "attention_bias": False, "attention_dropout": 0.0,
    "layer_types": ["full_attention"] * 2, "sliding_window": None, "tie_word_embeddings": False,
}  # fmt: skip
PLAIN_ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}
READ = {"target_layer_ids": TARGET_LAYERS, "mask_token_id": MASK}
SIZES = {"block_size": BLOCK, "num_target_layers": TARGET_DEPTH}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("dflash", "deepspec", "speculators", "specforge", "jetspec", "mlx-vlm"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(exist_ok=True)
    torch.set_grad_enabled(False)
    sys.path[:0] = [str(path) for path in (args.deepspec, args.speculators) if path]
    if args.dflash:
        dflash_cases(args.dflash / "dflash" / "model.py", args.out)
    if args.deepspec:
        deepspec_cases(args.out)
        gemma_case(args.out)
    if args.speculators:
        without_package_code(args.speculators, "speculators", "models", *(f"models.{kind}" for kind in SPECULATORS))
        speculators_cases(args.out)
        dflash2_case_of_speculators(args.out)
        xpress_cases(args.out)
    if args.specforge:
        without_package_code(args.specforge, "specforge", "modeling", "modeling.draft", "algorithms.common")
        domino_cases(args.out)
    if args.jetspec:
        without_package_code(args.jetspec, "jetspec", "models")
        jetspec_cases(args.out)
    if args.mlx_vlm:
        without_package_code(args.mlx_vlm, "mlx_vlm", "models", "speculative", "speculative.drafters")
        dflash2_case_of_mlx_vlm(args.out)
        muse_glimmer_case(args.out)


def dflash_cases(module: Path, out: Path) -> None:
    spec = importlib.util.spec_from_file_location("dflash_model", module)
    assert spec is not None
    assert spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    cases: dict[str, dict[str, Any]] = {
        "dflash": PLAIN_ROPE,
        "dflash_yarn_bias": {"rope_parameters": YARN, "attention_bias": True},
        "dflash_llama3": {"rope_parameters": LLAMA3, "num_attention_heads": 2, "num_key_value_heads": 1},
    }
    for name, changes in cases.items():
        shape = {**QWEN3, **changes, **SIZES, "dflash_config": READ}
        model = randomised(reference.DFlashDraftModel(qwen3_config(shape)))
        write(out, name, model, shape, two_blocks(dflash_block(model, *tables())) | stored_tables())


def qwen3_config(shape: dict[str, Any]) -> Qwen3Config:
    return Qwen3Config(**shape, attn_implementation="eager")


@cache
def tables() -> tuple[Any, Any]:
    """Return the embeddings and the output layer of a target."""
    parts = torch.nn.Embedding(VOCABULARY, HIDDEN), torch.nn.Linear(HIDDEN, VOCABULARY, bias=False)
    table, head = (randomised(part, 7) for part in parts)
    return table, head


def stored_tables() -> Tensors:
    """Return the tables of the target as they are written."""
    table, head = tables()
    return {"target.embeddings": table.weight.half(), "target.output": head.weight.half()}


def dflash_block(model: Any, table: Any, head: Any) -> Block:
    """Return the function of a block as `dflash_generate` drafts it."""

    def block(ids: Any, hidden: Any, positions: Any, cache: Any) -> tuple[Any, Any]:
        rows = model(
            target_hidden=hidden,
            noise_embedding=table(ids),
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            is_causal=False,
        )[:, 1 - BLOCK :, :]
        logits = head(rows)
        return logits, logits.argmax(-1)

    return block


def deepspec_cases(out: Path) -> None:
    reference = import_module("deepspec.modeling.dspark.qwen3.modeling")
    for kind, confidence, rank in (("vanilla", True, 6), ("gated", False, 6), ("rnn", True, 6), ("none", False, 0)):
        shape = {
            **QWEN3,
            **PLAIN_ROPE,
            **SIZES,
            **READ,
            "num_anchors": 4,
            "enable_confidence_head": confidence,
            "confidence_head_with_markov": confidence,
            "markov_rank": rank,
            "architectures": ["Qwen3DSparkModel"],
        }
        if rank:
            shape["markov_head_type"] = kind
        model = randomised(reference.Qwen3DSparkModel(qwen3_config(shape)))
        write(out, f"dspark_{kind}", model, shape, two_blocks(drafts_of(model)))


def gemma_case(out: Path) -> None:
    reference = import_module("deepspec.modeling.dspark.gemma4.modeling")
    shape = GEMMA4 | {
        "hidden_size": HIDDEN, "intermediate_size": 24, "num_hidden_layers": 2, "global_head_dim": 8,
        "vocab_size": VOCABULARY, "layer_types": ["full_attention"] * 2,
        "num_anchors": 4, "enable_confidence_head": True, "confidence_head_with_markov": True, "markov_rank": 6,
        "markov_head_type": "vanilla", "architectures": ["Gemma4DSparkModel"], **SIZES, **READ,
    }  # fmt: skip
    config = Gemma4TextConfig(**shape, attn_implementation="eager")
    model = randomised(reference.Gemma4DSparkModel(config))
    write(out, "dspark_gemma4", model, shape, two_blocks(drafts_of(model)))


def drafts_of(model: Any) -> Block:
    """Return the function of a block as `deepspec.eval.dspark.draft_ops` drafts it."""

    def block(ids: Any, hidden: Any, positions: Any, cache: Any) -> tuple[Any, Any]:
        rows = model._forward_backbone(
            target_hidden_states=hidden,
            noise_embedding=model.embed_tokens(ids),
            position_ids=positions,
            attention_mask=None,
            past_key_values=cache,
            use_cache=True,
            is_causal=False,
        )
        tokens, logits = model.sample_draft_tokens(
            model.compute_logits(rows), first_prev_token_ids=ids[:, 0], hidden_states=rows
        )
        return logits, tokens

    return block


def two_blocks(block: Block) -> Tensors:
    """Draft behind `TEXT` tokens, then behind `MORE` more; the block's own rows are cut from the cache between."""
    generator = torch.Generator().manual_seed(11)
    hidden = torch.randn(1, TEXT + MORE, len(TARGET_LAYERS) * HIDDEN, generator=generator)
    cache = DynamicCache()
    outputs = {"hidden": hidden[0]}
    for number, (start, end) in enumerate(((0, TEXT), (TEXT, TEXT + MORE))):
        ids = torch.tensor([[5 + 9 * number, *[MASK] * (BLOCK - 1)]])
        positions = torch.arange(start, end + BLOCK)[None]
        logits, tokens, *candidates = block(ids, hidden[:, start:end], positions, cache)
        if (surplus := cache.get_seq_length() - end) > 0:
            cache.crop(-surplus)
        outputs |= {f"logits.{number}": logits[0], f"tokens.{number}": tokens[0], f"root.{number}": ids[0, :1]}
        outputs[f"position.{number}"] = torch.tensor([end])
        if candidates:
            outputs[f"candidates.{number}"] = candidates[0][0]
    return outputs


def speculators_cases(out: Path) -> None:
    """Their forward pass is that of training, so a block is put together here out of their layers and masks."""
    definitions = import_module("speculators.models.dflash.model_definitions")
    heads = import_module("speculators.models.dspark.model_definitions")
    cases: dict[str, dict[str, Any]] = {
        "speculators_dspark": {
            "speculators_model_type": "dspark",
            "markov_rank": 6,
            "markov_head_type": "gated",
            "sample_from_anchor": True,
        },
        "speculators_dflash": {"speculators_model_type": "dflash"},
        "speculators_both_ways": {"speculators_model_type": "dflash", "sliding_window_non_causal": True},
    }
    for name, changes in cases.items():
        config = qwen3_config(WINDOWED)
        model = speculators_model((definitions.Qwen3DFlashDecoderLayer(config, n) for n in range(2)), REDUCED)
        sizes = {"verifier_vocab_size": VOCABULARY, "draft_vocab_size": REDUCED, "hidden_size": HIDDEN}
        if rank := changes.get("markov_rank"):
            model.markov_head = heads.MarkovHead(**sizes, markov_rank=rank, head_type=changes["markov_head_type"])
        randomised(model)
        ids = draft_ids(REDUCED)
        shape = {
            **changes,
            **speculators_shape(WINDOWED, REDUCED),
            "speculators_config": {"verifier": {"name_or_path": "Qwen/Tiny", "architectures": ["Qwen3ForCausalLM"]}},
        }
        outputs = two_blocks(SpeculatorsBlock(model, config, ids, changes.get("sliding_window_non_causal", False)))
        outputs["weights.d2t"] = ids - torch.arange(REDUCED)
        outputs["weights.t2d"] = torch.isin(torch.arange(VOCABULARY), ids)
        write(out, name, model, shape, outputs)


WINDOWED = {
    **QWEN3, **PLAIN_ROPE, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 3,
    "use_sliding_window": True,
}  # fmt: skip


def draft_ids(size: int) -> Any:
    """Return the tokens that a drafter of `size` tokens can draft."""
    return torch.sort(torch.randperm(VOCABULARY, generator=torch.Generator().manual_seed(3))[:size]).values


def speculators_shape(layers: dict[str, Any], size: int) -> dict[str, Any]:
    """Return the settings that all drafters of speculators have, which draft `size` tokens."""
    read = [layer + 1 for layer in TARGET_LAYERS]
    shape = {"transformer_layer_config": layers, "draft_vocab_size": size, "block_size": BLOCK}
    return shape | {"aux_hidden_state_layer_ids": read, "mask_token_id": MASK}


def speculators_model(layers: Iterable[Any], size: int) -> Any:
    """Return the parts that all drafters of speculators have, which draft `size` tokens."""
    model: Any = torch.nn.Module()
    model.layers = torch.nn.ModuleList(layers)
    model.norm = Qwen3RMSNorm(HIDDEN)
    model.hidden_norm = Qwen3RMSNorm(HIDDEN)
    model.fc = torch.nn.Linear(len(TARGET_LAYERS) * HIDDEN, HIDDEN, bias=False)
    model.embed_tokens = torch.nn.Embedding(VOCABULARY, HIDDEN)
    model.lm_head = torch.nn.Linear(HIDDEN, size, bias=False)
    return model


class TextBlock:
    """A block behind all the text so far, which the reference reads again each time."""

    def __init__(self) -> None:
        self.text = torch.zeros(1, 0, len(TARGET_LAYERS) * HIDDEN)

    def __call__(self, ids: Any, hidden: Any, _positions: Any, _cache: Any) -> tuple[Any, ...]:
        self.text = torch.cat([self.text, hidden], 1)
        return self.draft(ids, self.text.shape[1])

    def draft(self, ids: Any, count: int) -> tuple[Any, ...]:
        raise NotImplementedError


class SpeculatorsBlock(TextBlock):
    """A block of one anchor at the end of the text, whose own hidden state nobody has: the masks leave it out."""

    def __init__(self, model: Any, config: Any, ids: Any, both_ways: bool) -> None:
        super().__init__()
        self.model = model
        self.ids = ids
        self.both_ways = both_ways
        self.rotary = Qwen3RotaryEmbedding(config)
        self.window = config.sliding_window

    def draft(self, ids: Any, count: int) -> tuple[Any, ...]:
        padded = torch.cat([self.text, torch.zeros_like(self.text[:, :1])], 1)
        context = self.model.hidden_norm(self.model.fc(padded))
        indices = torch.cat([torch.arange(count + 1), count + torch.arange(BLOCK)])[None]
        rows = self.model.embed_tokens(ids)
        positions = self.rotary(context, indices)
        for layer, window in zip(self.model.layers, (self.window, None), strict=True):
            mask = self.mask(count, window)
            rows = layer(hidden_states=rows, target_hidden=context, attention_mask=mask, position_embeddings=positions)
        rows = self.model.norm(rows)
        logits = self.model.lm_head(rows)
        if hasattr(self.model, "refiner_head"):
            return self.refined(logits, rows, ids[:, :1])
        if hasattr(self.model, "candidate_selector"):
            return selected(self.model.candidate_selector, logits[:, 1:], rows[:, 1:], ids[0, 0])
        if not hasattr(self.model, "markov_head"):
            return logits[:, 1:], self.ids[logits[:, 1:].argmax(-1)]
        drafted = [ids[0, 0]]
        for depth in range(BLOCK):
            before = torch.stack(drafted + [ids[0, 0]] * (BLOCK - len(drafted)))[None]
            corrected = logits + self.model.markov_head.block_bias(prev_token_ids=before, hidden_states=rows)
            drafted.append(self.ids[corrected[0, depth].argmax()])
        return corrected, torch.stack(drafted[1:])[None]

    def refined(self, logits: Any, rows: Any, root: Any) -> tuple[Any, Any]:
        """Return logits and tokens of as many Jacobi passes as the block is long: then nothing changes any more."""
        head = self.model.refiner_head
        first = int(not self.model.from_anchor)
        tokens = self.ids[logits.argmax(-1)]
        features = head.hidden_cache(rows)
        for _ in range(BLOCK):
            drafted = tokens[:, first:]
            before = torch.cat([torch.full((1, first), BEFORE), root, drafted[:, :-1]], 1)
            corrected = logits + head.block_bias(before, hcache=features)
            tokens = self.ids[corrected.argmax(-1)]
        return corrected[:, first:], tokens[:, first:]

    def mask(self, count: int, window: int | None) -> Any:
        masks = import_module("speculators.models.dflash.attention")
        documents = torch.zeros(count + 1, dtype=torch.long)
        anchors = torch.tensor([count])
        see, queries, keys = masks.create_anchor_block_mask_mod(
            documents, count + 1, anchors, BLOCK, window, self.both_ways
        )
        seen = create_mask(see, None, None, queries, keys, "cpu")
        return torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)


def selected(selector: Any, logits: Any, rows: Any, root: Any) -> tuple[Any, Any, Any]:
    """Return scores, tokens and candidates of a block along DFlash 2's greedy path."""
    scores = []
    drafted = [root]
    candidates = []
    for depth in range(logits.shape[1]):
        ids, scored = selector.select(logits[:, depth], rows[:, depth], drafted[-1][None])
        drafted.append(ids[0, scored[0].argmax()])
        scores.append(scored[0])
        candidates.append(ids[0])
    return torch.stack(scores)[None], torch.stack(drafted[1:])[None], torch.stack(candidates)[None]


def xpress_cases(out: Path) -> None:
    """One in the layout of speculators, and one with the names that vLLM and the published checkpoints have."""
    definitions = import_module("speculators.models.dflash.model_definitions")
    heads = import_module("speculators.models.xpress.model_definitions")
    names = {
        "token_embed": "w1", "readout": "w2", "mix_l": "mix.L", "mlp_gate": "mlp.gate_proj", "mlp_up": "mlp.up_proj",
        "mlp_down": "mlp.down_proj", "down_h": "down_h", "down_g": "down_g", "in_proj": "in_proj",
    }  # fmt: skip
    layers = {**QWEN3, **PLAIN_ROPE}
    config = qwen3_config(layers)
    for name, from_anchor, size in (("speculators_xpress", True, REDUCED), ("xpress", False, VOCABULARY)):
        model = speculators_model((definitions.Qwen3DFlashDecoderLayer(config, n) for n in range(2)), size)
        sizes = {"verifier_vocab_size": VOCABULARY, "draft_vocab_size": size, "hidden_size": HIDDEN}
        model.refiner_head = heads.XPressRefinerHead(**sizes, block_size=BLOCK, rank=6, mlp_ratio=2)
        model.from_anchor = from_anchor
        randomised(model)
        ids = draft_ids(size)
        block = SpeculatorsBlock(model, config, ids, both_ways=True)
        block.window = None
        outputs = two_blocks(block)
        shape: dict[str, Any] = {"xpress_rank": 6, "block_size": BLOCK, "sample_from_anchor": from_anchor}
        weights = model.state_dict()
        if from_anchor:
            shape |= {"speculators_model_type": "xpress", "xpress_mlp_ratio": 2, "num_jacobi_passes": BLOCK}
            shape |= speculators_shape(layers, size)
            outputs["weights.d2t"] = ids - torch.arange(size)
        else:
            shape |= {**layers, **SIZES, "architectures": ["Qwen3XPressModel"], "dflash_config": READ}
            shape |= {"xpress_mlp_hidden": 12, "xpress_num_passes": BLOCK, "xpress_block_size": BLOCK}
            tables = {"target.embeddings": weights.pop("embed_tokens.weight")}
            outputs |= {**tables, "target.output": weights.pop("lm_head.weight")}
            outputs |= {key: value.half() for key, value in outputs.items() if key.startswith("target.")}
            for ours, theirs in names.items():
                for key in [key for key in weights if key.startswith(f"refiner_head.{ours}")]:
                    weights[key.replace(f"refiner_head.{ours}", f"xpress_head.{theirs}")] = weights.pop(key)
        write(out, name, dict(weights), shape, outputs)


def jetspec_cases(out: Path) -> None:
    models = import_module("jetspec.models.draft_head")
    drafters = import_module("jetspec.draft_head_adapter")
    table, head = tables()
    target = types.SimpleNamespace(model=types.SimpleNamespace(embed_tokens=table), lm_head=head)
    for name, shifted in (("jetspec", False), ("jetspec_shifted", True)):
        inner = {"causal_head": True, **READ}
        shape = {**QWEN3, **PLAIN_ROPE, **SIZES, "architectures": ["DFlashDraftModel"], "dflash_config": inner}
        model = randomised(models.DFlashDraftModel(qwen3_config(shape)))
        drafter = drafters.DraftHeadTreeDrafter(model, target, BLOCK, TARGET_LAYERS, shifted)
        # The authors pass it beside the configuration.
        shape["dflash_config"] = inner | ({"draft_shift": True} if shifted else {})
        write(out, name, model, shape, two_blocks(JetSpecBlock(drafter)) | stored_tables())


class JetSpecBlock(TextBlock):
    """The drafter has a cache of its own."""

    def __init__(self, drafter: Any) -> None:
        super().__init__()
        self.drafter = drafter

    def draft(self, ids: Any, _count: int) -> tuple[Any, Any]:
        logits = self.drafter.propose_logits(ids[:, :1], BLOCK - 1, self.text)
        return logits, logits.argmax(-1)


DFLASH2 = {"conv_kernel_size": 2, "conv_group_size": 4, "selector_rank": 6, "selector_top_k": 5}


def dflash2_case_of_speculators(out: Path) -> None:
    definitions = import_module("speculators.models.dflash2.model_definitions")
    config = qwen3_config(WINDOWED)
    sizes = {"block_size": BLOCK, "conv_kernel_size": 2, "conv_group_size": 4}
    layers = (definitions.Qwen3DFlash2DecoderLayer(config, n, **sizes) for n in range(2))
    model = speculators_model(layers, VOCABULARY)
    model.candidate_selector = definitions.CandidateSelector(
        vocab_size=VOCABULARY, hidden_size=HIDDEN, rank=DFLASH2["selector_rank"], top_k=DFLASH2["selector_top_k"]
    )
    randomised(model)
    shape = {
        **DFLASH2,
        **speculators_shape(WINDOWED, VOCABULARY),
        "speculators_model_type": "dflash2",
        "sliding_window_non_causal": True,
        "sample_from_anchor": False,
    }
    block = SpeculatorsBlock(model, config, torch.arange(VOCABULARY), True)
    write(out, "speculators_dflash2", model, shape, two_blocks(block))


def dflash2_case_of_mlx_vlm(out: Path) -> None:
    mx = import_module("mlx.core")
    reference = import_module("mlx_vlm.speculative.drafters.dflash2")
    cut = {"final_logit_softcapping": 4.0, "output_multiplier": 0.7, "input_embedding_scale": 1.5}
    shape = {
        **QWEN3,
        **PLAIN_ROPE,
        "is_causal": False,
        "num_target_layers": TARGET_DEPTH,
        "architectures": ["DFlash2DraftModel"],
        "dflash_config": {**DFLASH2, **cut, **READ, "block_size": BLOCK},
    }
    case = MlxCase(reference.DFlash2DraftModel(reference.ModelConfig.from_dict(shape)))
    model = case.model
    top = DFLASH2["selector_top_k"]

    def block(ids: Any, hidden: Any, _positions: Any, _cache: Any) -> tuple[Any, ...]:
        rows = case.rows(ids, hidden)
        logits = model._logits(rows)
        scores = []

        def proposed(scored: Any) -> Any:
            scores.append(scored)
            return mx.argmax(scored, axis=-1)

        sampler = types.SimpleNamespace(sample_proposal=proposed)
        tokens = model.candidate_selector.select(rows, logits, mx.array(ids[:, 0].numpy()), sampler)
        candidates = mx.argpartition(logits, -top, axis=-1)[..., -top:]
        return tuple(
            torch.tensor(np.array(each)) for each in (mx.stack(scores, 1), tokens.astype(mx.int64), candidates)
        )

    case.write(out, "dflash2", shape, block)


def muse_glimmer_case(out: Path) -> None:
    mx = import_module("mlx.core")
    reference = import_module("mlx_vlm.speculative.drafters.muse_glimmer_assistant")
    shape = {
        **{name: value for name, value in QWEN3.items() if name not in ("tie_word_embeddings", "vocab_size")},
        **PLAIN_ROPE,
        "model_type": "muse_glimmer_assistant",
        "layer_types": ["sliding_attention"] * 2,
        "sliding_window": 4,
        "block_size": BLOCK,
        **READ,
    }
    # The published configuration lacks these; its target is larger than a golden file should be.
    shape |= {"vocab_size": VOCABULARY, "num_target_layers": TARGET_DEPTH}
    case = MlxCase(reference.Model(reference.ModelConfig.from_dict(shape)))

    def block(ids: Any, hidden: Any, _positions: Any, _cache: Any) -> tuple[Any, ...]:
        logits = case.model._logits(case.rows(ids, hidden))
        tokens = mx.argmax(logits, axis=-1).astype(mx.int64)
        return tuple(torch.tensor(np.array(each)) for each in (logits, tokens))

    case.write(out, "muse_glimmer", shape, block)


class MlxCase:
    """A drafter of mlx-vlm with random weights and tables of a target."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.generator = np.random.default_rng(5)
        mx, nn, utils = (import_module(f"mlx.{part}") for part in ("core", "nn", "utils"))
        self.weights = {name: self.drawn(value.shape) for name, value in utils.tree_flatten(model.parameters())}
        model.load_weights([(name, mx.array(value.astype(np.float32))) for name, value in self.weights.items()])
        self.table = self.drawn((VOCABULARY, HIDDEN))
        self.head = self.drawn((VOCABULARY, HIDDEN))
        model.embed_tokens = nn.Embedding(VOCABULARY, HIDDEN)
        model.lm_head = nn.Linear(HIDDEN, VOCABULARY, bias=False)
        model.embed_tokens.weight = mx.array(self.table.astype(np.float32))
        model.lm_head.weight = mx.array(self.head.astype(np.float32))
        self.caches = model.make_cache()

    def drawn(self, shape: tuple[int, ...]) -> Any:
        spread = 0.35 if len(shape) > 1 else 0.2
        return (spread * self.generator.standard_normal(shape) + (len(shape) == 1)).astype(np.float16)

    def rows(self, ids: Any, hidden: Any) -> Any:
        """Return the hidden states of the tokens that are drafted, (1, block - 1, width)."""
        mx = import_module("mlx.core")
        return self.model._hidden(mx.array(ids.numpy()), mx.array(hidden.numpy()), self.caches)[:, 1:]

    def write(self, out: Path, name: str, shape: dict[str, Any], block: Block) -> None:
        outputs = two_blocks(block)
        outputs |= {"target.embeddings": torch.tensor(self.table), "target.output": torch.tensor(self.head)}
        published = {key.removesuffix(".weight") if "codebook" in key else key: at for key, at in self.weights.items()}
        write(out, name, {key: torch.tensor(value) for key, value in published.items()}, shape, outputs)


def domino_cases(out: Path) -> None:
    reference = import_module("specforge.modeling.draft.domino")
    for name, shifted, prefix, kinds in (
        ("domino", True, 1, ["full_attention", "full_attention"]),
        ("domino_masks", False, 0, ["sliding_attention", "full_attention"]),
    ):
        shape = {
            **QWEN3,
            **PLAIN_ROPE,
            "layer_types": kinds,
            "sliding_window": 5,
            "use_sliding_window": True,
            **SIZES,
            "architectures": ["DominoDraftModel"],
            "emb_dim": 6,
            "dflash_config": {
                **READ,
                "projector_type": "domino",
                "pure_draft_prefix_len": prefix,
                "emb_dim": 6,
                "gru_hidden_dim": 10,
                "shift_label": shifted,
            },
        }
        model = randomised(reference.DominoDraftModel(qwen3_config(shape)))
        write(out, name, model, shape, two_blocks(DominoBlock(model, *tables())) | stored_tables())


class DominoBlock(TextBlock):
    """A block with the masks of training: those of generation leave windows out."""

    def __init__(self, model: Any, table: Any, head: Any) -> None:
        super().__init__()
        self.model = model
        self.table = table
        self.head = head

    def draft(self, ids: Any, count: int) -> tuple[Any, Any]:
        masks = import_module("specforge.algorithms.common.dflash_family_model")
        anchor = torch.tensor([[count]]), torch.ones(1, 1, dtype=torch.bool), count, BLOCK, "cpu"
        rows = self.model(
            target_hidden=self.text,
            noise_embedding=self.table(ids),
            position_ids=torch.arange(count + BLOCK)[None],
            attention_mask={
                "full_attention": masks.create_dflash_sdpa_mask(*anchor),
                "sliding_attention": masks.create_dflash_sdpa_mask(*anchor, self.model.config.sliding_window),
            },
        )
        base = self.head(rows)
        tokens = ids.clone()
        logits = []
        drafted = []
        shift = int(self.model.shift_label)
        for place in range(1 - shift, BLOCK):
            corrected = self.model.apply_logits_head(
                base[:, None], prev_token_embeddings=self.table(tokens)[:, None], hidden_states=rows[:, None]
            )
            logits.append(corrected[0, 0, place])
            drafted.append(logits[-1].argmax())
            if place + shift < BLOCK:
                tokens[0, place + shift] = drafted[-1]
        return torch.stack(logits)[None], torch.stack(drafted)[None]


def without_package_code(folder: Path, package: str, *parts: str) -> None:
    """Import a package's modules without the code of its packages, which loads and registers everything."""
    for name in (package, *(f"{package}.{part}" for part in parts)):
        module = types.ModuleType(name)
        module.__path__ = [str(folder.joinpath(*name.split(".")))]
        sys.modules[name] = module


def randomised(model: Any, seed: int = 0) -> Any:
    """Give a model random weights that 16 bits hold exactly: matrices around 0, norms around 1."""
    generator = torch.Generator().manual_seed(seed)
    values = [*model.parameters(), *(buffer for name, buffer in model.named_buffers() if "layer_scalar" in name)]
    for value in values:
        spread = 0.35 if value.ndim > 1 else 0.2
        drawn = spread * torch.randn(value.shape, generator=generator)
        value.copy_((drawn + (value.ndim == 1)).half().float())
    return model.eval()


def write(out: Path, name: str, model: Any, config: dict[str, Any], outputs: Tensors) -> None:
    held = model if isinstance(model, dict) else model.state_dict()
    weights = {f"weights.{key}": value.half() for key, value in held.items() if "inv_freq" not in key}
    tensors = {key: value.contiguous() for key, value in {**weights, **outputs}.items()}
    save_file(tensors, out / f"block_{name}.safetensors", {"config": json.dumps(config)})


if __name__ == "__main__":
    main()
