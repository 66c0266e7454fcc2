"""What a small model says without drafts, under samplings of every kind: what drafted replies are held against."""

from rdchat.inference.api.events import ReplyEnd
from rdchat.inference.api.requests import GenerationRequest
from rdchat.inference.session import ChatSession
from rdchat.inference.target.target import LoadedModel

SAMPLINGS: list[dict[str, float]] = [
    {"temperature": 0},
    {"temperature": 0.7},
    {"temperature": 1.3, "top_p": 1},
    {"temperature": 1.3, "top_p": 0.8, "top_k": 5, "min_p": 0.05},
    {"temperature": 0, "repetition_penalty": 1.3},
    {"temperature": 0.7, "repetition_penalty": 1.5, "top_k": 8},
]


def plain(model: LoadedModel, request: GenerationRequest) -> ReplyEnd:
    """Return the reply of a new chat without drafts."""
    *_, end = ChatSession(model).generate(request)
    assert isinstance(end, ReplyEnd)
    return end
