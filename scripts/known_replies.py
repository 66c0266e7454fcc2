"""Writes rdchat/inference/benchmark/known_replies.json: replies that `rdchat report` compares a Mac's with.

    PYTHONPATH=. .venv/bin/python scripts/known_replies.py

It is needed again when the default model or the everyday prompts change. A test compares the file with this machine.
"""

import json

from rdchat.inference.api import EVERYDAY_PROMPTS, DraftSettings, Dtype, GenerationRequest, Mode, SamplingParams
from rdchat.inference.benchmark.known_replies import KNOWN, logits_along
from rdchat.inference.benchmark.recording import record
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession

MAX_TOKENS = 24


def main() -> None:
    session = ChatSession(load_model(None, Dtype.FLOAT32))
    sampling = SamplingParams(0.0, max_tokens=MAX_TOKENS)
    lines = []
    for prompt in EVERYDAY_PROMPTS:
        request = GenerationRequest((prompt.message,), sampling, 0, draft=DraftSettings(Mode.OFF))
        run = record(session, request, lambda: False)
        assert run is not None
        logits = logits_along(session.model, prompt, run.token_ids)
        chosen = [round(float(row[token]), 4) for row, token in zip(logits, run.token_ids, strict=True)]
        lines.append(json.dumps({"ids": [*run.token_ids], "logits": chosen}))
    KNOWN.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
