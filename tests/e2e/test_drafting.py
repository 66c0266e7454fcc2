"""The real default model: the same tokens by every drafter, texts without a template, and the bytes of tokens."""

from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm import stream_generate

from rdchat.inference.api import (
    ChatMessage,
    DraftSettings,
    FinishReason,
    GenerationRequest,
    Mode,
    ReplyEnd,
    Role,
    SamplingParams,
    TokenEvent,
)
from rdchat.inference.auto import auto_drafter, measuring
from rdchat.inference.device import on_gpu
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from tests.e2e.model_replies import CODE, check_same, reply, request
from tests.inference.plain_replies import plain

pytestmark = [pytest.mark.slow, pytest.mark.across_rows]

# What else there is of samplings, caches and sizes is tried on small models.
SAMPLINGS: list[dict[str, Any]] = [{"temperature": 0}, {"temperature": 1.2, "top_p": 1}]
MODES: list[dict[str, Any]] = [
    {"mode": Mode.LOOKUP, "draft_tokens": 4},
    {"mode": Mode.DRAFTER, "beam_width": 4, "beam_length": 5},
    {"mode": Mode.SPECULATIVE, "draft_tokens": 4},
]


@pytest.mark.parametrize(("draft", "sampling"), [*zip(MODES, cycle(SAMPLINGS), strict=False)], ids=str)
def test_drafts_do_not_change_the_reply(model: LoadedModel, sampling: dict[str, Any], draft: dict[str, Any]) -> None:
    named = {"draft_model": str(model.info.path)} if draft["mode"] is Mode.SPECULATIVE else {}
    expected = plain(model, request(CODE, sampling))
    drafted = reply(ChatSession(model), request(CODE, sampling, **draft, **named))
    assert (drafted.mode, drafted.mode_reason) == (draft["mode"], None)
    assert drafted.drafter is not None
    check_same(model, request(CODE, sampling), expected.token_ids, drafted.token_ids)
    assert drafted.statistics.host_syncs <= 2 * drafted.statistics.rounds
    if draft["mode"] is Mode.SPECULATIVE:  # the draft model is the target: it knows every token
        assert drafted.statistics.acceptance_rate == 1


COPY = "Repeat this line three times: the quick brown fox jumps over the lazy dog and runs into the forest."
GREEDY: dict[str, Any] = {"temperature": 0}
ASKED: list[tuple[str, dict[str, Any]]] = [(COPY, GREEDY), (CODE, {"temperature": 1.2, "top_p": 1})]


