"""A text model of mlx-lm with image rows computes what transformers' model does; a tower runs once for an image."""

import gc
import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from weakref import ref

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from hypothesis import given, settings, strategies as some
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from rdchat.files.cache_folders import used_bytes
from rdchat.inference.api import (
    CacheFolder,
    ChatImage,
    ChatMessage,
    DraftSettings,
    Dtype,
    GenerationRequest,
    ImageCap,
    ImageSpan,
    Mode,
    ReplyEnd,
    Role,
    SamplingParams,
)
from rdchat.inference.loading import load_model
from rdchat.inference.local_engine import LocalEngine
from rdchat.inference.mlx_lm_fixes.network_fixes import rope_of
from rdchat.inference.prompts.encoding import filled
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.prefix_tree import PrefixTree
from rdchat.inference.verification.target import LoadedModel
from rdchat.inference.verification.verifier import PackedTree, Verifier
from rdchat.inference.vision.families import Family, image_token, vision_of
from rdchat.inference.vision.image_prompts import with_images
from rdchat.inference.vision.image_rows import CallRows, ImageRowHooks, ImageRows, SeenImage, SeenPrompt
from rdchat.inference.vision.processors import PROCESSORS
from tests.grids import share
from tests.inference.caches_on_disk.kept import PLENTY
from tests.inference.model_folders import change_config
from tests.inference.vision.seeing_models import (
    GOLDEN,
    KINDS,
    ONE_OF_EACH,
    SeeingModel,
    Tensors,
    apart,
    copied,
    expected,
    golden_folder,
    picture,
    seeing_folder,
    tensors_of,
)

# Parts of the span of the logits.
EQUAL = 3e-5
PACKED = ("weight", "scales", "biases")
QUANTISED = share(
    [
        ("qwen3_vl", 4),
        ("smolvlm", 8),
        ("gemma4", 4),
        ("lfm2_vl", 8),
        ("gemma4_e", 8),
        ("qwen2_vl", 4),
        ("mistral3", 4),
        ("qwen2_5_vl", 8),
    ],
    3,
)
TREE = PrefixTree(
    np.array([5, 9, 12, 7, 30, 41, 8], np.int32),
    np.array([-1, 0, 0, 1, 1, 2, 5], np.int32),
    np.array([0, 1, 1, 2, 2, 2, 3], np.int32),
)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    @cache
    def made(kind: str) -> SeeingModel:
        return SeeingModel(golden_folder(tmp_path_factory.mktemp(kind) / "model", kind), kind)

    yield made
    made.cache_clear()


@pytest.fixture(params=share(sorted(GOLDEN), 2))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(models: object, kind: str) -> SeeingModel:
    return models(kind)  # type: ignore[operator]


def test_logits_and_text_are_those_of_the_whole_model(model: SeeingModel, kind: str) -> None:
    held = model.cache()
    wanted = expected(kind)
    logits = model.read(held)
    assert apart(logits, wanted["logits"]) < EQUAL
    written = []
    last = logits[-1]
    for _ in wanted["written"]:
        written.append(int(last.argmax()))
        last = model.feed(held, written[-1:])
    assert written == wanted["written"].tolist()


@pytest.mark.parametrize("kind", share(KINDS[::-1], 2))
def test_copies_by_mlx_vlm_compute_the_same(tmp_path: Path, kind: str) -> None:
    folder = golden_folder(tmp_path / "model", kind)
    save_file(copied(kind, tensors_of(kind)), folder / "model.safetensors", {"format": "mlx"})
    model = SeeingModel(folder, kind)
    assert apart(model.read(model.cache()), expected(kind)["logits"]) < EQUAL


def quantised(tensors: Tensors, bits: int) -> tuple[Tensors, Tensors]:
    """Return a checkpoint whose matrices are quantised, and one with the floats that this means."""
    packed = dict(tensors)
    floats = dict(tensors)
    for name, array in tensors.items():
        if array.ndim == 2 and array.shape[1] % 32 == 0:
            parts = mx.quantize(mx.array(array), 32, bits)
            base = name.removesuffix("weight")
            packed |= {base + part: np.array(each) for part, each in zip(PACKED, parts, strict=True)}
            floats[name] = np.array(mx.dequantize(*parts, 32, bits))
    return packed, floats


