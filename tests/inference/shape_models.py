"""A small llama whose tokens can spell JSON, some of them several characters long."""

import json
import random
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import llguidance

from rdchat.inference.api import AnswerShape
from rdchat.inference.decoding.reply_matcher import ReplyMatcher
from rdchat.inference.decoding.shape_matcher import ShapeVocabulary
from rdchat.inference.prompts.shape_grammar import check_grammar, grammar_of
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess
from rdchat.inference.verification.target import LoadedModel
from rdchat.json_schema import limits, reject_unfit
from tests.inference.fakes import CharacterPrompts, loaded
from tests.inference.families import CHAINS, TREES, network_of

ALPHABET = [
    "\0",
    "\n",
    *map(chr, range(32, 127)),
    "é",
    '{"',
    '":',
    '": ',
    '", "',
    ", ",
    "true",
    "null",
    "ab",
    "}]",
    '"}',
]
END = 0


def takes(shape: AnswerShape, value: Any) -> bool:
    """Return whether the grammar of a shape takes a value."""
    check_grammar(shape)
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar_of(shape), log_level=0, limits=limits())
    text = json.dumps(value, ensure_ascii=False).encode()
    return all(matcher.consume_token(byte) for byte in text) and matcher.is_accepting()


class JsonTokenizer:
    """Encodes by the longest token; id 0 ends a reply."""

    alphabet = ALPHABET
    has_chat_template = True
    eos_token_ids = frozenset({END})

    def __len__(self) -> int:
        return len(self.alphabet)

    def encode(self, text: str, **_options: object) -> list[int]:
        ids = []
        while text:
            token = max((t for t in self.alphabet if text.startswith(t)), key=len, default=" ")
            ids.append(self.alphabet.index(token))
            text = text[len(token) :]
        return ids

    def decode(self, token_ids: list[int], **_options: object) -> str:
        return "".join(self.alphabet[token] for token in token_ids)

    def apply_chat_template(self, turns: list[dict[str, str]], add_generation_prompt: bool, tokenize: bool) -> str:
        return "\n".join(f"{turn['role']}: {turn['content']}" for turn in turns) + "\nassistant: "


class ThinkingTokenizer(JsonTokenizer):
    """Its template opens a thought, and has no switch for that."""

    def __init__(self, spelled: Mapping[str, str]) -> None:
        self.alphabet = [spelled.get(token, token) for token in ALPHABET]

    def apply_chat_template(self, turns: list[dict[str, str]], add_generation_prompt: bool, tokenize: bool) -> str:
        return super().apply_chat_template(turns, add_generation_prompt, tokenize) + "<think>\n"


class OwnProcess(TokenizerProcess):
    """Checks shapes and answers in this process."""

    def check_shape(self, shape: AnswerShape, waiting: object = None) -> None:
        check_grammar(shape)

    def check_answer(self, shape: AnswerShape, answer: str) -> None:
        reject_unfit(answer, shape.unenforced)


class JsonPrompts(CharacterPrompts):
    """Starts no process."""

    def __init__(self, tokenizer: JsonTokenizer) -> None:
        super().__init__(tokenizer)  # type: ignore[arg-type]
        self.process = OwnProcess()


@cache
def json_model(family: str = "llama") -> LoadedModel:
    """Return a small model of one of `families`; none may change it."""
    module, options = (TREES | CHAINS)[family]
    model = loaded(network_of(module, {**options, "vocab_size": len(ALPHABET)}, "float32"))
    tokenizer = JsonTokenizer()
    info = replace(model.info, vocabulary_size=len(ALPHABET))
    return replace(model, info=info, tokenizer=tokenizer, prompts=JsonPrompts(tokenizer))  # type: ignore[arg-type]


@cache
def thinking_model(controls: int) -> LoadedModel:
    """Return a small model that always thinks; none may change it.

    The marker that ends its thought is text, is one control token, or begins and ends with one.
    """
    spelled = [{"Q": "</think>", "J": "</", "V": "think>"}, {"Q": "</think>"}, {"Q": "</", "V": "think"}][controls]
    tokenizer = ThinkingTokenizer(spelled)
    prompts = JsonPrompts(tokenizer)
    marks = [[], ["</think>"], ["</", ">"]][controls]
    prompts.control = {tokenizer.alphabet.index(mark): mark for mark in marks}
    return replace(json_model(), tokenizer=tokenizer, prompts=prompts)  # type: ignore[arg-type]


def matcher_of(model: LoadedModel, shape: AnswerShape, closing: str = "", begun: str = "") -> ReplyMatcher:
    rules = ShapeVocabulary(model).rules(shape, closing, begun)
    return ReplyMatcher(rules, model.info.vocabulary_size, model.end_tokens)


_LEAVES: list[dict[str, Any]] = [
    {"type": "integer", "minimum": -20, "maximum": 300},
    {"type": "boolean"},
    {"type": "null"},
    {"enum": ["red", "green", 7, None]},
    {"const": "fixed"},
    {"type": "string", "maxLength": 6},
    {"type": "string", "pattern": "^[a-c]{1,4}$"},
    {"type": "number", "minimum": 0, "maximum": 9},
]


def schema(rng: random.Random, depth: int = 0) -> dict[str, Any]:
    """Return a schema whose answers are short: objects, lists and leaves of all kinds."""
    kind = rng.choice(["object", "list", "leaf", "any"] if depth < 2 else ["leaf"]) if depth else "object"
    if kind == "leaf":
        return rng.choice(_LEAVES)
    if kind == "any":
        return {"anyOf": [schema(rng, depth + 1) for _ in range(2)]}
    if kind == "list":
        least = rng.randint(0, 1)
        return {"type": "array", "items": schema(rng, depth + 1), "minItems": least, "maxItems": least + 2}
    names = rng.sample(["a", "name", "x y", "é", "size"], rng.randint(1, 3))
    needed = [name for name in names if rng.random() < 0.7]
    properties = {name: schema(rng, depth + 1) for name in names}
    return {"type": "object", "properties": properties, "required": needed, "additionalProperties": False}
