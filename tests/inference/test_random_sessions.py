"""Law: each reply of a session, whatever came before it, is that of a new session without drafts: tokens and text.

`SESSIONS=20 make test-slow ARGS=tests/inference/test_random_sessions.py` walks twenty sessions of each model.
Beside the usual settings, walks have odd ones: tokenizers of bytes and of words, penalties below 1, temperatures near
0, shapes in the middle of a chat, limits of thoughts, and kept caches that were harmed.
"""

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import mlx.core as mx
import pytest
from mlx.utils import tree_flatten
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteFallback, Fuse, Replace as Replaced, Sequence as Sequenced
from tokenizers.models import WordLevel
from tokenizers.normalizers import Replace as Normalized
from tokenizers.pre_tokenizers import Split

from rdchat.errors import PromptTooLongError
from rdchat.inference.api import (
    AnswerShape,
    CacheFolder,
    ChatImage,
    ChatMessage,
    DraftSettings,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    Mode,
    ReplyEnd,
    Role,
    SamplingParams,
    ShapeKind,
    StoppedError,
    ThinkingChoice,
)
from rdchat.inference.drafting.reply_index import ReplyIndex
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from rdchat.inference.vision.image_rows import TowerInput
from tests.inference import fakes
from tests.inference.caches_on_disk.kept import PLENTY, chat_folder, small_blocks
from tests.inference.fakes import ALPHABET, shared_family, shared_llama, token_events
from tests.inference.families import COMMON, TREES, network_of
from tests.inference.plain_replies import plain
from tests.inference.prompts.folders import QWEN
from tests.inference.ready_drafters import ready_session, settings_of
from tests.inference.tokenizer_kinds import SPECIAL, letters, pieces
from tests.inference.vision.seeing_models import picture, seeing_folder

__all__ = ["chat_folder", "small_blocks"]
pytestmark = [pytest.mark.slow, pytest.mark.across_rows, pytest.mark.usefixtures("small_blocks")]

SESSIONS = int(os.environ.get("SESSIONS", "1"))
STEPS = 12
MODELS = fakes.MODELS | {
    "a window longer than the chat": partial(shared_llama, sliding_window=400),
    "a short context": partial(shared_llama, context_length=150),
} | {
    name: partial(shared_family, name)
    for name in (
        "gemma3", "gpt_oss", "deepseek_v3", "qwen3_moe", "cohere2", "mamba2", "llama4", "gpt2",
        "qwen3_5", "kimi_linear", "nemotron_h", "granitemoehybrid", "falcon_h1", "jamba", "rwkv7", "recurrent_gemma",
    )
}  # fmt: skip
SEEING = ("smolvlm", "qwen3_5", "qwen3_vl", "qwen2_5_vl", "gemma3", "gemma4", "gemma4_e", "lfm2_vl", "mistral3")
_SHAPES = (
    AnswerShape(ShapeKind.REGEX, "[ab ]{2,9}c?"),
    AnswerShape(ShapeKind.REGEX, " (brown fox|lazy dog) ?"),
    AnswerShape(ShapeKind.SCHEMA, '{"enum": ["red", "a fox", 7, null]}'),
)
_LONGEST = 260
_WORDS = ("abcabcabc", "hello there", "so it is", "an apple and a pear and an apple", "more", "a", "what is this. ")


