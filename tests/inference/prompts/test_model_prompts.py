"""Tokenizers give texts back as they were, with ids that the model has, and their counts are those of prompts."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors

from rdchat.errors import ModelError, PromptTooLongError
from rdchat.inference.api import (
    AnswerShape,
    ChatMessage,
    GenerationRequest,
    ReplyEnd,
    Role,
    SamplingParams,
    ShapeKind,
    ThinkingChoice,
)
from rdchat.inference.loading import load_model
from rdchat.inference.prompts.model_prompts import ModelPrompts, check_round_trip, read_tokenizer
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess
from rdchat.inference.prompts.tokenizers_child import TokenizerCalls
from rdchat.inference.session import ChatSession
from tests.inference.prompts.folders import assistant, changed, edited, prompts_of, user, with_template
from tests.inference.tokenizer_kinds import Kind, kinds

BLANK = " "
MARK = "▁"
PIECES = decoders.Sequence([decoders.Replace(MARK, BLANK), decoders.ByteFallback(), decoders.Fuse()])
NORMALIZERS = (None, normalizers.Replace(BLANK, MARK), normalizers.Replace("\n", BLANK), normalizers.ByteLevel())
PRE_TOKENIZERS = (
    None,
    pre_tokenizers.ByteLevel(add_prefix_space=False),
    pre_tokenizers.Metaspace(MARK, "first", False),
    pre_tokenizers.Whitespace(),
)
DECODERS = (None, decoders.ByteLevel(), PIECES, decoders.Metaspace(MARK, "first", False), decoders.WordPiece("##"))
RULES = tuple(product(NORMALIZERS, PRE_TOKENIZERS, DECODERS))


def with_rules(name: str, normalizer: Any, pre_tokenizer: Any, decoder: Any) -> Any:
    """Return a tokenizer with the vocabulary of a kind, and other rules."""
    own = Tokenizer.from_str(kinds()[name].own.to_str())
    own.normalizer = normalizer
    own.pre_tokenizer = pre_tokenizer
    own.decoder = decoder
    return Kind(own, str.encode).loaded


@pytest.mark.parametrize("name", ["byte-level", "Gemma"])
def test_no_tokenizer_changes_a_text_unsaid(name: str) -> None:
    unsaid = []
    for number, rules in enumerate(RULES):
        tokenizer = with_rules(name, *rules)
        try:
            warning = check_round_trip(tokenizer, "copy")
        except ModelError:
            continue
        for text in ("a b\nc", "the  fox\n\n a", "lazy dog\n"):
            read = tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)).removeprefix(BLANK)
            if read != text and not warning:
                unsaid.append((number, text, read))
    assert unsaid == []


@pytest.mark.parametrize("name", kinds())
def test_a_tokenizer_as_its_authors_made_it_is_no_news(name: str) -> None:
    assert check_round_trip(kinds()[name].loaded, "copy") == ""


@pytest.mark.parametrize("decoder", [each for each in DECODERS if not isinstance(each, decoders.ByteLevel)])
@pytest.mark.parametrize("rule", [(None, PRE_TOKENIZERS[1]), (NORMALIZERS[3], None)])
def test_a_decoder_that_a_conversion_changed_is_mended(rule: tuple[Any, Any], decoder: Any) -> None:
    tokenizer = with_rules("byte-level", *rule, decoder)
    assert check_round_trip(tokenizer, "copy") == ""
    text = "naïve  café\n\t漢字 😀"
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


@pytest.mark.parametrize("pre_tokenizer", [PRE_TOKENIZERS[0], *PRE_TOKENIZERS[2:]])
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_lost_pattern_is_refused(pre_tokenizer: Any, decoder: Any) -> None:
    with pytest.raises(ModelError, match="A conversion damaged the tokenizer of copy") as refused:
        check_round_trip(with_rules("byte-level", None, pre_tokenizer, decoder), "copy")
    assert "Download another copy" in refused.value.hint


def lose_line_ends(tokenizer: dict[str, Any]) -> None:
    tokenizer["normalizer"] = {"type": "Replace", "pattern": {"String": "\n"}, "content": " "}


def lose_decoder(tokenizer: dict[str, Any]) -> None:
    tokenizer["decoder"] = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "first", "split": False}


def lose_pattern(tokenizer: dict[str, Any]) -> None:
    lose_decoder(tokenizer)
    tokenizer["pre_tokenizer"] = tokenizer["decoder"]


@pytest.mark.parametrize(
    ("harm", "warning"),
    [(lose_decoder, ""), (lose_line_ends, "The tokenizer of model turns 'a b\\nc' into 'a b c'")],
)
def test_a_model_is_loaded_with_a_warning(folder: Path, harm: Callable[[dict[str, Any]], None], warning: str) -> None:
    model = load_model(edited(folder, "tokenizer.json", harm), "float32")
    assert model.info.warning.partition(". If")[0] == warning
    assert model.info.may_differ == bool(warning)
    assert model.decode(model.prompts.encode_text("one word")) == "one word"


def test_a_model_whose_pattern_is_lost_is_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match="loses the blanks"):
        load_model(edited(folder, "tokenizer.json", lose_pattern), "float32")


LOOP = "{% for m in messages %}[{{ m.role }}]\n{{ m.content }}AFTER{% endfor %}"
OPEN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
THOUGHT = "{% if m.thinking %}{{ m.thinking }}<|im_end|>{% endif %}"


def ends(folder: Path, process: TokenizerProcess) -> set[int]:
    """Return the ids that end a reply of a model whose files name the id 0 alone."""
    (folder / "generation_config.json").unlink()
    edited(folder, "config.json", lambda config: config.update(eos_token_id=0))
    edited(folder, "tokenizer_config.json", lambda config: config.update(eos_token="<|endoftext|>"))
    return set(read_tokenizer(folder, process).eos_token_ids)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        (LOOP.replace("AFTER", "<|im_end|>\n") + OPEN, {0, 2}),
        (LOOP.replace("AFTER", " \n<|im_end|>") + OPEN, {0, 2}),
        (LOOP.replace("AFTER", "<|im_end|><file_sep>") + OPEN, {0, 2}),
        (LOOP.replace("AFTER", "{% if not loop.last %}<|im_end|>{% endif %}") + OPEN, {0, 2}),
        (LOOP.replace("AFTER", "<|endoftext|>") + OPEN, {0}),
        (LOOP.replace("AFTER", "\n### End <|im_end|>\n") + OPEN, {0}),
        (LOOP.replace("AFTER", "") + OPEN, {0}),
        (LOOP.replace("{{ m.content }}", THOUGHT + "{{ m.content }}").replace("AFTER", "<|im_end|>") + OPEN, {0}),
        ("{{ raise_exception('no') }}", {0}),
        ("a text without messages", {0}),
    ],
)
def test_the_control_token_directly_after_a_reply_ends_replies(
    folder: Path, process: TokenizerProcess, template: str, expected: set[int]
) -> None:
    assert ends(with_template(folder, folder, template), process) == expected


@pytest.mark.parametrize(
    ("part", "counts"),
    [({"eos_token_id": 2}, True), ({"eos_token_id": [2, 0]}, True), (None, False), ("none", False), (1, False),
     ({"eos_token_id": "2"}, False), ({"eos_token_id": True}, False), ({}, False)],
)  # fmt: skip
def test_a_text_models_own_end_counts(folder: Path, process: TokenizerProcess, part: object, counts: bool) -> None:
    with_template(folder, folder, LOOP.replace("AFTER", "\n"))
    edited(folder, "config.json", lambda config: config.update(text_config=part))
    assert ends(folder, process) == ({0, 2} if counts else {0})


@pytest.mark.parametrize(
    ("written", "expected"),
    [(0, 0), ([0], 0), ([], 1), (None, 1), ("0", 1), (True, 1), ([0, "1", None], 0), ({"a": 0}, 1)],
)
def test_the_end_in_generation_config_counts_before_that_of_the_model(
    folder: Path, process: TokenizerProcess, written: object, expected: int
) -> None:
    with_template(folder, folder, LOOP.replace("AFTER", "\n"))
    edited(folder, "config.json", lambda config: config.update(eos_token_id=1))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": written}))
    # The tokenizer's own counts in any case.
    assert set(read_tokenizer(folder, process).eos_token_ids) == {expected, 2}


def test_the_count_is_that_of_the_prompt(small_model: Path) -> None:
    prompts = prompts_of(small_model)
    chat = (user("Hello <|im_end|> there"), assistant("Hi!"), user("What is \u6f22?"))
    assert prompts.count(chat, 512) == len(prompts.encode(chat, None, 512))
    assert prompts.count((), 512) == 0


def test_the_count_of_a_request_is_that_of_its_prompt(
    templated: Callable[[str], ModelPrompts],
) -> None:
    template = "{{ tools }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
    prompts = templated(template)
    chat = (user("Hello"), assistant("Well, "))
    tools = json.dumps([{"type": "function", "function": {"name": "look"}}])
    begun = prompts.count(GenerationRequest(chat, continue_last=True), 512)
    assert begun == len(prompts.encode(chat[:1], chat[1], 512))
    assert begun != prompts.count(chat, 512)
    asked = prompts.count(GenerationRequest(chat[:1], tools=tools), 512)
    assert asked == len(prompts.encode(chat[:1], None, 512, tools=tools)) > prompts.count(chat[:1], 512)


def test_an_answer_with_a_shape_is_counted_without_its_thought(
    templated: Callable[[str], ModelPrompts],
) -> None:
    template = "{{ messages[0].content }}{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    prompts = templated(template)
    plain = GenerationRequest((user("Hello"),), thinking=ThinkingChoice.ON)
    off = replace(plain, thinking=ThinkingChoice.OFF)
    shaped = replace(plain, shape=AnswerShape(ShapeKind.JSON))
    assert prompts.encode_request(shaped, 512) == prompts.encode_request(off, 512)
    assert prompts.count(shaped, 512) == prompts.count(off, 512) > prompts.count(plain, 512)


def test_far_more_than_the_context_is_not_counted_to_the_end(small_model: Path) -> None:
    with pytest.raises(PromptTooLongError):
        prompts_of(small_model).count((user("word " * 100_000),), 16)


@pytest.mark.slow  # it starts another child
def test_threads_take_turns_also_where_the_child_was_ended(small_model: Path, process: TokenizerProcess) -> None:
    prompts = prompts_of(small_model)
    chat = (user("Hello"),)
    expected = prompts.count(chat, 512)
    process.child.close()  # as a request that takes too long has it
    with ThreadPoolExecutor(4) as threads:
        counts = threads.map(lambda _: prompts.count(chat, 512), range(4))
    assert [*counts] == [expected] * 4


ROWS = 265  # of the small model


def add(token: str, token_id: int, *, special: bool = True) -> Any:
    """Return the change that gives a tokenizer another added token."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special}
    return lambda tokenizer: tokenizer["added_tokens"].append({"id": token_id, "content": token, **flags})


