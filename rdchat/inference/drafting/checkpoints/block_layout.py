"""Reads block drafters as others publish them: DFlash, DFlash 2, DSpark, Domino, JetSpec and XPress.

The layouts share the names of their tensors and differ in their `config.json`:

    z-lab       a Qwen3 configuration with `dflash_config`, for DFlash and DFlash 2; the target's tables; the first mask
                drafts the first token
    DeepSpec    the same, or Gemma 4's, with `target_layer_ids` and `markov_*`; tables of its own; the root drafts too
    SpecForge   z-lab's, or the same with DSpark's or Domino's settings in `dflash_config`; the target's tables; in a
                Domino, `shift_label` tells whether the root drafts
    speculators `transformer_layer_config` inside; tables of its own, perhaps for a part of the tokens (`d2t`);
                `sample_from_anchor`; layers are numbered by their input, not by their output
    JetSpec     z-lab's, with `causal_head`; `draft_shift`, an argument in the authors' code, where the root drafts
    XPress      z-lab's or speculators', with `xpress_*`
    Meta        the assistant of Muse Glimmer is a DFlash with names of its own for `fc` and `hidden_norm`

A Hugging Face configuration has dozens of settings that no drafter uses, so unknown settings are allowed. Four things
are refused: unknown values of known settings, some settings known to change the computation, unknown parts of
`dflash_config`, and unknown tensors, because a different computation has tensors of its own. Code named in `auto_map`
is never run. Tested with random weights against the references' own code: no published drafter was at hand, and nothing
was tried on a Mac.
"""

from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from rdchat.inference.drafting.checkpoints.checkpoint import NEWER_HINT, Checkpoint, Layout
from rdchat.inference.drafting.checkpoints.head_settings import (
    Parts,
    Settings,
    check_network,
    decoder_settings,
    load_network,
)
from rdchat.inference.drafting.heads.block_head import BoundBlockHead
from rdchat.inference.drafting.heads.block_network import BlockConfig, Markov
from rdchat.inference.drafting.heads.head import HeadKind

_DFLASH_SETTINGS = {
    "block_size", "mask_token_id", "target_layer_ids", "num_target_layers", "causal", "draft_window_size",
    "runtime_block_size",
    # SpecForge's DSpark keeps its own settings here; those of its confidence head follow from the tensors
    "projector_type", "attention_mode", "markov_rank", "markov_head_type", "confidence_head_alpha",
    "enable_confidence_head", "confidence_head_with_markov", "sample_from_anchor",
    "emb_dim", "gru_hidden_dim", "pure_draft_prefix_len", "shift_label", "causal_head", "draft_shift",
    "conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k", "output_multiplier",
    "input_embedding_scale", "final_logit_softcapping", "use_swa", "swa_window_size",
    # these concern other programs' choice of how much to draft
    "block_size_policy", "dflash_initial_block_size", "prefer_requested_block_size",
}  # fmt: skip
# Tensors and settings by which the kinds are told apart.
_DOMINO = ("domino", "causal_v5")
_GRU = "prefix_gru.weight_ih_l0.weight"
_SELECTOR = "candidate_selector.hidden_projection.weight"
_RANK = "selector_rank"
_REFINER = "refiner_head.mix_l"
_REFINER_RANK = "xpress_rank"
_SHIFT = "draft_shift"
_SOFTCAP = "final_logit_softcapping"
# Settings that change the computation in ways rdchat does not support.
_ASK_FOR_MORE = {
    "gating", "quantization", "enable_moe_block", "hidden_size_per_layer_input", "attention_value_scale",
}  # fmt: skip
# Meta's assistant, and what its configuration leaves to the class in transformers.
_MUSE = "muse_glimmer_assistant"
_MUSE_DEFAULTS = {"vocab_size": 202_048, "num_target_layers": 52, "is_causal": False}
_MAX_BLOCK = 256
# DSpark's confidence head is not used; its size depends on its inputs.
_CONFIDENCE_HEAD = {"confidence_head.proj.weight", "confidence_head.proj.bias"}
_DSPARK = "dspark"
# Settings that say whether the tokens of a block see only earlier ones; the first that is given counts. JetSpec's code
# reads `causal_head` alone.
_CAUSAL = ("causal_head", "is_causal", "causal")
# Settings at the top of the speculators layout that replace those of the layers, as in vLLM.
_WINDOWS = ("layer_types", "use_sliding_window", "sliding_window")