class Walk:
    """A person's random steps through chats with one model.

    Args:
        model: The target.
        alone: The same model, loaded a second time if it sees: it makes the replies to compare with.
        small: The draft model; None for a small llama.
        folder: Where KV caches are kept.
        images: The images that messages may have.
        words: Whether the model has a tokenizer of words, so that a reply may have a shape, and a switch for thoughts.
        seed: Decides all.
    """

    def __init__(
        self,
        model: LoadedModel,
        alone: LoadedModel,
        small: LoadedModel | None,
        folder: Path,
        images: Sequence[ChatImage],
        words: bool,
        seed: int,
    ) -> None:
        self.alone = alone
        self.images = images
        self.words = words
        self.folder = folder
        self.random = Random(seed)
        self._open = partial(ready_session, model, small)
        self.session = self._open(cache_bytes=PLENTY)
        self.chats: list[list[ChatMessage]] = [[], []]
        self.told = list[str]()
        self.compared = 0

    def walk(self, steps: int) -> None:
        for _ in range(steps):
            chat = self.random.choice(self.chats)
            request = self._request(chat, goes_on=self._change(chat))
            self._reply(chat, request)
        self.session.disk.finish_writing(60)

    def _question(self) -> ChatMessage:
        words = " ".join(self.random.choices(_WORDS, k=self.random.randint(1, 3)))
        shown = self.random.sample(self.images, self.random.choice((0, 1, 1, 2))) if self.images else ()
        return ChatMessage(Role.USER, words, images=tuple(shown))

    def _change(self, chat: list[ChatMessage]) -> bool:
        """Change a chat as a person does; return whether its last reply is to be continued."""
        draw = self.random
        asked = [at for at, message in enumerate(chat) if message.role is Role.USER]
        step = draw.choice(
            ("ask", "ask", "ask", "edit", "again", "again", "continue", "swap", "swap", "restart", "forget", "harm")
        )
        if sum(len(message.content) + 40 * len(message.images) for message in chat) > _LONGEST:
            chat.clear()
        elif asked and step == "edit":
            del chat[draw.choice(asked) :]
        elif step == "again" and chat and chat[-1].role is Role.ASSISTANT:
            del chat[-1]
        elif step == "continue" and chat and chat[-1].role is Role.ASSISTANT and chat[-1].content:
            self.told.append(step)
            return True
        elif asked and step == "swap" and self.images:
            at = draw.choice(asked)
            chat[at] = replace(self._question(), content=chat[at].content)
        elif step == "restart":
            self.session.disk.finish_writing(60)
            self.session = self._open(cache_bytes=draw.choice((0, PLENTY)))
        elif step == "forget":
            self.session.drop_caches()
        elif step == "harm":
            self._harm_kept_caches()
        self.told.append(step)
        if not chat or chat[-1].role is Role.ASSISTANT:
            chat.append(self._question())
        return False

    def _harm_kept_caches(self) -> None:
        """Change, cut or remove a file of the kept caches, and restart, so that they are read."""
        self.session.disk.finish_writing(60)
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        if files:
            path = self.random.choice(files)
            data = bytearray(path.read_bytes())
            if data:
                data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
            harmed = self.random.choice((bytes(data), bytes(data[: len(data) // 2]), b""))
            path.write_bytes(harmed)
        self.session = self._open(cache_bytes=PLENTY)

    def _request(self, chat: list[ChatMessage], *, goes_on: bool) -> GenerationRequest:
        draw = self.random
        sampling = SamplingParams(
            temperature=draw.choice((0.0, 0.9, 1e-5, 0.05, 1.6)),
            top_p=draw.choice((1.0, 0.9)),
            top_k=draw.choice((0, 0, 6)),
            min_p=draw.choice((0.0, 0.05)),
            repetition_penalty=draw.choice((1.0, 1.0, 1.3, 0.7)),
            presence_penalty=draw.choice((0.0, 0.0, 0.6, -0.6)),
            frequency_penalty=draw.choice((0.0, 0.0, 0.4, -0.4)),
            max_tokens=draw.choice((1, 2, 5, 9, 14, 20)),
            stop=draw.choice(((), (), ("a",), ("e ", "qq"))),
        )
        earlier = None
        if draw.random() < 0.3:
            earlier = ReplyIndex({1: [draw.randrange(60) for _ in range(40)]})
        return GenerationRequest(
            tuple(chat),
            sampling,
            draw.choice((0, 1, 2, 3, 2**64 - 1)),
            continue_last=goes_on,
            draft=replace(settings_of(draw.choice([*Mode])), trace=draw.random() < 0.2),
            partition=draw.choice(("", "", "another")),
            keep=CacheFolder(self.folder, PLENTY) if draw.random() < 0.6 else None,
            earlier=earlier,
            shape=draw.choice(_SHAPES) if self.words and not goes_on and draw.random() < 0.3 else None,
            thinking=draw.choice((None, ThinkingChoice.OFF, ThinkingChoice.ON)) if self.words else None,
            thinking_tokens=draw.choice((None, None, 0, 3)) if self.words else None,
        )

    def _reply(self, chat: list[ChatMessage], request: GenerationRequest) -> None:
        """Have a request answered, all or in part, and compare it."""
        draw = self.random
        if isinstance(self.alone.image_input, TowerInput):
            # Each image is seen anew.
            self.alone.image_input._rows._recent.clear()
        try:
            expected = plain(self.alone, self._undrafted(request))
        except PromptTooLongError:
            with pytest.raises(PromptTooLongError):
                self.session.generate(request)
            chat.clear()
            return
        ending = draw.choice(("whole", "whole", "whole", "cancel", "close", "leave", "stop"))
        at = draw.randint(1, 14)
        self.told.append(f"{ending} at {at}, {request.draft.mode.value}")
        events = list[GenerationEvent]()
        with suppress(StoppedError):
            running = self.session.generate(request, (lambda: True) if ending == "stop" else (lambda: False))
            for event in running:
                events.append(event)
                if len(events) == at and ending == "cancel":
                    running.cancel()
                elif len(events) == at and ending == "close":
                    running.close()
                    break
                elif len(events) == at and ending == "leave":
                    break
                elif len(events) == at and draw.random() < 0.3:
                    running.update(replace(request.draft, draft_tokens=draw.randint(1, 6), profile=True))
        self._compare(events, expected)
        said = "".join(event.text for event in token_events(events))
        if request.continue_last:
            chat[-1] = replace(chat[-1], content=chat[-1].content + said)
        elif said.strip():
            chat.append(ChatMessage(Role.ASSISTANT, said))

    def _undrafted(self, request: GenerationRequest) -> GenerationRequest:
        return replace(request, draft=DraftSettings(Mode.OFF), keep=None, partition="", earlier=None)

    def _compare(self, events: list[GenerationEvent], expected: ReplyEnd) -> None:
        tokens = [event.token_id for event in token_events(events)]
        said = "".join(event.text for event in token_events(events))
        both = min(len(tokens), len(expected.token_ids))
        assert (tokens[:both], expected.text.startswith(said)) == ([*expected.token_ids[:both]], True), self.told
        if events and isinstance(end := events[-1], ReplyEnd) and end.finish_reason is not FinishReason.CANCELLED:
            found = (end.token_ids, end.text, end.finish_reason, said + end.trailing_text)
            assert found == (expected.token_ids, expected.text, expected.finish_reason, expected.text), self.told
            self.compared += 1


def word_level() -> Tokenizer:
    """Return a tokenizer of whole words, blanks and marks, with `.` for what it does not know."""
    texts = (*_WORDS, "brown fox lazy dog red null 7 user assistant")
    words = {word for text in texts for word in (*text.split(), *text)} | set('"\n{}')
    vocabulary = {word: number for number, word in enumerate(sorted(words | set(SPECIAL)))}
    made = Tokenizer(WordLevel(vocabulary, unk_token="."))
    made.pre_tokenizer = Split(" ", "isolated")
    made.decoder = Fuse()
    made.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in SPECIAL])
    return made


# Of bytes, of pieces with a token for each byte, and of words.
TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "bytes": letters,
    "pieces": lambda: pieces(Sequenced([Replaced("\u2581", " "), ByteFallback(), Fuse()]), Normalized(" ", "\u2581")),
    "words": word_level,
}


def worded_folder(folder: Path, tokenizer: Tokenizer) -> Path:
    """Write the folder of a small llama with a tokenizer, whose template can switch thoughts off."""
    folder.mkdir()
    tokenizer.add_tokens([AddedToken(each, normalized=False) for each in ("<think>", "</think>", "<|im_start|>")])
    tokenizer.save(str(folder / "tokenizer.json"))
    own = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": QWEN}
    (folder / "tokenizer_config.json").write_text(json.dumps(own))
    module, options = TREES["llama"]
    config = {**COMMON, **options, "vocab_size": tokenizer.get_vocab_size(), "tie_word_embeddings": False}
    network = network_of(module, config)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(network.parameters())))
    (folder / "config.json").write_text(json.dumps({"model_type": module, **config}))
    return folder


