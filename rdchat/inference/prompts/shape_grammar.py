"""The grammar of an answer's shape, as llguidance takes it, and the limits of grammars.

A shape is JSON, a JSON schema, a regular expression or a grammar of llguidance's own, which is a kind of Lark. The
child process for tokenizers compiles a shape first (`check_grammar`), since that may take long; `shape_matcher` then
makes the masks of a reply with it.
"""

import json
import re
from collections.abc import Sequence

import llguidance

from rdchat.errors import ShapeRefusedError
from rdchat.inference.api import MAX_SOURCE_BYTES, AnswerShape, ShapeKind
from rdchat.json_schema import JoinedSchemas, by_byte, schema_grammar

# Parts of llguidance's messages.
_NO_TEXT = "NoExtensionBias"
_NO_DETAILS = "<non-verbose/>"
# Of a regular expression, the error stands below a drawing of the pattern.
_ERROR_OF_REGEX = re.compile(r"^error: (.+)", re.MULTILINE)
# Limit of an error's text for people.
_MAX_CHARACTERS = 200
_ANY_OBJECT = '{"type": "object"}'


def grammar_of(shape: AnswerShape) -> str:
    """Return a shape's grammar, not checked yet."""
    match shape.kind:
        case ShapeKind.JSON:
            return schema_grammar(_ANY_OBJECT)
        case ShapeKind.SCHEMA:
            return schema_grammar(_self_contained(shape.source))
        case ShapeKind.REGEX:
            return llguidance.LLMatcher.grammar_from_regex(shape.source)
        case ShapeKind.GRAMMAR:
            return llguidance.LLMatcher.grammar_from_lark(shape.source)


def _self_contained(source: str) -> str:
    """Return a schema whose references all name its own definitions; SchemaError, a ValueError, if it has others."""
    schemas = JoinedSchemas(MAX_SOURCE_BYTES)
    schema, _ = schemas.add_schema(json.loads(source), soften=False)
    return json.dumps(schemas.with_definitions(schema))


def after_thought(grammar: str, closing: str, parts: Sequence[str | int]) -> str:
    """Return the grammar of a thought, and of an answer behind it.

    Args:
        grammar: The answer's, from `grammar_of`.
        closing: The marker that ends the thought.
        parts: The same in parts: texts, and ids of control tokens.
    """
    # In llguidance's Lark, `<[7]>` is the token 7, `&` and `~` are "and" and "not", `@answer` is the other grammar, and
    # `suffix` ends a text at its first occurrence.
    if any(isinstance(each, int) for each in parts):
        end = " ".join(f"<[{each}]>" if isinstance(each, int) else json.dumps(each) for each in parts)
        # The marker ends a thought for readers too, so a thought does not have it.
        spelled = re.escape(closing).replace("/", r"\/")
        thought = f"THOUGHT {end}", f"THOUGHT: /(?s:.*)/ & ~/(?s:.*){spelled}(?s:.*)/"
    else:
        thought = "thought", f"thought[suffix={json.dumps(closing)}]: /(?s:.*)/"
    return _around(grammar, "answer", f'start: {thought[0]} "\\n"? "\\n"? @answer\n{thought[1]}')


def unforced(grammar: str) -> str:
    """Return a grammar whose masks allow any spelling of a text that is forced; then no tokens are forced."""
    return _around(grammar, "reply", '%llguidance {"no_forcing": true}\nstart: @reply')


def _around(grammar: str, name: str, lark: str) -> str:
    """Return a grammar in Lark, in which another grammar has a name."""
    # llguidance's grammar of a schema or an expression is JSON; one in Lark is the text itself.
    inner = json.loads(grammar)["grammars"] if grammar.startswith('{"grammars"') else [{"lark_grammar": grammar}]
    inner[0]["name"] = name
    return json.dumps({"grammars": [{"lark_grammar": lark}, *inner]})


def check_grammar(shape: AnswerShape) -> None:
    """Compile a shape's grammar, and take its first step byte by byte; run in a child process: this may take long.

    Raises:
        ShapeRefusedError: If it is wrong or too large, or no text has the shape; the message has one line.
    """
    try:
        matcher = by_byte(grammar_of(shape))
        if not matcher.is_error():
            matcher.compute_bitmask()
            matcher.compute_ff_tokens()
        problem = matcher.get_error() if matcher.is_error() else ""
    except ValueError as error:
        problem = str(error)
    if _NO_TEXT in problem:
        raise ShapeRefusedError(
            f"The {shape.label} cannot be used: no text fits it.", "Look for parts that exclude each other."
        )
    if problem:
        hint = "Correct it, or make it simpler."
        raise ShapeRefusedError(f"The {shape.label} cannot be used: {problem_line(problem)}.", hint)


def problem_line(problem: str) -> str:
    """Return an error of llguidance as a line for people, without a full stop."""
    if _NO_TEXT in problem:
        return "no token of the model fits"
    if match := _ERROR_OF_REGEX.search(problem):
        problem = match[1]
    return " ".join(problem.removesuffix(_NO_DETAILS).split())[:_MAX_CHARACTERS].rstrip(".")