def grown(token_id: int) -> Any:
    return lambda tokenizer: tokenizer["model"]["vocab"].update(zz=token_id)


@pytest.mark.parametrize(
    ("change", "named"),
    [(grown(ROWS), "265 ('zz'), but the model has 265 rows"), (grown(10**6), "1,000,000 ('zz')"),
     (add("<far>", ROWS), "265 ('<far>')"), (add("word", ROWS, special=False), "265 ('word')")],
)  # fmt: skip
def test_a_token_beyond_the_model_s_rows_is_refused_at_load(folder: Path, change: Any, named: str) -> None:
    """A control token that the template writes, and a word, which a message with it would become."""
    edited(folder, "tokenizer.json", change)
    edited(folder, "tokenizer_config.json", lambda config: config.update(chat_template="<far>"))
    with pytest.raises(ModelError, match=re.escape(f"a token {named}")):
        load_model(folder)


def test_a_special_token_beyond_the_rows_is_plain_text(folder: Path, small_model: Path) -> None:
    """Gemma 3's tokenizer has a token for images that the models that only read have no row for."""
    edited(folder, "tokenizer.json", add("<image_soft_token>", ROWS))
    model = load_model(folder)
    text = "a <image_soft_token> b"
    typed = (ChatMessage(Role.USER, text),)
    assert model.encode_chat(typed) == load_model(small_model).encode_chat(typed)
    for request in (
        GenerationRequest(typed, SamplingParams(temperature=0.9, max_tokens=8), 3),
        GenerationRequest(typed, SamplingParams(temperature=0.9, max_tokens=8), 3, shape=AnswerShape(ShapeKind.JSON)),
        GenerationRequest((), SamplingParams(temperature=0, max_tokens=8), 3, text=text),
    ):
        *_, end = ChatSession(model).generate(request)
        assert isinstance(end, ReplyEnd)
        assert max(end.token_ids) < ROWS


