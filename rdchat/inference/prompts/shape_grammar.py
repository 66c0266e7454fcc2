"""The grammar of an answer's shape, as llguidance takes it, and its limits."""

from typing import Any

import llguidance

from rdchat.errors import ShapeRefusedError
from rdchat.inference.api.answer_shape import AnswerShape, ShapeKind

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


def check_grammar(shape: AnswerShape) -> None:
    """Compile a shape's grammar without a vocabulary; run in a child process, since this may take long.

    Raises:
        ShapeRefusedError: If it is wrong, or too large; the message has one line.
    """
    try:
        problem = llguidance.LLMatcher.validate_grammar(grammar_of(shape), limits=limits())
    except ValueError as error:
        problem = str(error)
    if problem and not problem.startswith("WARNING"):
        raise ShapeRefusedError(f"The {shape.words} cannot be used: {' '.join(problem.split())[:300].rstrip('.')}.")
