from rdchat.inference.api import RoundTree
from rdchat.ui.drafts.tree_view import lay_out_nodes
from tests.chat.traces import round_tree


def test_each_token_of_a_path_stands_a_column_further_right() -> None:
    nodes = lay_out_nodes(round_tree([" a", " b"], " c", ["x", "y"]))
    assert [(node.text, node.column) for node in nodes] == [
        ("root", 0), (" a", 1), (" b", 2), ("x", 1), ("y", 1), (" c", 3),
    ]  # fmt: skip
    assert [node.accepted for node in nodes] == [True, True, True, False, False, True]
    assert nodes[-1].correction
    assert nodes[nodes[-1].parent].text == " b"


def test_the_accepted_path_runs_along_the_top() -> None:
    tree = RoundTree(
        tokens=(0, 1, 2, 3, 4),
        parents=(-1, 0, 0, 2, 2),
        drafters=("", *["drafter"] * 4),
        log_probs=(0.0, -1.0, -1.0, -1.0, -1.0),
        path=(0, 2, 4),
        correction=9,
        texts=("r", "a", "b", "c", "d"),
        correction_text="e",
    )
    rows = {node.text: node.row for node in lay_out_nodes(tree)}
    assert rows["r"] == rows["b"] == rows["d"] == rows["e"] == 0, "the root too: a wide tree began out of view"
    assert rows["c"] == 1
    assert rows["a"] == 2


def test_a_parent_beside_the_path_stands_at_the_middle_of_its_children() -> None:
    tree = RoundTree(
        tokens=(0, 1, 2, 3),
        parents=(-1, 0, 1, 1),
        drafters=("", *["drafter"] * 3),
        log_probs=(0.0, -1.0, -1.0, -1.0),
        path=(0,),
        correction=9,
        texts=("r", "a", "b", "c"),
        correction_text="e",
    )
    rows = {node.text: node.row for node in lay_out_nodes(tree)}
    assert rows == {"r": 0, "e": 0, "a": 1.5, "b": 1, "c": 2}


def test_no_two_nodes_stand_in_one_place() -> None:
    parents = [-1, *((node - 1) // 3 for node in range(1, 256))]
    count = len(parents)
    tree = RoundTree(
        tokens=tuple(range(count)),
        parents=tuple(parents),
        drafters=("", *["lookup"] * (count - 1)),
        log_probs=(-1.0,) * count,
        path=(0, 2, 7, 22),
        correction=1,
        texts=tuple(map(str, range(count))),
    )
    nodes = lay_out_nodes(tree)
    assert len({(node.column, node.row) for node in nodes}) == len(nodes) == 257


def test_a_chain_as_deep_as_they_come_is_placed() -> None:
    nodes = lay_out_nodes(round_tree([f"t{number}" for number in range(64)], "end"))
    assert {node.row for node in nodes} == {0.0}
    assert nodes[-1].column == 65
