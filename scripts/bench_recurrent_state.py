"""Compares exact commits and trees on recurrent state with feeding the accepted tokens again, on a tiny hybrid.

    PYTHONPATH=. python scripts/bench_recurrent_state.py --steps 200

It trains two small Qwen3.5s from scratch on a few of rdchat's training texts, a target and a draft model, and a
recurrent head on the target's hidden states, for few steps, so that it is often wrong. Each prompt is a part of these
texts. The ways take turns, and all replies are checked against plain decoding. `rows` are those that the target
computed for a token. With the names of chips: tokens in the time of a plain step if the target's calls and the head's
steps cost what they do there; other drafts and commits are not counted. `time` is decoding over plain decoding here.
"""

import argparse
import json
from collections import defaultdict
from dataclasses import astuple, replace
from functools import partial
from itertools import accumulate, product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
import mlx.core as mx
import mlx.nn as nn
import mlx.optimizers as optim
import numpy as np
from mlx_lm.models import qwen3_5
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rdchat import paths
from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.model_facts import Capability, DraftKind
from rdchat.inference.api.requests import DraftSettings, GenerationRequest, Mode, SamplingParams
from rdchat.inference.drafters import Drafters
from rdchat.inference.drafting.checkpoints.checkpoint import write_drafter
from rdchat.inference.drafting.checkpoints.recurrent_layout import published
from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.models.loading import load_model
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.session import ChatSession
from rdchat.inference.training.heads.objective import unroll
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings
from tests.inference.auto.chips import M3_MAX, M4_PRO, STEEP, Chip

# Bytes that are learnt of a text, tokens of a training row, rows of a step, tokens of a prompt and of a reply.
LEARNT, LENGTH, BATCH, PROMPT, TOKENS = 400, 40, 6, 32, 48
# Steps of the head's training, samples of one, and tokens that a sample predicts.
HEAD_STEPS, HEAD_BATCH, AHEAD = 240, 32, 4
# Rows of a call cost as much as on these machines.
CURVES = (M4_PRO, M3_MAX, STEEP)
WAYS = (DraftKind.FED_AGAIN, DraftKind.CHAIN, DraftKind.TREE)


def config_of(hidden: int, layers: int, vocabulary: int) -> dict[str, Any]:
    return {
        "model_type": "qwen3_5", "hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": layers,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "rms_norm_eps": 1e-6,
        "vocab_size": vocabulary, "max_position_embeddings": 1024, "linear_num_value_heads": 4,
        "linear_num_key_heads": 2, "linear_key_head_dim": 32, "linear_value_head_dim": 32,
        "linear_conv_kernel_dim": 4, "full_attention_interval": 2, "tie_word_embeddings": True,
    }  # fmt: skip


def train(texts: list[list[int]], config: dict[str, Any], steps: int) -> nn.Module:
    """Return a network that has nearly learnt the texts by heart."""
    mx.random.seed(0)
    network = qwen3_5.Model(qwen3_5.ModelArgs.from_dict(config))
    rng, optimizer = np.random.default_rng(0), optim.Adam(optim.cosine_decay(3e-3, steps))

    def loss(module: nn.Module, rows: mx.array) -> mx.array:
        value: mx.array = nn.losses.cross_entropy(module(rows[:, :-1]), rows[:, 1:], reduction="mean")
        return value

    step_of = nn.value_and_grad(network, loss)
    for step in range(steps):
        starts = [
            (t, int(rng.integers(max(len(t) - LENGTH, 1))))
            for t in map(texts.__getitem__, rng.integers(len(texts), size=BATCH))
        ]
        value, gradients = step_of(network, mx.array([t[s : s + LENGTH] for t, s in starts]))
        optimizer.update(network, gradients)
        mx.eval(network.parameters(), optimizer.state)
        if step % 20 == 0:
            print(f"step {step}: loss {value.item():.2f}", flush=True)
    network.eval()
    return network


def train_head(model: LoadedModel, texts: list[list[int]], folder: Path) -> None:
    """Write a recurrent head that was trained on the target's hidden states along the texts."""
    embeddings = TargetEmbeddings(model.network, model.info.vocabulary_size)
    mx.random.seed(0)
    width, vocabulary = embeddings.width, mx.arange(model.info.vocabulary_size)
    head = RecurrentHead(HeadConfig(width, len(vocabulary), width, width))
    rng, optimizer, states = np.random.default_rng(0), optim.Adam(2e-3), list[mx.array]()
    for text in texts:
        model.network(mx.array([text]))
        assert model.hooks.hidden is not None
        states.append(mx.stop_gradient(model.hooks.hidden[0]))
    outputs = embeddings.output_for(vocabulary)

    def loss(module: RecurrentHead, hidden: mx.array, path: mx.array) -> mx.array:
        features = unroll(module, hidden, embeddings.embed(path[:, :-1]))
        value: mx.array = nn.losses.cross_entropy(outputs(features), path[:, 1:], reduction="mean")
        return value

    step_of = nn.value_and_grad(head, loss)
    for step in range(HEAD_STEPS):
        number = int(rng.integers(len(texts)))
        # A root is the token after the one whose hidden state the head reads.
        roots = 1 + rng.integers(len(texts[number]) - AHEAD - 1, size=HEAD_BATCH)
        path = np.array(texts[number])[np.add.outer(roots, np.arange(AHEAD + 1))]
        value, gradients = step_of(head, states[number][mx.array(roots - 1)], mx.array(path))
        optimizer.update(head, gradients)
        mx.eval(head.parameters(), optimizer.state)
        if step % 20 == 0:
            print(f"head, step {step}: loss {value.item():.2f}", flush=True)
    write_drafter(folder, published(head, vocabulary, TargetBinding.of(model.info)), "")


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer of one byte a token, so that the output matrix is small."""
    names = ["<end>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    tokenizer = Tokenizer(models.BPE({name: token for token, name in enumerate(names)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=names[0])


def save(network: nn.Module, config: dict[str, Any], tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write a model folder."""
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(config))
    network.save_weights(str(folder / "model.safetensors"))