def walk_all(
    model: LoadedModel,
    alone: LoadedModel,
    small: LoadedModel | None,
    folder: Path,
    images: Sequence[ChatImage] = (),
    *,
    words: bool = False,
) -> None:
    for seed in range(SESSIONS):
        place = folder / str(seed)
        place.mkdir()
        walk = Walk(model, alone, small, place, images, words, seed)
        walk.walk(STEPS)
        assert walk.compared > STEPS // 4, "most replies are whole"
        assert isinstance(walk.session, ChatSession)


@pytest.mark.parametrize("name", MODELS)
def test_each_reply_is_that_of_a_new_session(name: str, chat_folder: Path) -> None:
    model = MODELS[name]()
    assert len(ALPHABET) == model.info.vocabulary_size
    walk_all(model, model, None, chat_folder)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_each_reply_in_words_is_that_of_a_new_session(kind: str, tmp_path: Path, chat_folder: Path) -> None:
    model = load_model(worded_folder(tmp_path / "model", TOKENIZERS[kind]()), "float32")
    walk_all(model, model, model, chat_folder, words=True)


@pytest.mark.parametrize("kind", SEEING)
def test_each_reply_to_images_is_that_of_a_new_session(kind: str, tmp_path: Path, chat_folder: Path) -> None:
    images = [picture(tmp_path / f"images{number}", 40 - 8 * number, 24 + 8 * number) for number in range(2)]
    # Two of the same size differ in their pixels alone.
    images.append(picture(tmp_path / "mirrored", mirrored=True))
    folder = seeing_folder(tmp_path / kind, kind)
    model, alone = (load_model(folder, "float32") for _ in range(2))
    walk_all(model, alone, model, chat_folder, images)