@pytest.mark.parametrize(("kind", "bits"), QUANTISED)
def test_a_quantised_model_computes_with_the_numbers_that_are_meant(tmp_path: Path, kind: str, bits: int) -> None:
    """In its text model and its tower, tables of positions too."""
    folder = golden_folder(tmp_path / "model", kind)
    logits = []
    settings = ({"group_size": 32, "bits": bits}, None)
    for tensors, quantization in zip(quantised(tensors_of(kind), bits), settings, strict=True):
        save_file(tensors, folder / "model.safetensors", {"format": "mlx"})
        change_config(folder, quantization=quantization)
        model = SeeingModel(folder, kind)
        logits.append(model.read(model.cache()))
    assert apart(*logits) < EQUAL
    assert apart(logits[0], expected(kind)["logits"]) > 100 * EQUAL


def test_chunks_may_end_anywhere_but_in_a_block(model: SeeingModel, kind: str) -> None:
    wanted = expected(kind)["logits"]
    inside = range(1, len(model.ids))
    edges = {edge for span in model.spans for edge in (span.start, span.start + 1, span.end - 1, span.end)}
    for end in sorted(edges.intersection(inside).union(inside[::8])):
        held = model.cache()
        if not held.cuts_image(end):
            assert apart(model.read(held, [end]), wanted) < EQUAL, end
    fives = [end for end in range(5, len(model.ids), 5) if not model.cache().cuts_image(end)]
    assert apart(model.read(model.cache(), fives), wanted) < EQUAL


def test_a_tree_behind_images_is_its_paths_one_by_one(model: SeeingModel) -> None:
    held = model.cache()
    model.read(held)
    verifier = Verifier(model.model, held)
    nodes = np.array(verifier.verify(PackedTree.pack(TREE)).logits)
    paths = [np.flatnonzero(ancestors).tolist() for ancestors in TREE.ancestors()]
    for leaf in sorted({*range(len(paths))} - {*TREE.parents.tolist()}):
        other = model.cache()
        model.read(other)
        for node in paths[leaf]:
            assert apart(nodes[node], model.feed(other, [int(TREE.tokens[node])])) < EQUAL
    # `other` holds the path of the last node, a leaf.
    verifier.commit(TREE.tokens[paths[-1]].tolist(), paths[-1])
    verifier.catch_up()
    assert held.tokens == other.tokens
    assert apart(model.feed(held, [11]), model.feed(other, [11])) < EQUAL


def test_a_chat_goes_on_from_before_inside_and_behind_images(model: SeeingModel) -> None:
    held = model.cache()
    whole = model.read(held)
    for length in (3, model.spans[0].start + 2, model.spans[0].end + 1, model.spans[-1].end, len(model.ids) - 2):
        model.feed(held, [4, 5, 6])
        held.trim_to(length)
        kept = len(held.tokens)
        assert apart(model.read(held), whole[kept:]) < EQUAL


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16, mx.float32])
def test_rows_are_divided_by_the_scale_that_the_network_multiplies_by(dtype: mx.Dtype) -> None:
    """A number is rounded to the type of the rows, which shifts all of them: 39.19 is 39.25 in bfloat16."""
    rows = mx.random.normal((99, 64), key=mx.random.key(1))
    scale = 1536**0.5
    call = SeenPrompt([-2] * 99, [ImageSpan(0, 99)], SeenImage(rows), scale=scale).rows_for_call(
        0, 99, lambda ids: mx.zeros((len(ids), 64), dtype)
    )
    assert call is not None
    multiplied = (call.embeddings[0] * scale).astype(mx.float32)
    assert abs((multiplied / rows).mean().item() - 1) < 2e-4


def test_pixtral_may_have_the_name_of_its_tower(tmp_path: Path) -> None:
    """So do copies by mlx-vlm; they could not be loaded."""
    folder = golden_folder(tmp_path / "model", "pixtral")
    change_config(folder, model_type="pixtral")
    model = SeeingModel(folder, "pixtral")
    assert apart(model.read(model.cache()), expected("pixtral")["logits"]) < EQUAL