def test_a_vocabulary_that_is_larger_only_by_padding_is_fine(folder: Path) -> None:
    edited(folder, "tokenizer.json", add("[PAD265]", ROWS))
    model = load_model(folder)
    assert max(model.encode_chat((ChatMessage(Role.USER, "a [PAD265] b"),))) < ROWS


def test_a_token_of_the_template_that_the_model_does_not_have_is_not_fed(folder: Path) -> None:
    edited(folder, "tokenizer.json", add("[PAD265]", ROWS))
    edited(folder, "tokenizer_config.json", lambda config: config.update(chat_template="[PAD265]"))
    model = load_model(folder)
    with pytest.raises(ModelError, match="a token 265, for which model has no embedding"):
        model.encode_chat((ChatMessage(Role.USER, ""),))


GROWTH = {"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 9}] * 9}


@pytest.mark.slow
def test_a_normaliser_that_grows_its_input_ends_the_child_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rdchat.inference.prompts.tokenizer_process._LOAD_S", 1.0)
    edited(folder, "tokenizer.json", lambda tok: tok.update(normalizer=GROWTH))
    with pytest.raises(ModelError, match=r"The tokenizer of model .* (so it was ended|crashed)|cannot be used"):
        prompts_of(folder)


HARMFUL_DECODERS = [
    {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 99}] * 3},
    {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""},
]


