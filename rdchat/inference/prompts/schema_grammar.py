"""The grammar of a JSON schema whose references are all its own, and the limits of grammars."""

from typing import Any

import llguidance

# Whitespace is one space or none, since a small model may write blank lines for ever.
_JSON: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": ", "lenient": False}


def schema_grammar(schema: str) -> str:
    """Return the grammar of a JSON schema, not checked yet."""
    return llguidance.LLMatcher.grammar_from_json_schema(schema, overrides=_JSON)


def is_followed(schema: str) -> bool:
    """Return whether a grammar can follow a small JSON schema, looked at for some 2 ms."""
    matcher = llguidance.LLMatcher(llguidance.LLTokenizer("byte"), schema_grammar(schema), log_level=0, limits=limits())
    return not matcher.is_error()


def limits() -> llguidance.LLParserLimits:
    """Return the limits of a grammar and of each step along it.

    The fuel lasts some 20 ms at the beginning and some 15 ms for a step; a state of the lexer takes some 2 kB.
    """
    return llguidance.LLParserLimits(
        max_items_in_row=2000,
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_lexer_states=50_000,
        max_grammar_size=200_000,
        verbose_errors=False,
    )
