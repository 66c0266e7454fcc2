import pytest

from rdchat.chat.reply_trace import ReplyTrace
from rdchat.inference.api import DRAFTERS, EARLIER_REPLIES, NGRAMS, SHAPE, RoundTree
from rdchat.ui.drafts.tree_view import (
    STYLES,
    PlacedNode,
    alternatives,
    lay_out_nodes,
    probability,
    round_text,
    spelt,
    token_text,
    tree_text,
)
from rdchat.ui.style import Colors
from tests.chat.traces import drafted_trace, events_of_round, round_tree


@pytest.fixture
def trace() -> ReplyTrace:
    """Two rounds: ` a b` accepted and ` c` added; nothing accepted and ` d` added."""
    trace = ReplyTrace()
    trace.append_tokens(events_of_round(1, 0, round_tree([" a", " b"], " c", ["x", "y"])))
    trace.append_tokens(events_of_round(2, 3, round_tree([], " d", ["z"])))
    return trace


@pytest.mark.parametrize(
    ("log_prob", "words"),
    [(0.0, "100"), (-0.5, "61"), (-2.4, "9.1"), (-5.0, "0.67"), (-9.0, "0.01"), (-12.0, "< 0.01"), (0.0001, "100")],
)
def test_probabilities_have_as_many_digits_as_they_need(log_prob: float, words: str) -> None:
    assert probability(log_prob) == f"{words}\N{NARROW NO-BREAK SPACE}%"
    assert probability(None) == "\N{EN DASH}"


def test_spaces_can_be_seen() -> None:
    assert [spelt(text) for text in (" the", "\n\n", "\t", "")] == ["␣the", "⏎⏎", "⇥", "·"]


def test_alternatives_are_the_siblings_of_the_token_taken(trace: ReplyTrace) -> None:
    found = [(each.text, each.drafter, each.taken) for each in alternatives(trace, 0)]
    assert found == [(" a", "drafter", True), ("x", "lookup", False), ("y", "lookup", False)]
    assert [each.text for each in alternatives(trace, 1)] == [" b"]
    assert alternatives(trace, 2) == []  # the draft ended before


def test_a_correction_stands_among_what_it_was_preferred_to(trace: ReplyTrace) -> None:
    assert [(each.text, each.drafter, each.taken) for each in alternatives(trace, 3)] == [
        (" d", "", True),
        ("z", "lookup", False),
    ]


def test_plain_decoding_has_no_alternatives() -> None:
    assert alternatives(drafted_trace(0), 0) == []


def test_rounds_and_tokens_are_told_in_words(trace: ReplyTrace) -> None:
    assert round_text(trace, 1) == "Draft 1 of 2: 2 tokens kept; the longest branch had 2, the tree 4"
    assert round_text(trace, 2) == "Draft 2 of 2: 0 of 1 drafted token kept"
    nnbsp = "\N{NARROW NO-BREAK SPACE}"
    assert token_text(trace, 1) == f"Token 2 of 4, b, probability 61{nnbsp}%, Drafter, position 2, draft 1 of 2"
    assert token_text(trace, 3) == f"Token 4 of 4, d, probability 78{nnbsp}%, The model itself, draft 2 of 2"


def test_prompt_lookup_that_finds_nothing_says_so() -> None:
    trace = ReplyTrace()
    trace.append_tokens(events_of_round(1, 0, round_tree([], " a")))
    trace.append_tokens(events_of_round(2, 1, round_tree([], " c", ["x"])))  # by prompt lookup
    assert round_text(trace, 1) == "Draft 1 of 2: no earlier text to copy from"
    trace.append_tokens(events_of_round(3, 2, round_tree([" d"], " e")))  # by a drafter
    assert round_text(trace, 1) == "Draft 1 of 3: nothing was drafted"


def test_a_tree_is_told_node_by_node(trace: ReplyTrace) -> None:
    told = tree_text(trace, 1)
    assert told.count("accepted") == 2
    assert told.count("rejected") == 2
    assert told.endswith("then from the model itself: ␣c, 78\N{NARROW NO-BREAK SPACE}%.")


def test_a_round_that_ended_early_tells_what_was_kept(trace: ReplyTrace) -> None:
    trace.cut_tokens(1)
    assert round_text(trace, 1) == "Draft 1 of 1: 1 token kept; the longest branch had 2, the tree 4"


def test_a_round_without_its_tree_counts_in_words(trace: ReplyTrace) -> None:
    trace.rounds[0].tree = None
    assert round_text(trace, 1) == "Draft 1 of 2: 2 drafted tokens kept"
    trace.cut_tokens(1)
    assert round_text(trace, 1) == "Draft 1 of 1: 1 drafted token kept"


def test_every_source_of_tokens_has_a_colour_and_a_line() -> None:
    assert set(STYLES) == {"", EARLIER_REPLIES, NGRAMS, SHAPE, *DRAFTERS}
    assert all(hasattr(Colors(dark=False), style.role) for style in STYLES.values())
    assert all(style.line for drafter, style in STYLES.items() if drafter)


def test_each_token_of_a_path_stands_a_column_further_right() -> None:
    nodes = lay_out_nodes(round_tree([" a", " b"], " c", ["x", "y"]))
    assert [(node.text, node.column) for node in nodes] == [
        ("root", 0), (" a", 1), (" b", 2), ("x", 1), ("y", 1), (" c", 3),
    ]  # fmt: skip
    assert [node.accepted for node in nodes] == [True, True, True, False, False, True]
    assert nodes[-1].correction
    assert nodes[nodes[-1].parent].text == " b"


def placed(parents: tuple[int, ...], *path: int) -> list[PlacedNode]:
    """Lay out a tree, whose last node is the correction."""
    count = len(parents)
    texts = ("",) * count
    tokens = tuple(range(count))
    return lay_out_nodes(RoundTree(tokens, parents, texts, (-1.0,) * count, path, correction=count, texts=texts))


def test_the_accepted_path_runs_along_the_top() -> None:
    """The root too: a wide tree began out of view."""
    assert [node.row for node in placed((-1, 0, 0, 2, 2), 0, 2, 4)] == [0, 2, 0, 1, 0, 0]


def test_a_parent_beside_the_path_stands_at_the_middle_of_its_children() -> None:
    assert [node.row for node in placed((-1, 0, 1, 1), 0)] == [0, 1.5, 1, 2, 0]


def test_no_two_nodes_stand_in_one_place() -> None:
    nodes = placed((-1, *((node - 1) // 3 for node in range(1, 256))), 0, 2, 7, 22)
    assert len({(node.column, node.row) for node in nodes}) == len(nodes) == 257


def test_a_chain_as_deep_as_they_come_is_placed() -> None:
    nodes = lay_out_nodes(round_tree([f"t{number}" for number in range(64)], "end"))
    assert {node.row for node in nodes} == {0.0}
    assert nodes[-1].column == 65
