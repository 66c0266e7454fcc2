from dataclasses import replace

from rdchat.chat.conversation import Drafting
from rdchat.inference.requests import Mode
from rdchat.inference.statistics import Statistics
from rdchat.ui.reply_facts import facts, summary
from tests.ui.transcript.conftest import reply

NNBSP = "\N{NARROW NO-BREAK SPACE}"
DRAFTED = Statistics(
    prompt_tokens=40,
    cached_prompt_tokens=8,
    generated_tokens=61,
    prefill_ms=80,
    ttft_ms=120,
    decode_ms=2000,
    rounds=30,
    drafted=90,
    accepted=30,
    target_calls=30,
)


def test_a_line_says_the_most_telling_first() -> None:
    message = reply(2, "Hi", statistics=DRAFTED, drafting=Drafting(Mode.RECURRENT, drafter="/models/my drafter"))
    assert summary(message) == [
        "Recurrent",
        "30.0 tokens/s",
        "2.00 per call",
        f"33{NNBSP}% accepted",
        "30 rounds",
        "first token 120 ms",
        "prefill 80 ms",
        "drafter my drafter",
    ]


def test_plain_decoding_has_no_figures_of_drafts() -> None:
    plain = replace(DRAFTED, rounds=0, drafted=0, accepted=0, target_calls=60)
    message = reply(2, "Hi", statistics=plain, drafting=Drafting(Mode.OFF, "There is no drafter."))
    assert summary(message)[:2] == ["Drafting off", "30.0 tokens/s"]
    names = [fact.name for fact in facts(message)]
    assert "Accepted" not in names
    assert facts(message)[0].definition.endswith("There is no drafter.")


def test_replies_of_older_versions_say_what_is_known() -> None:
    assert summary(reply(2, "Hi", statistics=DRAFTED))[0] == "30.0 tokens/s"
    assert (summary(reply(2, "Hi")), facts(reply(2, "Hi"))) == ([], [])


def test_every_fact_is_defined() -> None:
    message = reply(2, "Hi", statistics=DRAFTED, drafting=Drafting(Mode.LOOKUP, drafter="prompt lookup"))
    values = {fact.name: fact.value for fact in facts(message)}
    assert values["Accepted"] == f"33{NNBSP}%, 30 of 90"
    assert values["Prefill"] == "80 ms, 400 tokens/s"
    assert values["Drafter"] == "prompt lookup"
    assert all(fact.definition.endswith(".") or fact.name == "Drafter" for fact in facts(message))


def test_one_round_is_not_several() -> None:
    message = reply(2, "Hi", statistics=replace(DRAFTED, rounds=1), drafting=Drafting(Mode.LOOKUP))
    assert "1 round" in summary(message)