def test_a_network_is_freed_with_its_model(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The hooks do not refer to it."""
    caplog.set_level(logging.CRITICAL, "rdchat")  # pytest keeps the errors that are logged
    model = SeeingModel(golden_folder(tmp_path / "model", "qwen3_vl"), "qwen3_vl")
    model.read(model.cache())
    held = ref(model.model.network)
    hooks = model.hooks
    gc.disable()
    try:
        del model
        assert held() is None
        assert hooks is not None
    finally:
        gc.enable()


LONG = {"rope_theta": 1e4, "original_max_position_embeddings": 64, "factor": 4.0}
ROPES: dict[str, dict[str, Any]] = {
    "default": {"rope_theta": 1e4},
    "linear": {**LONG, "rope_type": "linear"},
    "yarn": {**LONG, "rope_type": "yarn"},
    "llama3": {**LONG, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0},
}
SIZE = 24
DIMS = 16


class Layer(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.rope: Any = rope_of(ROPES[kind], DIMS, False, 256)


class Network(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layers = [Layer(kind)]

    def turned(self, heads: np.ndarray, offset: int) -> np.ndarray:
        return np.array(self.layers[0].rope(mx.array(heads), offset=offset))


def heads(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).standard_normal((1, 3, rows, SIZE)).astype(np.float32)


def call_of(positions: np.ndarray) -> CallRows:
    return CallRows(mx.zeros((1, positions.shape[1], 8)), mx.array(positions.astype(np.int32)))


@pytest.mark.parametrize("interleaved", [True, False])
@pytest.mark.parametrize("kind", sorted(ROPES))
@given(some.lists(some.tuples(*[some.integers(0, 99)] * 3), min_size=1, max_size=6))
@settings(max_examples=12)
def test_each_frequency_turns_by_its_axis(kind: str, interleaved: bool, positions: list[tuple[int, int, int]]) -> None:
    """Frequencies 1, 4 and 7 by the row, 2 and 5 by the column, for three of the row and two of the column.

    Qwen2-VL and Qwen2.5-VL: the first three by the time, the next three by the row, two by the column.
    """
    network = Network(kind)
    x = heads(len(positions))
    by_axis = np.array(positions).T
    alone = [
        np.concatenate([network.turned(x[:, :, [row]], int(at)) for row, at in enumerate(axis)], 2) for axis in by_axis
    ]
    axis_of = ([0, 1, 2, 0, 1, 2, 0, 1] if interleaved else [0, 0, 0, 1, 1, 1, 2, 2]) * 2 + [0] * (SIZE - DIMS)
    wanted = np.stack([alone[axis][..., feature] for feature, axis in enumerate(axis_of)], axis=-1)
    with ImageRowHooks(network, (3, 3, 2), interleaved=interleaved).rows_for_call(call_of(by_axis)):
        assert np.allclose(network.turned(x, 0), wanted, atol=1e-5)


def test_an_error_ends_the_call() -> None:
    network = Network("default")
    x = heads(2)
    plain = network.turned(x, 7)
    hooks = ImageRowHooks(network, (3, 3, 2))
    with pytest.raises(InterruptedError), hooks.rows_for_call(call_of(np.ones((3, 2)))):
        raise InterruptedError
    assert np.array_equal(network.turned(x, 7), plain)


SIDES = some.integers(1, 120)


@pytest.fixture(scope="module")
def towers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    @cache
    def made(kind: str) -> tuple[Path, ImageRows, Family]:
        folder = seeing_folder(tmp_path_factory.mktemp(kind) / "model", kind)
        vision = vision_of(folder)
        assert vision.family is not None
        return folder, ImageRows(folder, vision), vision.family

    yield made
    made.cache_clear()


@pytest.mark.parametrize("kind", [*ONE_OF_EACH, "pixtral"])
@given(sizes=some.lists(some.tuples(SIDES, SIDES), min_size=1, max_size=3), cap=some.sampled_from([None, 4, 64]))
@settings(max_examples=8, deadline=None)
def test_images_of_any_size_become_the_rows_of_their_tokens(
    towers: object, kind: str, sizes: list[tuple[int, int]], cap: int | None
) -> None:
    folder, rows, family = towers(kind)  # type: ignore[operator]
    # Gemma 4 takes 1,120 tokens then, more than this tower has positions for.
    cap = 64 if kind == "gemma4" and cap is None else cap
    images = []
    seen = []
    for width, height in sizes:
        rgb = np.random.default_rng(width * height).integers(0, 256, (height, width, 3), np.uint8)
        image = PROCESSORS[family.processor].prepare(rgb, family.image_settings(folder), cap)
        seen.append(rows.see(f"{kind} {width} {height} {cap}", image))
        assert seen[-1].rows.shape == (image.layout.pixel_tokens, 64)
        images.append((f"{width} {height}", image.layout))
    text = "a" + f"{family.placeholder}b" * len(images)
    prompt = filled(text, family.placeholder, [family.expanded(layout) for _, layout in images], "\ue000")
    ids = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(prompt).ids
    changed, spans = with_images(ids, image_token(GOLDEN[kind]["config"]), images, family)
    shown = rows.prompt(changed, spans, seen)
    call = shown.rows_for_call(0, len(changed), lambda tokens: mx.zeros((len(tokens), 64)))
    assert call is not None
    at = [index for index, each in enumerate(changed) if each < 0]
    found = np.array(call.embeddings[0])[at] * shown.scale
    assert np.allclose(found, np.concatenate([image.rows for image in seen]), atol=1e-5)


OF_EACH_POSITION = ["qwen3_vl", "qwen3_5", "smolvlm", "gemma3"]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the runs of towers."""
    counted = Counter[str]()
    compute = ImageRows._compute

    def counting(rows: ImageRows, *arguments: object) -> object:
        counted["runs"] += 1
        return compute(rows, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(ImageRows, "_compute", counting)
    return counted


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    folder = tmp_path / "chats" / "chat"
    folder.mkdir(parents=True)
    return folder


def asked(chat: Path | None, text: str, *images: ChatImage, limit: int = PLENTY) -> GenerationRequest:
    message = ChatMessage(Role.USER, text, images=images)
    keep = chat and CacheFolder(chat, limit)
    return GenerationRequest((message,), SamplingParams(max_tokens=4), draft=DraftSettings(Mode.OFF), keep=keep)


def reply(folder: Path, request: GenerationRequest) -> ReplyEnd:
    """Return a reply after a restart."""
    return reply_of(load_model(folder, "float32"), request)


def reply_of(model: LoadedModel, request: GenerationRequest) -> ReplyEnd:
    *_, end = ChatSession(model).generate(request)
    assert isinstance(end, ReplyEnd)
    return end


@pytest.mark.parametrize("kind", share(OF_EACH_POSITION, 2))
def test_the_tower_runs_once(kind: str, tmp_path: Path, chat: Path, runs: Counter[str]) -> None:
    folder = seeing_folder(tmp_path / "model", kind)
    image = picture(tmp_path, 40, 24)
    found = []
    keeps_nothing = load_model(folder, "float32")
    for text in ("what?", "what?", "and now?"):
        expected = reply_of(keeps_nothing, asked(None, text, image)).token_ids
        before = runs.total()
        end = reply(folder, asked(chat, text, image))
        assert end.token_ids == expected
        found.append(runs.total() - before)
        names = {entry.name for entry in end.statistics.ledger}
        assert ("tower" in names, "prepare an image" in names) == (bool(found[-1]),) * 2
    assert found == [1, 0, 0]
    assert used_bytes(chat.parent) > 0, "they count"


def test_other_settings_other_pixels_and_damage_are_seen_anew(tmp_path: Path, chat: Path, runs: Counter[str]) -> None:
    folder = seeing_folder(tmp_path / "model", "qwen3_vl")
    image = picture(tmp_path, 40, 24)
    request = asked(chat, "what?", image)
    expected = reply(folder, request).token_ids
    for other in (
        replace(request, image_cap=next(cap for cap in ImageCap if cap is not request.image_cap)),
        asked(chat, "what?", picture(tmp_path / "other", 40, 24, mirrored=True)),
    ):
        reply(folder, other)
    assert runs.total() == 3
    for path in chat.glob("*/*"):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    assert reply(folder, request).token_ids == expected
    assert runs.total() == 4


@pytest.mark.parametrize("why", ["no folder", "limit", "deleted"])
def test_nothing_is_kept(why: str, tmp_path: Path, chat: Path, runs: Counter[str]) -> None:
    folder = seeing_folder(tmp_path / "model", "qwen3_vl")
    image = picture(tmp_path, 40, 24)
    if why == "deleted":
        chat.rmdir()
    request = asked(None if why == "no folder" else chat, "what?", image, limit=0 if why == "limit" else PLENTY)
    reply(folder, request)
    reply(folder, request)
    assert runs.total() == 2
    assert not [path for path in chat.parent.rglob("*") if path.is_file()]


def test_an_engine_that_keeps_nothing_forgets_them(tmp_path: Path, runs: Counter[str]) -> None:
    engine = LocalEngine()
    engine.load(str(seeing_folder(tmp_path / "model", "qwen3_vl")), Dtype.AUTO, lambda _: None)
    request = asked(None, "what?", picture(tmp_path, 40, 24))
    list(engine.generate(request))
    engine.prefix_caches(1)
    list(engine.generate(request))
    assert runs.total() == 1
    assert engine.prefix_caches(0).count == 0
    list(engine.generate(request))
    assert runs.total() == 2
