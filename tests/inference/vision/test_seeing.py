"""A text model of mlx-lm with image rows computes what transformers' model does, whole, in chunks and in trees."""

import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from weakref import ref

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from rdchat.inference.api import ImageSpan
from rdchat.inference.verification.verifier import PackedTree, PrefixTree, Verifier
from rdchat.inference.vision.image_rows import SeenImage, SeenPrompt
from tests.inference.model_folders import change_config
from tests.inference.vision.golden_models import GOLDEN, SeeingModel, apart, expected, golden_folder

# Parts of the span of the logits.
EQUAL = 3e-5
BLOCKS = ["gemma3", "gemma4"]
AXES = [kind for kind in GOLDEN if kind.startswith("qwen")]
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


@pytest.fixture(params=sorted(GOLDEN))
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


def test_chunks_may_end_anywhere_but_in_a_block(model: SeeingModel, kind: str) -> None:
    wanted = expected(kind)["logits"]
    for end in range(1, len(model.ids)):
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
    for node, path in enumerate(paths):
        other = model.cache()
        model.read(other)
        assert apart(nodes[node], model.feed(other, TREE.tokens[path].tolist())) < EQUAL
    # `other` holds the last path.
    verifier.commit(TREE.tokens[paths[-1]].tolist(), paths[-1])
    verifier.catch_up()
    assert held.tokens == other.tokens
    assert apart(model.feed(held, [11]), model.feed(other, [11])) < EQUAL


def test_a_chat_goes_on_from_before_inside_and_behind_images(model: SeeingModel) -> None:
    whole = model.read(model.cache())
    for length in (3, model.spans[0].start + 2, model.spans[0].end + 1, model.spans[-1].end, len(model.ids) - 2):
        held = model.cache()
        model.read(held)
        model.feed(held, [4, 5, 6])
        held.trim_to(length)
        kept = len(held.tokens)
        assert apart(model.read(held), whole[kept:]) < EQUAL


def test_text_alone_is_computed_as_without_the_seam(model: SeeingModel) -> None:
    ids = mx.array([[3, 4, 5, 6, 7]])
    held = make_prompt_cache(model.model.network)
    before = np.array(model.model.network(ids, cache=held))
    text = model.rows.prompt([3, 4, 5, 6, 7], [], model.seen)
    assert text.rows_for_call(0, 5, model.embed) is None
    with model.hooks.rows_for_call(None):
        again = np.array(model.model.network(ids, cache=make_prompt_cache(model.model.network)))
    assert np.array_equal(before, again)


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


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_cache_does_not_end_in_a_block(model: SeeingModel) -> None:
    held = model.cache()
    inside = model.spans[0].start + 3
    model.read(held)
    held.trim_to(inside)
    assert len(held.tokens) == 0


def test_pixtral_may_have_the_name_of_its_tower(tmp_path: Path) -> None:
    """So do copies by mlx-vlm; they could not be loaded."""
    folder = golden_folder(tmp_path / "model", "pixtral")
    change_config(folder, model_type="pixtral")
    model = SeeingModel(folder, "pixtral")
    assert apart(model.read(model.cache()), expected("pixtral")["logits"]) < EQUAL


def test_a_network_is_freed_with_its_model(tmp_path: Path) -> None:
    """The hooks do not refer to it."""
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
