"""Reads Gemma 4's assistants as Google publishes them (`gemma4_assistant`, `gemma4_unified_assistant`).

Their layers are described by `text_config`, a configuration of Gemma 4 whose layers all share keys and values. Refused
are unknown values of known settings, settings that change the computation, and unknown tensors. Tested with random
weights against transformers and mlx-vlm: no published assistant was at hand, and nothing was tried on a Mac.
"""

from collections.abc import Collection, Mapping
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from rdchat.inference.device import fetch
from rdchat.inference.drafting.checkpoints.checkpoint import Checkpoint, Layout
from rdchat.inference.drafting.checkpoints.head_settings import Settings, check_rope, stored_bits
from rdchat.inference.drafting.heads.assistant_head import (
    FULL,
    SLIDING,
    AssistantConfig,
    AssistantNetwork,
    BoundAssistant,
)
from rdchat.inference.drafting.heads.head import Head, HeadKind
from rdchat.inference.models.safetensors_file import MAX_SIZE
from rdchat.inference.verification import LoadedModel

# Published names: the tokens by cluster, the clusters' output rows, the output rows, and the embeddings.
_ORDER = "masked_embedding.token_ordering"
_CENTROIDS = "masked_embedding.centroids.weight"
_TABLE = "lm_head.weight"
_EMBEDDINGS = "embed_tokens.weight"
_MAX_LAYERS = 100
# Settings that change the computation in ways rdchat does not support.
_ASK_FOR_MORE = {
    "attention_bias", "enable_moe_block", "hidden_size_per_layer_input", "use_double_wide_mlp", "quantization",
    "quantization_config",
}  # fmt: skip
# What layers that share keys and values do not use; some tools write it all the same.
_UNUSED = ("self_attn.k_proj.weight", "self_attn.v_proj.weight", "self_attn.k_norm.weight", "self_attn.v_norm.weight")


def matches(config: Mapping[str, Any], tensors: Collection[str]) -> bool:
    """Return whether a checkpoint is an assistant: it projects the target's hidden states and its own."""
    return "backbone_hidden_size" in config and {"pre_projection.weight", "post_projection.weight"} <= set(tensors)


def assistant_config(checkpoint: Checkpoint, _depth: int | None) -> AssistantConfig:
    """Return the network that a checkpoint describes, and check that its tensors are those of that network.

    Raises:
        ModelError: If a setting is missing or unknown, or a tensor missing, unknown, or of another shape or type.
    """
    top = Settings(checkpoint, checkpoint.config)
    text = top.within("text_config")
    for settings in (top, text):
        settings.refuse(_ASK_FOR_MORE)
    text.word("hidden_activation", "gelu_pytorch_tanh", ["gelu_pytorch_tanh"])
    text.word("use_bidirectional_attention", "vision", ["vision"])
    text.value("rope_parameters", lambda value: isinstance(value, dict) and {FULL, SLIDING} <= value.keys())
    layers = text.size("num_hidden_layers")
    if layers > _MAX_LAYERS:
        raise text.wrong("num_hidden_layers")
    if text.size("num_kv_shared_layers", layers, minimum=0) not in (0, layers):
        raise text.wrong("num_kv_shared_layers")
    clusters = top.size("num_centroids", 2048) if top.flag("use_ordered_embeddings", False) else 0
    config = AssistantConfig(
        hidden_size=text.size("hidden_size"),
        target_width=top.size("backbone_hidden_size"),
        vocabulary_size=text.size("vocab_size"),
        heads=text.size("num_attention_heads"),
        head_sizes={SLIDING: text.size("head_dim", 256), FULL: text.size("global_head_dim", 512)},
        inner_size=text.size("intermediate_size"),
        norm_epsilon=text.number("rms_norm_eps", 1e-6),
        kinds=tuple(text.layer_kinds(layers)),
        window=text.size("sliding_window", 512, minimum=2),
        ropes={FULL: text.rope(FULL), SLIDING: text.rope(SLIDING, complete_heads=True)},
        clusters=clusters,
        chosen_clusters=top.size("centroid_intermediate_top_k", 32) if clusters else 0,
    )
    _check_config(checkpoint, top, config)
    return config


def _load(checkpoint: Checkpoint, config: AssistantConfig, model: LoadedModel) -> Head:
    """Read an assistant; see `Layout`."""
    names = _stored_names(checkpoint, config)
    # This checks that all numbers are finite. Of its result, only the tokens by cluster are used; `weights` reads the
    # other tensors anew when the network is loaded. A checkpoint without clusters has no `_ORDER`, which is left out.
    tensors = checkpoint.read_tensors([*names.values(), _ORDER])
    clusters = None
    if config.clusters:
        clusters = tensors[_ORDER].astype(mx.int32).reshape(config.clusters, -1)
        ids = fetch(clusters)
        if ids.min() < 0 or ids.max() >= config.vocabulary_size:
            raise checkpoint.error(f"its list {_ORDER} has tokens that the model does not have")

    def weights() -> Mapping[str, mx.array]:
        stored = checkpoint.lazy(list(names.values()))
        return {name: stored[published] for name, published in names.items()}

    # None: every token of the vocabulary can be drafted.
    head = BoundAssistant(config, weights, None, model, stored_bits(checkpoint))
    head.clusters = clusters
    return head


ASSISTANT = Layout(HeadKind.ASSISTANT, matches, assistant_config, _load)


def _stored_names(checkpoint: Checkpoint, config: AssistantConfig) -> dict[str, str]:
    """Return the published name of each tensor of the network; the output rows are mostly stored as embeddings."""
    tied = Settings(checkpoint, checkpoint.config).flag("tie_word_embeddings", True)
    renamed = {"centroids.weight": _CENTROIDS, _TABLE: _EMBEDDINGS if tied else _TABLE}
    return {name: renamed.get(name, name) for name in _shapes(config)}


def _shapes(config: AssistantConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor of the network by name; the network's own numbers are never computed."""
    return {name: array.shape for name, array in tree_flatten(AssistantNetwork(config).parameters())}


def _check_config(checkpoint: Checkpoint, top: Settings, config: AssistantConfig) -> None:
    """Refuse sizes that do not fit together, and tensors of another network.

    `_shapes` makes the network, so sizes beyond what the files hold are refused before.
    """
    sizes = config.head_sizes
    for kind, size in sizes.items():
        check_rope(checkpoint, config.ropes[kind], size)
    if config.clusters and (config.vocabulary_size % config.clusters or config.chosen_clusters > config.clusters):
        raise top.wrong("num_centroids")
    widest = max(2 * config.target_width, config.vocabulary_size, config.inner_size, config.heads * max(sizes.values()))
    if widest > MAX_SIZE or widest * config.hidden_size > sum(each.elements for each in checkpoint.tensors.values()):
        raise checkpoint.error("it has fewer weights than its configuration needs")
    names = _stored_names(checkpoint, config)
    expected = {names[name]: shape for name, shape in _shapes(config).items()}
    if config.clusters:
        expected[_ORDER] = (config.vocabulary_size,)
    unused = [f"layers.{number}.{name}" for number in range(len(config.kinds)) for name in _UNUSED]
    # A tied table may be stored under both names.
    checkpoint.check_tensors(expected, [*unused, *({_TABLE, _EMBEDDINGS} - expected.keys())])
