"""The grammar of an answer's shape, as llguidance takes it, and its limits."""

from typing import Any

import llguidance
import numpy as np
import numpy.typing as npt

from rdchat.errors import ShapeRefusedError
from rdchat.inference.api.answer_shape import SHAPE_HINT, AnswerShape, ShapeKind

Words = npt.NDArray[np.uint32]

_NO_TEXT, _NO_DETAILS = "NoExtensionBias", "<non-verbose/>"  # llguidance's
_MOST_WORDS = 200
_ANY_OBJECT = '{"type": "object"}'
# Whitespace is one space or none, since a small model may write blank lines for ever.
_JSON: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": False}


def grammar_of(shape: AnswerShape) -> str:
    """Return a shape's grammar, not checked yet."""
    match shape.kind:
        case ShapeKind.JSON:
            return llguidance.LLMatcher.grammar_from_json_schema(_ANY_OBJECT, overrides=_JSON)
        case ShapeKind.SCHEMA:
            return llguidance.LLMatcher.grammar_from_json_schema(shape.source, overrides=_JSON)
        case ShapeKind.REGEX:
            return llguidance.LLMatcher.grammar_from_regex(shape.source)
        case ShapeKind.GRAMMAR:
            return llguidance.LLMatcher.grammar_from_lark(shape.source)


def limits() -> llguidance.LLParserLimits:
    """Return the limits of a grammar and of each step along it."""
    return llguidance.LLParserLimits(
        max_items_in_row=2000,
        initial_lexer_fuel=1_000_000,  # some 20 ms
        step_lexer_fuel=200_000,  # some 15 ms
        step_max_items=50_000,
        max_lexer_states=50_000,  # some 2 kB each
        max_grammar_size=200_000,
        verbose_errors=False,
    )


def mask_words(matcher: llguidance.LLMatcher) -> Words:
    """Return which tokens may come next, (vocabulary / 32,): a bit for each token."""
    return np.frombuffer(matcher.compute_bitmask(), np.uint32)


def check_grammar(shape: AnswerShape) -> None:
    """Compile a shape's grammar, and take its first step byte by byte; run in a child process: this may take long.

    Raises:
        ShapeRefusedError: If it is wrong or too large, or no text has the shape; the message has one line.
    """
    try:
        matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), grammar_of(shape), log_level=0, limits=limits())
        if not matcher.is_error():
            matcher.compute_bitmask()
            matcher.compute_ff_tokens()
        problem = matcher.get_error() if matcher.is_error() else ""
    except ValueError as error:
        problem = str(error)
    if _NO_TEXT in problem:
        raise ShapeRefusedError(
            f"The {shape.words} cannot be used: no text fits it.", "Look for parts that exclude each other."
        )
    if problem:
        raise ShapeRefusedError(f"The {shape.words} cannot be used: {problem_line(problem)}.", SHAPE_HINT)


def problem_line(problem: str) -> str:
    """Return an error of llguidance as a line for people, without a full stop."""
    return " ".join(problem.removesuffix(_NO_DETAILS).split())[:_MOST_WORDS].rstrip(".")
