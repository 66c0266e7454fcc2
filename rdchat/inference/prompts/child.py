"""The child process that reads tokenizers and renders chat templates, `rdchat --child tokenizers`.

It answers `TokenizerProcess` and holds no data of the person's.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rdchat.inference.prompts.control_text import Marks
from rdchat.inference.prompts.encoding import PromptTokenizer, TemplateError, TooLongError
from rdchat.inference.prompts.template_thinking import choices, drops_thoughts
from rdchat.inference.prompts.tokenizer_files import NO_CODE, tokenizer_view
from rdchat.inference.transformers_start import quicken_transformers
from rdchat.work.job import Job
from rdchat.work.served import serve

_MOST_DECODED = 64  # characters for each that the vocabulary spells; byte-level ones make at most one of one
_DECODED_AT_ONCE = 4096
_MOST_ADDED = 64  # tokens that a tokenizer puts around a text of its own accord; usual are none to two
_CHECKS = ("a", " a ,b", "Hello, world!\n\n 123 \u00e9\u6f22\U0001f600")


class TokenizerCalls:
    """The requests that the parent sends."""

    def __init__(self) -> None:
        self._tokenizers: dict[str, PromptTokenizer] = {}

    def load(self, *, folder: str, most: int) -> dict[str, Any]:
        """Read a model folder's tokenizer and try it out; hold the latest ones, at most so many."""
        self._tokenizers.pop(folder, None)
        while len(self._tokenizers) >= most:
            del self._tokenizers[next(iter(self._tokenizers))]
        from transformers import AutoTokenizer  # noqa: PLC0415  imported by now

        with tokenizer_view(Path(folder)) as view:
            if "NewlineTokenizer" in (view / "tokenizer_config.json").read_text(encoding="utf-8"):
                import mlx_lm.tokenizer_utils  # noqa: F401, PLC0415  the one tokenizer class that is mlx-lm's own
            tokenizer = AutoTokenizer.from_pretrained(view, **NO_CODE)
        _try_out(tokenizer)
        self._tokenizers[folder] = PromptTokenizer(tokenizer)
        return {"control": self._tokenizers[folder].control}

    def thinking(self, *, folder: str, variables: dict[str, Any]) -> dict[str, Any]:
        """Return what a folder's chat template does with thoughts; see `template_thinking`."""
        tokenizer = self._tokenizers[folder]
        given = (tokenizer.render, tokenizer.template, variables)
        return {"drops": drops_thoughts(*given), "choices": choices(*given)}

    def encode(
        self,
        *,
        folder: str,
        turns: list[dict[str, str]] | None,
        text: str,
        variables: dict[str, Any],
        marks: tuple[str, str],
        limit: int,
        begins: bool,
    ) -> dict[str, Any]:
        """Return the token ids of a conversation; see `PromptTokenizer`."""
        tokenizer = self._tokenizers[folder]
        rendered = "" if turns is None else tokenizer.render(turns, variables)
        return {"ids": tokenizer.encode(rendered + text, Marks(*marks), limit, begins=begins)}


def _try_out(tokenizer: Any) -> None:
    """Do here once what the engine does with a tokenizer: a vocabulary or decoder that explodes does so here.

    Raises:
        ValueError: If the tokenizer would do harm in the process that shows its text.
    """
    for text in _CHECKS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        tokenizer.decode(ids)
        if (added := len(tokenizer.encode(text)) - len(ids)) > _MOST_ADDED:
            raise ValueError(f"it adds {added:,} tokens to each text")
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if (
        backend is not None
        and backend.decoder is not None
        and '"Regex"' in bytes(backend.decoder.__getstate__()).decode()
    ):
        raise ValueError("its decoder searches by a pattern, which can take for ever")
    spelled = tokenizer.get_vocab()
    ids, allowed = sorted(spelled.values()), _MOST_DECODED * sum(map(len, spelled))
    decoded = 0
    for start in range(0, len(ids), _DECODED_AT_ONCE):
        decoded += len(tokenizer.decode(ids[start : start + _DECODED_AT_ONCE], skip_special_tokens=False))
        if decoded > allowed:
            raise ValueError(f"its {len(ids):,} tokens become a text of {decoded:,} characters")


def _with_failures(call: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
    """Return the call, whose answer is a failure where a tokenizer or a template is at fault."""

    def answer(_job: Job[Any], **arguments: Any) -> dict[str, Any]:
        try:
            return call(**arguments)
        except TooLongError as error:
            return {"failure": "too_long", "limit": error.limit}
        except TemplateError as error:
            return {"failure": "template", "words": str(error)}
        except MemoryError:
            return {"failure": "memory"}
        except Exception as error:  # tokenizer files are foreign data: anything can be wrong in them
            return {"failure": "tokenizer", "words": " ".join(str(error).split())[:300] or type(error).__name__}

    return answer


def _import_transformers() -> None:
    quicken_transformers()
    import transformers  # noqa: F401, PLC0415  takes a second, while the parent reads weights


def main() -> int:
    """Answer requests until the parent has gone."""
    calls = TokenizerCalls()
    answers = {
        "load": _with_failures(calls.load),
        "thinking": _with_failures(calls.thinking),
        "encode": _with_failures(calls.encode),
    }
    return serve(answers, prepare=_import_transformers)
