"""The grammar of an answer's shape, as llguidance takes it."""

import json
import re
from collections.abc import Sequence

import llguidance

from rdchat.errors import ShapeRefusedError
from rdchat.inference.api import AnswerShape, ShapeKind
from rdchat.inference.prompts.json_schema import Embedding
from rdchat.inference.prompts.schema_grammar import limits, schema_grammar

# These are llguidance's.
_NO_TEXT = "NoExtensionBias"
_NO_DETAILS = "<non-verbose/>"
# It stands below a drawing of the pattern.
_ERROR_OF_REGEX = re.compile(r"^error: (.+)", re.MULTILINE)
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
    embedding = Embedding(soften=False)
    schema = embedding.embed_schema(json.loads(source))
    return json.dumps(schema | {"$defs": embedding.definitions} if embedding.definitions else schema)


def after_thought(grammar: str, closing: str, parts: Sequence[str | int]) -> str:
    """Return the grammar of a thought, and of an answer behind it.

    Args:
        grammar: The answer's, from `grammar_of`.
        closing: The marker that ends the thought.
        parts: The same in parts: texts, and ids of control tokens.
    """
    answer = json.loads(grammar)["grammars"] if grammar.startswith('{"grammars"') else [{"lark_grammar": grammar}]
    answer[0]["name"] = "answer"
    if any(isinstance(each, int) for each in parts):
        end = " ".join(f"<[{each}]>" if isinstance(each, int) else json.dumps(each) for each in parts)
        # The marker ends a thought for readers too, so a thought does not have it.
        spelled = re.escape(closing).replace("/", r"\/")
        thought = f"THOUGHT {end}", f"THOUGHT: /(?s:.*)/ & ~/(?s:.*){spelled}(?s:.*)/"
    else:
        thought = "thought", f"thought[suffix={json.dumps(closing)}]: /(?s:.*)/"
    lark = f'start: {thought[0]} "\\n"? "\\n"? @answer\n{thought[1]}'
    return json.dumps({"grammars": [{"lark_grammar": lark}, *answer]})


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
            f"The {shape.label} cannot be used: no text fits it.", "Look for parts that exclude each other."
        )
    if problem:
        hint = "Correct it, or make it simpler."
        raise ShapeRefusedError(f"The {shape.label} cannot be used: {problem_line(problem)}.", hint)


def problem_line(problem: str) -> str:
    """Return an error of llguidance as a line for people, without a full stop."""
    if match := _ERROR_OF_REGEX.search(problem):
        problem = match[1]
    return " ".join(problem.removesuffix(_NO_DETAILS).split())[:_MAX_CHARACTERS].rstrip(".")
