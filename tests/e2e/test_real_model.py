"""Plain decoding on the real default model, against stock mlx-lm."""

from pathlib import Path

import mlx.core as mx
import pytest
from mlx_lm import stream_generate

from rdchat.inference.api import ChatMessage, DraftSettings, GenerationRequest, Mode, Role, SamplingParams
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.device import on_gpu
from rdchat.inference.verification.target import LoadedModel
from tests.e2e.model_replies import reply

PROMPTS = [
    "请用中文写一句问候。",
    "Translate to French: The cat sleeps on the red chair. 🐱",
]
pytestmark = [pytest.mark.slow, pytest.mark.across_rows]


def request(*texts: str, **sampling: object) -> GenerationRequest:
    roles = (Role.USER, Role.ASSISTANT)
    messages = tuple(ChatMessage(roles[i % 2], text) for i, text in enumerate(texts))
    params = SamplingParams(**sampling)  # type: ignore[arg-type]
    return GenerationRequest(messages, params, seed=5, draft=DraftSettings(Mode.OFF))


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_text_is_stock_mlx_lms(model: LoadedModel, prompt: str) -> None:
    asked = request(prompt, temperature=0, max_tokens=12)
    theirs = "".join(
        part.text
        for part in stream_generate(
            model.network, model.tokenizer, model.encode_chat(asked.messages, False), max_tokens=12
        )
    )
    assert reply(ChatSession(model), asked).text == theirs


def test_on_a_cpu_auto_is_float32_and_the_model_is_described(model: LoadedModel, default_model_folder: Path) -> None:
    info = model.info
    assert (info.name, info.path, info.dtype) == ("smollm2-135m-instruct", default_model_folder, "float32")
    assert (info.context_length, info.vocabulary_size, info.architecture) == (8192, 49152, "llama")
    assert info.parameters == pytest.approx(134.5e6, rel=0.01)
    assert info.weights_bytes == pytest.approx(4 * info.parameters, rel=0.01)


@pytest.mark.parametrize("dtype", ["bfloat16"])
def test_half_precision_loads_and_speaks(default_model_folder: Path, dtype: str) -> None:
    model = load_model(default_model_folder, dtype)
    end = reply(ChatSession(model), request("Explain why the sky is blue.", temperature=0, max_tokens=3))
    assert model.info.dtype == dtype
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
    end = reply(ChatSession(packed), request("Explain why the sky is blue.", temperature=0, max_tokens=3))
    assert "sky" in end.text
