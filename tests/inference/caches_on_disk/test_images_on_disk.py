"""KV caches on disk of prompts with images: they come back with their shift, and only for the very same images."""

from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from rdchat.files.cache_folders import remove_folder
from rdchat.inference.api import CacheFolder
from rdchat.inference.caches_on_disk.disk_caches import DiskCaches
from rdchat.inference.caches_on_disk.segments import digests_of
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel
from tests.inference.caches_on_disk.kept import PLENTY
from tests.inference.fakes import shared_family, shared_llama
from tests.inference.image_prompts import Image, ImagePrompt, alone, fresh, images, read

pytestmark = [pytest.mark.across_rows, pytest.mark.usefixtures("small_blocks")]

MODELS = {
    "llama": shared_llama,
    "a sliding window": lambda: shared_llama(sliding_window=5),
    "recurrent state": lambda: shared_family("qwen3_5"),
}
BEFORE = [1, 2, 3] * 9
BEHIND = [4, 5] * 12


def store(model: LoadedModel, prompt: ImagePrompt, folder: Path) -> None:
    cache = fresh(model, prompt)
    disk = DiskCaches(model)
    kept = CacheFolder(folder, PLENTY)
    read(model, cache, prompt, len(prompt) - 1)
    disk.note_prompt(cache, kept)
    read(model, cache, prompt, len(prompt))
    disk.write_cache(cache, kept)
    disk.finish_writing(60)


def restored(model: LoadedModel, prompt: ImagePrompt, folder: Path) -> KVCache:
    """Return the cache of a prompt after a restart, and check what the network reads behind it."""
    cache = fresh(model, prompt)
    disk = DiskCaches(model)
    disk.extend_cache(cache, prompt.tokens, CacheFolder(folder, PLENTY), lambda: None)
    start = len(cache.tokens)
    tokens = prompt.tokens
    assert cache.tokens == tokens[:start]
    assert mx.allclose(read(model, cache, prompt, len(prompt)), alone(model, prompt)[start:], atol=2e-4)
    del cache.tokens[start:]
    return cache


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=8)
@given(image=images(), second=images(), whole=some.booleans())
def test_a_stored_prompt_comes_back_with_its_shift(
    name: str, image: Image, second: Image, whole: bool, chat_folder: Path
) -> None:
    model = MODELS[name]()
    one, two = (Image(each.seed, each.count, each.shift, whole) for each in (image, second))
    first = ImagePrompt(BEFORE, one, BEHIND)
    store(model, first, chat_folder)
    again = ImagePrompt(*first.pieces, [7], two, [8, 9])
    assert len(restored(model, again, chat_folder).tokens) == len(first)
    store(model, again, chat_folder)
    assert len(restored(model, ImagePrompt(*again.pieces, [3]), chat_folder).tokens) == len(again)
    for path in chat_folder.iterdir():
        remove_folder(path)


def test_an_image_whose_rows_see_each_other_comes_back_whole_or_not(chat_folder: Path) -> None:
    """Blocks end inside it here."""
    model = shared_llama()
    image = Image(1, 40, whole=True)
    store(model, ImagePrompt(BEFORE, image, [4] * 5), chat_folder)
    found = restored(model, ImagePrompt(BEFORE, image, [5] * 9), chat_folder)
    assert len(found.tokens) == 16, "the prompt stores no block that ends behind the image"
    store(model, ImagePrompt(BEFORE, image, [6] * 20), chat_folder)
    found = restored(model, ImagePrompt(BEFORE, image, [6] * 14), chat_folder)
    assert len(found.tokens) == 80


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("whole", [False, True])
def test_the_images_of_a_project_are_read_once_for_all_of_its_chats(name: str, whole: bool, chat_folder: Path) -> None:
    model = MODELS[name]()
    beginning = ImagePrompt(BEFORE, Image(1, 12, -5, whole), BEHIND)
    project = chat_folder.with_name("project")
    project.mkdir()
    found = list[int]()
    for chat in (1, 2):
        prompt = ImagePrompt(*beginning.pieces, [chat, 7] * 9)
        folder = CacheFolder(chat_folder.with_name(f"chat{chat}"), PLENTY, project)
        folder.path.mkdir()
        cache = fresh(model, prompt)
        disk = DiskCaches(model)
        found.append(disk.extend_cache(cache, prompt.tokens, folder, lambda: None))
        if not found[-1]:
            read(model, cache, prompt, len(beginning))
            disk.note_prompt(cache, folder)
        start = len(cache.tokens)
        assert mx.allclose(read(model, cache, prompt, len(prompt)), alone(model, prompt)[start:], atol=2e-4)
        disk.write_cache(cache, folder, len(beginning))
        disk.finish_writing(60)
    assert found == [0, len(beginning)]


def test_digests_know_each_token_of_an_image() -> None:
    tokens = [5, *Image(1, 6).ids, 7]
    others = [[5, *Image(2, 6).ids, 7], [5, *Image(1, 6).ids[::-1], 7], [5, *[-2 - 2**61] * 6, 7], [5] * 8]
    assert len({digests_of(each, [8])[8] for each in (tokens, *others)}) == 5
    assert digests_of(tokens, [3])[3] == digests_of([*tokens[:3], 9], [3])[3]