@pytest.mark.parametrize("decoder", HARMFUL_DECODERS, ids=["grows", "searches"])
def test_a_decoder_that_would_hang_this_process_is_refused(folder: Path, decoder: dict[str, Any]) -> None:
    edited(folder, "tokenizer.json", lambda tok: tok.update(decoder=decoder))
    with pytest.raises(ModelError, match=r"The tokenizer of model (cannot be used: its|took)"):
        prompts_of(folder)


def test_a_tokenizer_that_adds_ten_thousand_tokens_to_each_text_is_refused(folder: Path) -> None:
    much = {"id": "much", "ids": [1] * 10**4, "tokens": ["a"] * 10**4}
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A much", special_tokens=[much])
    tokenizer.save(str(folder / "tokenizer.json"))
    with pytest.raises(ModelError, match=r"of model cannot be used: it adds 10,000 tokens to each text\."):
        prompts_of(folder)


@pytest.mark.slow
def test_a_search_pattern_without_end_is_ended_as_a_template_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    split = {"type": "Split", "pattern": {"Regex": "(x+x+)+y"}, "behavior": "Isolated", "invert": False}
    edited(folder, "tokenizer.json", lambda tok: tok.update(pre_tokenizer=split))
    prompts = prompts_of(folder)
    monkeypatch.setattr("rdchat.inference.prompts.tokenizer_process._ENCODE_S", 0.5)
    with pytest.raises(ModelError, match=r"model (took longer|could not be done|cannot be used)"):
        prompts.encode([ChatMessage(Role.USER, "x" * 5000)], None, 512)


def test_a_tokenizer_that_was_replaced_on_the_disk_is_read_anew(folder: Path) -> None:
    message = (ChatMessage(Role.USER, "hello"),)
    before = load_model(folder).encode_chat(message)
    edited(folder, "tokenizer.json", lambda tokenizer: tokenizer["model"].update(merges=[]))
    after = load_model(folder).encode_chat(message)
    assert len(after) > len(before)


@pytest.mark.slow
def test_only_the_latest_tokenizers_are_kept_and_others_read_again(small_model: Path, tmp_path: Path) -> None:
    calls = TokenizerCalls()
    folders = [changed(small_model, tmp_path / name, "config.json", lambda _: None) for name in "abcdef"]
    for folder in folders:
        calls.read_tokenizer(folder=str(folder), reread=False)
    assert list(calls.tokenizers) == [str(folder) for folder in folders[-4:]]
    encoders = [prompts_of(folder) for folder in folders]
    assert len({tuple(encoder.encode([user("hi")], None, 512)) for encoder in encoders}) == 1