def _parts_of(checkpoint: Checkpoint) -> Parts:
    """Return where a configuration has its settings, in any of the layouts; see `Parts`.

    In the speculators layout, the layers' settings stand in `transformer_layer_config`, and the kind's own at the top.
    In the others, all stand at the top, and `dflash_config` adds the kind's own to them.
    """
    top = Settings(checkpoint, checkpoint.config)
    if "transformer_layer_config" in top.data:
        layers = top.within("transformer_layer_config")
        overrides = {name: top.data[name] for name in _WINDOWS if top.data.get(name) is not None}
        return Parts(top, Settings(checkpoint, {**layers.data, **overrides}), top, True)
    if top.data.get("model_type") == _MUSE:
        top = Settings(checkpoint, {**_MUSE_DEFAULTS, **top.data})
    inner = top.within("dflash_config")
    inner.refuse_others(_DFLASH_SETTINGS)
    return Parts(top, top, Settings(checkpoint, {**top.data, **inner.data}), False)


def matches(config: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """Return whether a checkpoint is a block drafter: it has a block size and the layers that read the context."""
    inner = config.get("dflash_config")
    sized = "block_size" in config or (isinstance(inner, dict) and "block_size" in inner)
    return sized and ("fc.weight" in tensors or "hidden_norm.weight" in tensors)


def block_config(checkpoint: Checkpoint, _depth: int | None) -> BlockConfig:
    """Return the network that a checkpoint describes, and check that its tensors are those of that network.

    Raises:
        ModelError: If a setting is missing or unknown, or a tensor missing, unknown, or of another shape or type.
    """
    _refuse_dspine(checkpoint)
    parts = _parts_of(checkpoint)
    tensors = checkpoint.tensors
    top = parts.top
    layers = parts.layers
    block = parts.own
    for settings in (top, layers):
        settings.refuse(_ASK_FOR_MORE)
    markov, rank = _markov(block)
    sizes = decoder_settings(checkpoint, layers)
    gemma = sizes["gemma"]
    activation = "gelu_pytorch_tanh" if gemma else "silu"
    # `decoder_settings` has checked the number.
    windows, causal = _windows(parts, layers.size("num_hidden_layers"))
    layers.word("hidden_activation" if gemma else "hidden_act", activation, [activation])
    domino = _GRU in tensors or block.data.get("projector_type") in _DOMINO
    known = _DOMINO if domino else (_DSPARK,)
    block.word("projector_type", known[0], known)
    block.word("attention_mode", "gqa", ["gqa", "mha"])
    from_anchor = block.flag("sample_from_anchor", _drafts_from_anchor(parts))
    if markov is Markov.RNN and not from_anchor:
        raise block.wrong("sample_from_anchor")
    shifted = block.flag(_SHIFT, False)
    if shifted and not (from_anchor and all(causal)):
        raise block.wrong(_SHIFT)
    config = BlockConfig(
        **sizes,
        **(_domino(block) if domino else {}),
        **(_refiner(block) if _REFINER in tensors or block.data.get(_REFINER_RANK) else {}),
        **(_selector(block) if _SELECTOR in tensors or block.data.get(_RANK) else {}),
        draft_vocabulary_size=top.size("draft_vocab_size", checkpoint.listed_tokens or sizes["vocabulary_size"]),
        # Qwen3's modules take no part of a head, so a partial rotary factor is the target's, copied by trainers
        rope=layers.rope("full_attention", complete_heads=not gemma and not parts.speculators),
        windows=windows,
        causal=causal,
        # In the speculators layout, all tokens of a block have the root's window.
        rolling=not parts.speculators,
        target_layers=_target_layers(parts),
        target_width=sizes["hidden_size"],
        target_depth=block.target_depth,
        # The last token of a shifted block drafts nothing, and the others do not see it, so it is left out. A block
        # needs a token that drafts: 2 are the least where one of them, the shifted block's last or a root, does not.
        block_size=block.size("block_size", minimum=1 + (shifted or not from_anchor)) - shifted,
        mask_token=block.size("mask_token_id", minimum=0),
        from_anchor=from_anchor,
        markov=markov,
        markov_rank=rank,
        output_scale=block.number("output_multiplier", 1.0),
        softcap=_softcap(parts),
    )
    _check_config(checkpoint, block, config)
    return config


BLOCK = Layout(HeadKind.BLOCK, matches, block_config, partial(load_network, BoundBlockHead))


def _check_config(checkpoint: Checkpoint, block: Settings, config: BlockConfig) -> None:
    """Refuse sizes that do not fit together, two kinds of correction, and tensors of another network."""
    if config.block_size > _MAX_BLOCK:
        raise block.wrong("block_size")
    if config.taps > config.block_size:
        raise block.wrong("conv_kernel_size")
    if config.channels and config.hidden_size % config.channels:
        raise block.wrong("conv_group_size")
    if config.taps and config.gemma:
        raise checkpoint.error("rdchat does not know convolutions in layers of Gemma 4", NEWER_HINT)
    if config.selected > config.vocabulary_size:
        raise block.wrong("selector_top_k")
    if config.selected and config.reduced:
        raise checkpoint.error("its candidate selector is for all tokens, but it drafts only a part of them")
    if (config.markov is not Markov.NONE) + sum(map(bool, (config.gru_size, config.selected, config.refiner_rank))) > 1:
        raise checkpoint.error("rdchat does not know drafters with two kinds of corrections", NEWER_HINT)
    if config.mask_token >= config.vocabulary_size:
        raise block.wrong("mask_token_id")
    check_network(checkpoint, config, _CONFIDENCE_HEAD)


def _windows(parts: Parts, count: int) -> tuple[tuple[int | None, ...], tuple[bool, ...]]:
    """Return how far each layer sees before the root, and whether its tokens see only earlier ones in the block.

    A sliding layer's window includes the token itself, except in the speculators layout, where it ends at the root, and
    in Meta's assistant. With `use_swa`, NVIDIA's exports have a window on all layers, without another meaning.
    Sliding layers are causal within a block, unless the settings say otherwise: in the speculators layout
    `sliding_window_non_causal`, which a DFlash 2 has by default; elsewhere the first of `_CAUSAL`, for all layers.
    """
    layers = parts.layers
    block = parts.own
    kinds = layers.layer_kinds(count)
    # Qwen's configurations may name a window that is not used.
    used = layers.flag("use_sliding_window", True)
    sliding = [used and kind == "sliding_attention" for kind in kinds]
    counts_itself = not parts.speculators and layers.data.get("model_type") != _MUSE
    width = layers.size("sliding_window") - counts_itself if any(sliding) else None
    full_width = None if block.data.get("draft_window_size") is None else block.size("draft_window_size")
    if block.flag("use_swa", False) and not any(sliding):
        full_width = block.size("swa_window_size", layers.size("sliding_window", 0, minimum=0)) - counts_itself
    if parts.speculators:
        one_way = not block.flag("sliding_window_non_causal", _SELECTOR in parts.top.checkpoint.tensors)
        causal = tuple(slides and one_way for slides in sliding)
    else:
        key = next((name for name in _CAUSAL if block.data.get(name) is not None), None)
        causal = tuple(slides if key is None else block.flag(key, False) for slides in sliding)
    return tuple(width if slides else full_width for slides in sliding), causal


def _markov(block: Settings) -> tuple[Markov, int]:
    """Return the kind of DSpark's correction and its rank; 0 without it."""
    rank = block.size("markov_rank", 0, minimum=0)
    if not rank:
        return Markov.NONE, 0
    kinds = [kind.value for kind in Markov if kind is not Markov.NONE]
    return Markov(block.word("markov_head_type", "vanilla", kinds)), rank


def _domino(block: Settings) -> dict[str, Any]:
    """Return the fields of a Domino's GRU."""
    return {
        "gru_size": block.size("gru_hidden_dim"),
        "gru_rank": block.size("emb_dim"),
        "uncorrected": block.size("pure_draft_prefix_len", 0, minimum=0),
    }


def _refiner(block: Settings) -> dict[str, Any]:
    """Return the fields of XPress's refiner."""
    rank = block.size(_REFINER_RANK)
    size = block.size("block_size")
    if block.size("xpress_block_size", size) != size:
        raise block.wrong("xpress_block_size")
    inner = block.size("xpress_mlp_hidden", rank * block.size("xpress_mlp_ratio", 2))
    return {"refiner_rank": rank, "refiner_inner": inner}


def _refuse_dspine(checkpoint: Checkpoint) -> None:
    """Refuse Tencent's DSpine by name: its authors' code was not at hand."""
    inner = checkpoint.config.get("dflash_config")
    settings = {**checkpoint.config, **(inner if isinstance(inner, dict) else {})}
    kinds = (str(settings.get(name)) for name in ("architectures", "model_type", "projector_type"))
    if any("dspine" in str(name).casefold() for name in (*settings, *checkpoint.tensors, *kinds)):
        reason = "rdchat does not know how the layers of a DSpine pass each prediction to the next token"
        raise checkpoint.error(reason, NEWER_HINT)


def _selector(block: Settings) -> dict[str, Any]:
    """Return the fields of DFlash 2's convolutions and selector. It reads the embeddings as they are stored."""
    return {
        "taps": block.size("conv_kernel_size"),
        "channels": block.size("conv_group_size"),
        "selector_rank": block.size(_RANK),
        "selected": block.size("selector_top_k"),
        "input_scale": block.number("input_embedding_scale", 1.0),
    }


def _drafts_from_anchor(parts: Parts) -> bool:
    """Return whether the root drafts a token, if `sample_from_anchor` is silent: in DSpark it does, in DFlash not.

    In the speculators layout, a DSpark's root does if its proposals are as long as a block. Elsewhere the first of
    these counts: `shift_label` or `draft_shift`; `dspark_bonus_anchor`, which says the opposite; a setting of DSpark.

    DeepSpec writes `markov_rank` into everything it trains: 0 for a DFlash that is trained like its DSpark. Speculators
    has said it for each drafter since it has DSpark; earlier drafters are trained like DFlash and propose one token
    less than the block size.
    """
    if parts.speculators:
        methods = parts.top.within("speculators_config").data.get("proposal_methods")
        known = [method for method in methods if isinstance(method, dict)] if isinstance(methods, list) else []
        drafts_block = any(method.get("speculative_tokens") == parts.top.data.get("block_size") for method in known)
        return parts.top.data.get("speculators_model_type") == _DSPARK and drafts_block
    for name in ("shift_label", _SHIFT):
        if parts.own.data.get(name) is not None:
            return parts.own.flag(name, False)
    if parts.top.data.get("dspark_bonus_anchor") is not None:
        return not parts.top.flag("dspark_bonus_anchor", False)
    return "markov_rank" in parts.own.data or parts.own.data.get("projector_type") == _DSPARK


def _target_layers(parts: Parts) -> tuple[int, ...]:
    """Return the target layers that are read; the speculators layout counts the token embeddings as number 0."""
    if parts.speculators:
        return parts.own.layer_numbers("aux_hidden_state_layer_ids", -1)
    return parts.own.layer_numbers("target_layer_ids")


def _softcap(parts: Parts) -> float | None:
    """Return the bound of the logits; None without one."""
    # 0 stands for no bound.
    if parts.speculators or not parts.own.data.get(_SOFTCAP):
        return None
    return parts.own.number(_SOFTCAP, 1.0)
