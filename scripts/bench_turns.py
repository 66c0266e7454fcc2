"""Ten turns behind a long prefix: the engine's kept KV caches against the prompt cache of `mlx_lm.server`.

    python scripts/bench_turns.py [--mode auto] [--prefix 2000] [--turns 10]

Both use the same network in memory, without HTTP, and take turns. Each carries on its own conversation, greedily, so
the replies are the same up to near-ties. mlx-lm's side does what its server does: it takes a copy of the nearest cache,
writes the reply and stores the cache. Let nothing else run.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
from mlx_lm import stream_generate
from mlx_lm.models.cache import LRUPromptCache, make_prompt_cache

from rdchat.inference.api.events import ReplyEnd, TokenEvent
from rdchat.inference.api.requests import ChatMessage, DraftSettings, GenerationRequest, Mode, Role, SamplingParams
from rdchat.inference.models.loading import load_model
from rdchat.inference.session import ChatSession
from rdchat.inference.target.prefix_caches import usual_limit
from rdchat.inference.target.target import LoadedModel

TOKENS = 32  # of each reply, at most
RULE = "Chapter {}: the traveller crosses a river, meets somebody who asks for help, and writes a letter home. "


@dataclass(frozen=True)
class Turn:
    """One reply."""

    text: str
    tokens: int
    cached: int  # prompt tokens that were not read again
    first_ms: float  # from the request to the first token
    decode_s: float  # from the first token to the last


Speaker = Callable[[GenerationRequest], Turn]


def engine_speaker(model: LoadedModel) -> Speaker:
    """Return what the server's requests go through, without HTTP."""
    session = ChatSession(model, cache_bytes=usual_limit())

    def say(asked: GenerationRequest) -> Turn:
        began, moments, end = perf_counter(), list[float](), None
        for event in session.generate(asked):
            if isinstance(event, TokenEvent):
                moments.append(perf_counter())
            elif isinstance(event, ReplyEnd):
                end = event
        assert end is not None
        cached = end.statistics.cached_prompt_tokens
        return Turn(end.text, len(moments), cached, (moments[0] - began) * 1000, moments[-1] - moments[0])

    return say


def mlx_lm_speaker(model: LoadedModel) -> Speaker:
    """Return what `mlx_lm.server` does for a request, without HTTP."""
    kept = LRUPromptCache()

    def say(asked: GenerationRequest) -> Turn:
        began = perf_counter()
        prompt = model.encode_request(asked)
        cache, rest = kept.fetch_nearest_cache("model", prompt)
        key, text, moments = [*prompt], "", list[float]()
        cache = cache or make_prompt_cache(model.network)
        for part in stream_generate(model.network, model.tokenizer, rest, max_tokens=TOKENS, prompt_cache=cache):
            moments.append(perf_counter())
            key.append(part.token)
            text += part.text
        kept.insert_cache("model", key, cache)
        cached = len(prompt) - len(rest)
        return Turn(text, len(moments), cached, (moments[0] - began) * 1000, moments[-1] - moments[0])

    return say


def prefix_of(model: LoadedModel, tokens: int) -> str:
    """Return a text of about so many tokens, such as an agent's instructions."""
    each = len(model.prompts.encode_text(RULE.format(100)))
    return "".join(RULE.format(number) for number in range(tokens // each))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="model folder or hub id; the default model by default")
    parser.add_argument("--mode", type=Mode, default=Mode.AUTO, help="draft mode of the engine")
    parser.add_argument("--prefix", type=int, default=2000, help="tokens of the prefix")
    parser.add_argument("--turns", type=int, default=10)
    args = parser.parse_args()
    model = load_model(args.model)
    asked = GenerationRequest(
        (
            ChatMessage(Role.SYSTEM, prefix_of(model, args.prefix)),
            ChatMessage(Role.USER, "Tell me the story of chapter 1."),
        ),
        SamplingParams(temperature=0, max_tokens=TOKENS),
        draft=DraftSettings(args.mode),
    )
    speakers = {"rdchat": engine_speaker(model), "mlx_lm.server": mlx_lm_speaker(model)}
    chats, turns = dict.fromkeys(speakers, asked), {name: list[Turn]() for name in speakers}
    for number in range(args.turns):
        names = list(speakers) if number % 2 else list(reversed(speakers))
        for name in names:
            turn = speakers[name](chats[name])
            turns[name].append(turn)
            more = (
                ChatMessage(Role.ASSISTANT, turn.text),
                ChatMessage(Role.USER, f"Now tell me that of chapter {number + 2}."),
            )
            chats[name] = replace(asked, messages=(*chats[name].messages, *more))
    print(f"{model.info.name}, {model.info.dtype}, {model.info.device}, mode {args.mode.value}")
    for name, each in turns.items():
        later = each[1:]
        speed = sum(turn.tokens - 1 for turn in later) / sum(turn.decode_s for turn in later)
        print(
            f"{name:>14}: first token {each[0].first_ms:7.0f} ms, later {median(t.first_ms for t in later):5.0f} ms, "
            f"{speed:6.1f} tokens/s, cached at last {each[-1].cached}"
        )


if __name__ == "__main__":
    main()
