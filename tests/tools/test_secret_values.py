"""What is masked in what servers send: what the person has called a key, and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import assume, example, given, strategies as st

from rdchat.tools.definitions import ToolServer, listed_tools
from rdchat.tools.secret_values import KEY_NAME, SecretMask

TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
WORDS = st.from_regex(r"\A[A-Za-z0-9._@:/-]{1,20}\Z") | st.sampled_from(["us-east-1", "customers", "true", "5", "ö b"])


def mask(values: dict[str, str], **fields: Any) -> SecretMask:
    return SecretMask(ToolServer("srv", ("srv",), keys_chosen=True, **fields), values)


@given(WORDS, WORDS, TEXTS)
def test_the_value_of_a_variable_that_is_no_key_stays(value: str, key: str, text: str) -> None:
    texts = [value, f"{text}{value}{text}", f"at {value}/x"]
    assume(not any(key in each for each in [*texts, "default"]))
    tool = {
        "name": "do",
        "description": texts[1],
        "inputSchema": {"properties": {"a": {"default": [value, {value: 1}]}}},
    }
    masked = mask({"TOKEN": key}, environment={"SITE": value})
    assert [masked(each) for each in texts] == texts
    assert masked([tool]) == [tool]


@given(
    st.from_regex(r"\A[A-Za-z0-9]([A-Za-z0-9._@:/=+-]{0,20}[A-Za-z0-9])?\Z"),
    st.sampled_from(["", " ", "\n", ": ", "=", '"', "(", "是"]),
    st.sampled_from(["", " ", "\n", ",", '"', ")", "。"]),
)
@example("ab", "\\n", "\\n")
@example("a=b", "key%3D", "%26")
@example("ß", " ", " ")
def test_a_key_of_any_length_is_masked_where_it_stands_alone(key: str, before: str, behind: str) -> None:
    """Also under a name that is no key's."""
    masked = mask({"SITE": key})
    assert masked(f"{before}{key.strip()}{behind}") == f"{before}•••{behind}"
    tool = {
        "name": "do",
        "description": f"— {key} —",
        "inputSchema": {"properties": {"type": {"default": {"a": [key]}}}},
    }
    (shown,), _ = listed_tools(masked([tool]))
    assert shown["description"] == "— ••• —"
    assert shown["parameters"]["properties"] == {"type": {"default": {"a": ["•••"]}}}


def test_a_short_key_stays_a_part_of_words_and_names_of_arguments_stay() -> None:
    masked = mask({"KEY": "read", "PASSWORD": "password"})
    assert masked("Already read: read_all, reads; password") == "Already •••: read_all, reads; •••"
    schema = {"type": "object", "properties": {"password": {"type": "string"}}, "required": ["password"]}
    tool = {"name": "read", "inputSchema": schema}
    assert masked([tool]) == [tool], "it can be called"


@pytest.mark.parametrize(
    ("value", "said", "shown"),
    [
        ("Bearer ab12", "Bearer ab12; ab12", "•••; •••"),
        ('one"two', json.dumps({"a": 'one"two'}), '{"a": "•••"}'),
        ("open sesame", "open sesame!", "•••!"),
        ("grün 🔑", json.dumps({"a": "grün 🔑"}), '{"a": "•••"}'),
        # A failed request quotes its address.
        ("Bearer a/b+c==(d)", "GET https://a.test/?key=a%2Fb%2Bc%3D%3D%28d%29&n=1", "GET https://a.test/?key=•••&n=1"),
        ("a/b+c==(d)", "GET https://a.test/a%2Fb%2Bc%3D%3D(d)", "GET https://a.test/•••"),
        ("", "nothing", "nothing"),
    ],
)
def test_a_header_is_always_masked(value: str, said: str, shown: str) -> None:
    assert SecretMask(ToolServer("web", url="https://a.test"), {"X-Site": value})(said) == shown


def test_passwords_in_addresses_are_masked_wherever_they_were_given() -> None:
    command = ("npx", "postgres://me:h%40nd@db.test/x", "https://a.test:8080/@scope/pkg")
    server = ToolServer("db", command, environment={"URL": "redis://:r3d@a.test"}, keys_chosen=True)
    said = "me at db.test and a.test:8080/@scope with h%40nd and r3d"
    assert SecretMask(server, {})(said) == "me at db.test and a.test:8080/@scope with ••• and •••"
    assert SecretMask(server, {})("no password h@nd for me") == "no password ••• for me", "as the database got it"


@pytest.mark.parametrize("address", ["postgres://db.test/x?user=me&password=h%40nd#a", "jdbc:x://db.test/x?PWD=h%40nd"])
def test_passwords_in_the_query_of_an_address_are_masked(address: str) -> None:
    server = ToolServer("db", ("db",), environment={"URL": address}, keys_chosen=True)
    assert SecretMask(server, {})("me at db.test: h@nd, h%40nd") == "me at db.test: •••, •••"


VALUES = {
    "JIRA_URL": "https://acme.test",
    "AWS_REGION": "us-east-1",
    "DB_NAME": "customers",
    "GITLAB_TOKEN": "ghp_16C7e",
}


def test_names_decide_for_servers_of_earlier_versions() -> None:
    """All their variables are in the keychain, and nobody has said which are keys."""
    masked = SecretMask(ToolServer("srv", ("srv",), secrets=tuple(VALUES)), VALUES)
    assert masked(" ".join(VALUES.values())) == "https://acme.test us-east-1 customers •••"


@pytest.mark.parametrize(
    ("names", "is_key"),
    [
        ("GITHUB_TOKEN API_KEY AWS_ACCESS_KEY_ID CLIENT_SECRET PGPASSWORD apiKey DB_PASS GITLAB_PAT AUTH_HEADER", True),
        ("JIRA_URL USERNAME MAX_TOKENS KEYWORDS TOKENIZER TOKEN_URL KEY_FILE PATH COMPAT REGION KEYCLOAK_HOST", False),
    ],
)
def test_boxes_are_ticked_by_names(names: str, is_key: bool) -> None:
    assert [name for name in names.split() if bool(KEY_NAME.match(name)) is not is_key] == []
