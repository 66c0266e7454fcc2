"""The converted default model is right: weights, tokenizer and answers, each compared with another source."""

import json
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import gguf
import mlx.core as mx
import pytest
import regex
from mlx_lm import generate, load
from mlx_lm import utils as mlx_lm_utils
from tokenizers import Tokenizer

from tests.inference.gguf_samples import byte_characters

pytestmark = pytest.mark.slow

GPT2 = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
TEXTS = [
    "Hello, world! It's 3.14159, isn't it? I'LL say we've 1234567890 of them.",
    "def f(x: int) -> str:\n    return f\"{x:>10}\"\t# ok\r\n\r\n\n\n        deep\n",
    "for (int i = 0; i < 10; ++i) { a[i] += b[i] * 0x1F; } // <|im_start|",
    "你好\uff0c世界\uff01今天是2026年11月20日。こんにちは、안녕하세요 العربية ٣٤٥ हिन्दी",
    "🙂👩‍👩‍👧‍👦🇫🇷 e\u0301 é ﬁ ½ Ⅷ ² ①",
    "  leading,  double,   triple \u00a0nbsp\u2003em\u3000wide \u200bzero\ttab\x0bvt\x0cff end   ",
    "\n", " ", "  ", "\n \n  \n", "a 1 b 22 c 333", "1 2", " 1", "1.", "x1y2", "", "ÀÈÌ straße ΑΒΓ",
    "https://example.org/a_b?c=d&e=%20f#g", "$\\frac{1}{2}$ \\begin{align} x &= y \\\\ \\end{align}",
]  # fmt: skip


@pytest.fixture(scope="module")
def metadata(model_gguf: Path) -> dict[str, object]:
    return {key: field.contents() for key, field in gguf.GGUFReader(model_gguf).fields.items()}


@pytest.fixture(scope="module")
def encode(metadata: dict[str, object]) -> Callable[[str], list[int]]:
    """A small byte-level BPE, written from llama.cpp's description of `smollm` and the file's own vocabulary."""
    ids = {token: token_id for token_id, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(metadata["tokenizer.ggml.merges"])}
    characters = byte_characters()

    def merged(word: list[str]) -> list[str]:
        while len(word) > 1:
            best = min(pairwise(word), key=lambda pair: ranks.get(pair, len(ranks)))
            if best not in ranks:
                break
            joined = []
            place = 0
            while place < len(word):
                found = tuple(word[place : place + 2]) == best
                joined.append("".join(best) if found else word[place])
                place += 2 if found else 1
            word = joined
        return word

    def encoded(text: str) -> list[int]:
        pieces = [piece for part in regex.split(r"(\p{N})", text) for piece in GPT2.findall(part)]
        words = [merged([characters[byte] for byte in piece.encode()]) for piece in pieces]
        return [ids[token] for word in words for token in word]

    return encoded


def test_ids_are_those_that_the_vocabulary_and_the_pre_tokenizer_imply(
    default_model_folder: Path, encode: Callable[[str], list[int]]
) -> None:
    plain = Tokenizer.from_file(str(default_model_folder / "tokenizer.json"))
    through_mlx = mlx_lm_utils.load_tokenizer(default_model_folder)
    for text in TEXTS:
        assert plain.encode(text).ids == encode(text), text
        assert through_mlx.encode(text) == encode(text), text


def test_text_comes_back_whole(default_model_folder: Path) -> None:
    tokenizer = mlx_lm_utils.load_tokenizer(default_model_folder)
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_chat_template_and_ends_are_those_of_the_file(default_model_folder: Path, metadata: dict[str, object]) -> None:
    tokenizer = mlx_lm_utils.load_tokenizer(
        default_model_folder,
        eos_token_ids=json.loads((default_model_folder / "generation_config.json").read_text())["eos_token_id"],
    )
    assert tokenizer.chat_template == metadata["tokenizer.chat_template"]
    assert tokenizer.eos_token_ids == {0, 2}
    ids = tokenizer.apply_chat_template([{"role": "user", "content": "Hi"}], add_generation_prompt=True)
    assert (ids[0], ids.count(1), ids.count(2)) == (1, 3, 2)
    assert tokenizer.decode(ids).endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_stock_mlx_lm_answers_sensibly(default_model_folder: Path) -> None:
    model, tokenizer = load(str(default_model_folder))
    model = mlx_lm_utils.dequantize_model(model)
    model.set_dtype(mx.float32)

    def answer(question: str) -> str:
        messages = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        return generate(model, tokenizer, prompt, max_tokens=24)

    assert answer("What is the capital of France?") == "The capital of France is Paris."
    assert "def " in answer("Write a Python function that adds two numbers.")