class CountedCalls:
    """Notes the rows of each call of a network."""

    def __init__(self, network: nn.Module) -> None:
        self.rows: list[int] = []
        plain: Any = type(network)

        def call(module: nn.Module, tokens: mx.array, *arguments: Any, **options: Any) -> Any:
            self.rows.append(tokens.shape[1])
            return plain.__call__(module, tokens, *arguments, **options)

        network.__class__ = type(plain.__name__, (plain,), {"__call__": call})


def reply_of(session: ChatSession, text: str, temperature: float, draft: DraftSettings) -> ReplyEnd:
    """Return a reply; the session's capability decides how its rounds are committed."""
    session.model.hooks.states.recorded = session.model.capability.kind is not DraftKind.FED_AGAIN
    if draft.mode is Mode.SPECULATIVE:
        session.drafters.load(draft, lambda _: None)
    sampling = SamplingParams(temperature=temperature, max_tokens=TOKENS)
    *_, end = session.generate(GenerationRequest((), sampling, 1, draft=draft, text=text))
    assert isinstance(end, ReplyEnd)
    return end


def compare(target: Path, draft: Path, head: Path, texts: list[list[int]], prompts: list[str]) -> None:
    """Print a row for each kind of draft, temperature and way."""
    loaded = load_model(str(target))
    print(f"the check says: {loaded.capability.kind.value}", flush=True)
    if not head.exists():
        train_head(loaded, texts, head)
    calls = CountedCalls(loaded.network)
    kinds = {kind: replace(loaded, try_out=partial(Capability, kind)) for kind in WAYS}
    sessions = {kind: ChatSession(model, Drafters(model, True)) for kind, model in kinds.items()}
    chips = [chip.name for chip in CURVES]
    columns = ["drafts", "temperature", "way", "tokens a round", "rows a token", *chips, "time"]
    print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    beams = partial(DraftSettings, Mode.DRAFTER, drafter=str(head), lookup_branch=False)
    drafts = (
        ("lookup", DraftSettings(Mode.LOOKUP), WAYS),
        ("draft model", DraftSettings(Mode.SPECULATIVE, draft_model=str(draft)), WAYS),
        ("head", beams(beam_width=1), WAYS[:2]),
        *((f"head, {width} beams", beams(beam_width=width), WAYS[2:]) for width in (2, 3, 4)),
    )
    for (name, settings, ways), temperature in product(drafts, (0.0, 0.7)):
        found: dict[DraftKind, list[tuple[float, ...]]] = defaultdict(list)
        for prompt in prompts:
            plain = reply_of(sessions[DraftKind.TREE], prompt, temperature, DraftSettings(Mode.OFF))
            for kind in ways:
                calls.rows = []
                end = reply_of(sessions[kind], prompt, temperature, settings)
                assert end.token_ids == plain.token_ids
                made = end.statistics
                rows = after_prefill(calls.rows, made.prompt_tokens - made.cached_prompt_tokens)
                tokens = made.generated_tokens - 1
                speeds = [
                    tokens / (sum(chip.calls_of()[rows]) + drafting(chip, settings, made.rounds)) for chip in CURVES
                ]
                time = made.decode_ms / plain.statistics.decode_ms
                found[kind].append((tokens / made.target_calls, sum(rows) / tokens, *speeds, time))
        for kind, each in found.items():
            figures = " | ".join(f"{median(column):.2f}" for column in zip(*each, strict=True))
            print(f"| {name} | {temperature:g} | {kind.value} | {figures} |", flush=True)


def drafting(chip: Chip, settings: DraftSettings, rounds: int) -> float:
    """Return what a head's drafts cost, in plain steps."""
    return rounds * chip.beams(*astuple(settings.shape)) if settings.mode is Mode.DRAFTER else 0.0


def after_prefill(rows: list[int], prefill: int) -> list[int]:
    """Return the calls behind those that read a prompt of so many tokens."""
    ends = list(accumulate(rows))
    return rows[ends.index(prefill) + 1 :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--folder", type=Path, help="keep the models here, and use those that are here already")
    args = parser.parse_args()
    file = Path(paths.__file__).parent / "training_texts" / "written_texts.json"
    texts = [text[:LEARNT] for text in json.loads(file.read_text(encoding="utf-8"))["articles"][:2]]
    tokenizer = byte_tokenizer()
    ids = [tokenizer.encode(text) for text in texts]
    prompts = [text[start : start + PROMPT] for text in texts for start in (0, 150)]
    with TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        target, draft = folder / "target", folder / "draft"
        for path, hidden, layers in ((target, 96, 4), (draft, 48, 2)):
            if not path.exists():
                config = config_of(hidden, layers, len(tokenizer))
                save(train(ids, config, args.steps), config, tokenizer, path)
        compare(target, draft, folder / "head", ids, prompts)


if __name__ == "__main__":
    main()
