"""Measures the time to the first token of a long chat after a restart, without and with its KV cache on disk.

    python scripts/bench_kept_caches.py --tokens 4000 --runs 3

The chat is a long text with a question and its answer; then a second question is asked in a new session, as after a
restart, whose memory holds nothing. The files were just written, so the system may still have them in its memory.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
from rdchat import paths
from rdchat.files.cache_folders import make_folder, used_bytes
from rdchat.inference.api import (
    CacheFolder,
    ChatMessage,
    DraftSettings,
    GenerationRequest,
    Mode,
    ReplyEnd,
    Role,
    SamplingParams,
)
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession
from rdchat.inference.verification import LoadedModel

QUESTION = "Which of these subjects comes first?"


def text_of(model: LoadedModel, tokens: int) -> str:
    """Return a text of so many tokens, from rdchat's training texts."""
    file = Path(paths.__file__).parent / "training_texts" / "written_texts.json"
    text = "\n\n".join(json.loads(file.read_text(encoding="utf-8"))["articles"])
    ids = model.tokenizer.encode(text[: tokens * 8], add_special_tokens=False)
    return model.decode(ids[:tokens])


def reply(session: ChatSession, request: GenerationRequest) -> ReplyEnd:
    *_, end = session.generate(request)
    assert isinstance(end, ReplyEnd)
    return end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or a hub id; the default model without it")
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    model = load_model(args.model)
    sampling = SamplingParams(temperature=0, max_tokens=4)
    plain = DraftSettings(Mode.OFF)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "chats" / "chat"
        make_folder(folder)
        keep = CacheFolder(folder, 10**10)
        first = ChatMessage(Role.USER, f"{text_of(model, args.tokens)}\n\n{QUESTION}")
        request = GenerationRequest((first,), sampling, draft=plain, keep=keep)
        session = ChatSession(model)
        end = reply(session, request)
        session.disk.finish_writing(600)
        turns = (first, ChatMessage(Role.ASSISTANT, end.text), ChatMessage(Role.USER, "And which comes last?"))
        request = replace(request, messages=turns)
        size = used_bytes(folder.parent)
        without = list[float]()
        with_cache = list[float]()
        cached = 0
        for _ in range(args.runs):
            read = reply(ChatSession(model), replace(request, keep=None))
            session = ChatSession(model)
            kept = reply(session, request)
            session.disk.finish_writing(600)
            assert kept.token_ids == read.token_ids
            without.append(read.statistics.ttft_ms)
            with_cache.append(kept.statistics.ttft_ms)
            cached = kept.statistics.disk_prompt_tokens
    prompt = read.statistics.prompt_tokens
    print(
        f"{model.info.name}, {model.info.dtype}: {prompt:,} prompt tokens, {cached:,} of them from {size / 1e6:,.0f} MB"
    )
    print("| time to the first token | s |\n|---|---|")
    print(f"| the chat is read again | {median(without) / 1e3:.2f} |")
    print(f"| its cache is read from disk | {median(with_cache) / 1e3:.2f} |")


if __name__ == "__main__":
    main()