def test_the_reply_is_that_of_plain_decoding(model: LoadedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_TRIALS", 1)
    for name in ("NEAR_ROWS", "DEEP_ROWS"):  # all else is measured as ever
        monkeypatch.setattr(auto_drafter, name, (1, 4, 16))
    monkeypatch.setattr(measuring, "DEEP", (256,))
    session = ChatSession(model)
    undrafted = [plain(model, request(prompt, sampling)) for prompt, sampling in ASKED]
    drafted = 0
    for measured in (False, True):
        while measured and session.work_while_idle():
            pass
        for (prompt, sampling), expected in zip(ASKED, undrafted, strict=True):
            asked = request(prompt, sampling, mode=Mode.AUTO)
            automatic = reply(session, asked)
            assert (automatic.mode, automatic.mode_reason) == (Mode.AUTO, None)
            check_same(model, asked, expected.token_ids, automatic.token_ids)
            drafted += automatic.statistics.rounds
            choice = automatic.statistics.choice
            assert choice is not None
            assert not (measured and "not measured" in choice.words)
    assert drafted > 0
    step_ms = reply(session, request(COPY, GREEDY, mode=Mode.LOOKUP)).statistics.plain_step_ms
    # The machine may have been busier with the first replies.
    undrafted.append(reply(session, request(COPY, GREEDY)))
    seen = min(each.statistics.decode_ms / (len(each.token_ids) - 1) for each in undrafted)
    assert step_ms > seen / 4  # not a step that was done before its clock began


PROMPTS = [
    "请用中文写一句问候。",
    "Translate to French: The cat sleeps on the red chair. 🐱",
]


def plain_request(*texts: str, **sampling: object) -> GenerationRequest:
    roles = (Role.USER, Role.ASSISTANT)
    messages = tuple(ChatMessage(roles[i % 2], text) for i, text in enumerate(texts))
    params = SamplingParams(**sampling)  # type: ignore[arg-type]
    return GenerationRequest(messages, params, seed=5, draft=DraftSettings(Mode.OFF))


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_text_is_stock_mlx_lms(model: LoadedModel, prompt: str) -> None:
    asked = plain_request(prompt, temperature=0, max_tokens=12)
    theirs = "".join(
        part.text
        for part in stream_generate(model.network, model.tokenizer, model.encode_chat(asked.messages), max_tokens=12)
    )
    assert reply(ChatSession(model), asked).text == theirs


def test_on_a_cpu_auto_is_float32_and_the_model_is_described(model: LoadedModel, default_model_folder: Path) -> None:
    info = model.info
    assert (info.name, info.path, info.dtype) == ("smollm2-135m-instruct", default_model_folder, "float32")
    assert (info.context_length, info.vocabulary_size, info.architecture) == (8192, 49152, "llama")
    assert info.parameters == pytest.approx(134.5e6, rel=0.01)
    assert info.weights_bytes == pytest.approx(4 * info.parameters, rel=0.01)


def test_half_precision_loads_and_speaks(default_model_folder: Path) -> None:
    model = load_model(default_model_folder, "bfloat16")
    end = reply(ChatSession(model), plain_request("Explain why the sky is blue.", temperature=0, max_tokens=3))
    assert model.info.dtype == "bfloat16"
    assert "sky" in end.text


def test_the_models_own_4_bit_weights_are_kept_as_they_are(default_model_folder: Path, model: LoadedModel) -> None:
    """Their scales are float16, or float32 on a CPU, which is slow in float16."""
    packed = load_model(default_model_folder, "4bit")
    assert packed.info.dtype == "4bit"
    assert packed.info.weights_bytes == pytest.approx(98.3e6 if on_gpu() else 115.2e6, rel=0.01)
    ours = packed.network.layers[3].mlp.up_proj
    full = model.network.layers[3].mlp.up_proj
    unpacked = mx.dequantize(ours.weight, ours.scales, ours.biases, ours.group_size, ours.bits)
    assert (ours.group_size, ours.bits) == (32, 4)
    assert mx.allclose(unpacked.astype(mx.float32), full.weight, atol=1e-3).item()
    end = reply(ChatSession(packed), plain_request("Explain why the sky is blue.", temperature=0, max_tokens=3))
    assert "sky" in end.text


def test_a_text_is_continued_without_a_template(model: LoadedModel) -> None:
    params = SamplingParams(temperature=0, max_tokens=12)
    asked = GenerationRequest((), params, draft=DraftSettings(Mode.OFF), text="The capital of France is")
    end = reply(ChatSession(model), asked)
    assert end.statistics.prompt_tokens == len(model.tokenizer.encode("The capital of France is"))
    assert "Paris" in end.text


def test_the_bytes_of_tokens_are_those_of_the_text(model: LoadedModel) -> None:
    asked = replace(plain_request("Repeat these signs: 🦔🦊 漢字 ✈", temperature=0, max_tokens=12), top_log_probs=5)
    *events, end = ChatSession(model).generate(asked)
    assert isinstance(end, ReplyEnd)
    tokens = [event for event in events if isinstance(event, TokenEvent)]
    if end.finish_reason is FinishReason.EOS:
        tokens.pop()
    said = b"".join(event.data for event in tokens).decode(errors="ignore")
    assert said.lstrip() == end.text.lstrip()
    for event in tokens:
        assert event.alternatives[0].token_id == event.token_id
        assert event.alternatives[0].log_prob == pytest.approx(event.log_prob, abs=1e-4)
        assert len(event.alternatives) == 5
    for text in ("🦔", "漢", "é"):
        ids = model.tokenizer.encode(text, add_special_tokens=False)
        assert b"".join(model.token_data(token) for token in ids).decode() == text
