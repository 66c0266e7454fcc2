"""How fast a finished reply was and how it was drafted, in words. Pure functions."""

from dataclasses import dataclass
from pathlib import Path

from rdchat.chat.conversation import Drafting, Message
from rdchat.inference.requests import Mode
from rdchat.inference.statistics import Statistics
from rdchat.ui import figures


@dataclass(frozen=True, slots=True)
class Fact:
    """A figure with its name and its definition."""

    name: str
    value: str
    definition: str


def summary(message: Message) -> list[str]:
    """Return what is to be said in one line, the most telling first; what was not measured is left out."""
    statistics = message.statistics
    if statistics is None:
        return []
    drafting = message.drafting
    said = [
        _mode_words(drafting) if drafting else "",
        _with_unit(figures.rate(statistics.decode_tps), "tokens/s"),
        _with_unit(figures.decimal(statistics.tokens_per_target_call), "per call"),
        _with_unit(figures.percent(statistics.acceptance_rate), "accepted"),
        figures.counted(statistics.rounds, "round") if statistics.rounds else "",
        f"first token {figures.duration(statistics.ttft_ms)}" if statistics.ttft_ms else "",
        f"prefill {figures.duration(statistics.prefill_ms)}" if statistics.prefill_ms else "",
        f"drafter {drafter_name(drafting)}" if drafting and drafting.mode in _NAMED else "",
    ]
    return [part for part in said if part]


def facts(message: Message) -> list[Fact]:
    """Return all that was kept of a reply."""
    statistics = message.statistics
    if statistics is None:
        return []
    return [*_how(message.drafting), *_speed(statistics), *_drafts(statistics), *_sizes(statistics)]


def drafter_name(drafting: Drafting) -> str:
    """Return a folder's own name, or what else the drafter is called."""
    return Path(drafting.drafter).name or figures.NONE


_NAMED = {Mode.SPECULATIVE, Mode.RECURRENT}  # prompt lookup is its own name


def _how(drafting: Drafting | None) -> list[Fact]:
    if drafting is None:
        return []
    reason = f" {drafting.reason}" if drafting.reason else ""
    found = [Fact("Drafting", _mode_words(drafting), f"The drafting mode that ran.{reason}")]
    if drafting.drafter:
        found.append(Fact("Drafter", drafter_name(drafting), f"What proposed the tokens: {drafting.drafter}"))
    return found


def _speed(statistics: Statistics) -> list[Fact]:
    prefill = figures.rate(statistics.prefill_tps)
    return [
        Fact(
            "Speed",
            _with_unit(figures.rate(statistics.decode_tps), "tokens/s") or figures.NONE,
            "Tokens written a second, after the first one.",
        ),
        Fact(
            "Time to first token",
            figures.duration(statistics.ttft_ms),
            "From the request until the first token of the reply was known.",
        ),
        Fact(
            "Prefill",
            f"{figures.duration(statistics.prefill_ms)}{'' if prefill == figures.NONE else f', {prefill} tokens/s'}",
            "Reading the prompt; tokens kept from the turn before do not count.",
        ),
        Fact("Decode", figures.duration(statistics.decode_ms), "From the first token to the last."),
    ]


def _drafts(statistics: Statistics) -> list[Fact]:
    if not statistics.rounds:
        return []
    accepted = f"{figures.percent(statistics.acceptance_rate)}, {statistics.accepted:,} of {statistics.drafted:,}"
    return [
        Fact(
            "Tokens per call",
            figures.decimal(statistics.tokens_per_target_call),
            "Tokens written for each target call; plain decoding has 1.",
        ),
        Fact(
            "Accepted",
            accepted if statistics.drafted else figures.NONE,
            "Drafted tokens that the model took, of those drafted along the chosen path.",
        ),
        Fact("Rounds", figures.count(statistics.rounds), "Target calls that verified a draft."),
    ]


def _sizes(statistics: Statistics) -> list[Fact]:
    prompt = figures.count(statistics.prompt_tokens)
    kept = f", {statistics.cached_prompt_tokens:,} kept" if statistics.cached_prompt_tokens else ""
    return [
        Fact("Tokens written", figures.count(statistics.generated_tokens), "Tokens of the reply, its end token too."),
        Fact("Prompt tokens", f"{prompt}{kept}", "Tokens of the conversation; kept ones were in the cache already."),
    ]


def _mode_words(drafting: Drafting) -> str:
    return "Drafting off" if drafting.mode is Mode.OFF else drafting.mode.words


def _with_unit(figure: str, unit: str) -> str:
    return "" if figure == figures.NONE else f"{figure} {unit}"
