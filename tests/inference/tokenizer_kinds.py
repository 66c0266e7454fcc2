"""Tokenizers of each kind, with the bytes of their tokens as their vocabularies spell them."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from mlx_lm.tokenizer_utils import TokenizerWrapper
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

TEXTS = ["the quick brown fox jumps over the lazy dog", "a b c a b c", "naïve café 漢字 😀 \ufffd", "12 345"] * 20
SPECIAL = ("<unk>", "<s>", "</s>", "<|im_end|>")
_BYTE_OF = {character: byte for byte, character in bytes_to_unicode().items()}


@dataclass(frozen=True)
class Kind:
    """A kind of tokenizer.

    Attributes:
        own: The tokenizer.
        data: Returns the bytes of a token, by its spelling in the vocabulary.
    """

    own: Tokenizer
    data: Callable[[str], bytes]

    @property
    def tokens(self) -> list[bytes]:
        """The bytes of all tokens, by their ids."""
        added = {token_id: token.content for token_id, token in self.own.get_added_tokens_decoder().items()}
        spelled = sorted(self.own.get_vocab().items(), key=lambda pair: pair[1])
        return [added[number].encode() if number in added else self.data(text) for text, number in spelled]

    @property
    def loaded(self) -> Any:
        """The tokenizer as mlx-lm has it, without an end token."""
        return TokenizerWrapper(PreTrainedTokenizerFast(tokenizer_object=self.own), eos_token_ids=())


def letters(*added: str) -> Tokenizer:
    """Return a byte-level BPE; tokens may be added that are words."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=list(SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(TEXTS, trainer)
    made.add_tokens([AddedToken(each, normalized=False) for each in added])
    return made


def pieces(decoder: Any, normalizer: Any = None, pre_tokenizer: Any = None) -> Tokenizer:
    """Return a BPE with byte tokens and word marks, as SentencePiece makes them."""
    trained = Tokenizer(models.BPE())
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.train_from_iterator(TEXTS, trainers.BpeTrainer(vocab_size=200, show_progress=False))
    made = json.loads(trained.to_str())["model"]
    vocabulary = {text: number for number, text in enumerate(SPECIAL)}
    for text in (*(f"<0x{byte:02X}>" for byte in range(256)), *sorted(made["vocab"], key=made["vocab"].__getitem__)):
        vocabulary.setdefault(text, len(vocabulary))
    merges = [tuple(merge) for merge in made["merges"]]
    whole = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    if normalizer is not None:
        whole.normalizer = normalizer
    if pre_tokenizer is not None:
        whole.pre_tokenizer = pre_tokenizer
    whole.decoder = decoder
    whole.add_special_tokens([AddedToken(each, special=True) for each in SPECIAL])
    return whole


def _piece_data(spelled: str) -> bytes:
    if len(spelled) == 6 and spelled.startswith("<0x"):
        return bytes.fromhex(spelled[3:5])
    return spelled.replace("▁", " ").encode()


@cache
def kinds() -> dict[str, Kind]:
    """Return a tokenizer of each kind that models have."""
    to_blank = decoders.Replace("▁", " ")
    fallback = decoders.ByteFallback()
    fuse = decoders.Fuse()
    marks = normalizers.Replace(" ", "▁")
    begins = normalizers.Sequence([normalizers.Prepend("▁"), marks])
    stripped = decoders.Sequence([to_blank, fallback, fuse, decoders.Strip(" ", 1, 0)])
    metaspace = decoders.Sequence([fallback, decoders.Metaspace("▁", "first", False)])
    before = pre_tokenizers.Metaspace("▁", "first", False)
    return {
        "byte-level": Kind(letters(), lambda spelled: bytes(map(_BYTE_OF.__getitem__, spelled))),
        "byte-level with words": Kind(
            letters("süß", "naïve", "漢字"), lambda spelled: bytes(map(_BYTE_OF.__getitem__, spelled))
        ),
        "Gemma": Kind(pieces(decoders.Sequence([to_blank, fallback, fuse]), marks), _piece_data),
        "Llama 2": Kind(pieces(stripped, begins), _piece_data),
        "metaspace": Kind(pieces(metaspace, pre_tokenizer=before), _piece_data),
    }
