"""Law: text becomes tokens as tokenizer.json says, and a chat becomes text by the folder's template, in any file.

Code that comes with a model is never run, nor asked about.
"""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as some
from tokenizers import Tokenizer
from transformers import AutoTokenizer
from transformers.utils.chat_template_utils import _compile_jinja_template

import rdchat
from rdchat.errors import ModelError
from rdchat.inference.prompts.model_prompts import read_tokenizer
from rdchat.inference.prompts.tokenizer_process import (
    NO_CODE,
    TokenizerProcess,
    has_template,
    joined_templates,
    tokenizer_view,
)
from tests.inference.prompts.folders import changed, edited, prompts_of, user
from tests.inference.tokenizer_kinds import kinds

MARK = b"\xef\xbb\xbf"
CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
TOOLS = (
    "{%- macro spelled(part) %}{% if part is mapping %}{% for key in part %}{{ key + ':' + spelled(part[key]) }}"
    "{% endfor %}{% else %}{{ part|string }};{% endif %}{% endmacro %}{{ '<tool_call>' }}"
    "{% for t in tools %}{{ spelled(t.function) }}{% endfor %}{% for m in messages %}{{ m.content }}"
    "{% for tool_call in m.tool_calls or [] %}{{ tool_call.name }}{% endfor %}{% endfor %}\n\n"
)
TOOL = {"type": "function", "function": {"name": "add", "description": "adds", "parameters": {"type": "object"}}}
# Classes that transformers builds anew, and types for which it does.
CLASSES = ("LlamaTokenizer", "LlamaTokenizerFast", "Qwen2Tokenizer", "GemmaTokenizer", "PreTrainedTokenizerFast", "New")
TYPES = ("llama", "qwen2", "mistral", "gemma3_text", "gpt2", "something_new")


def pieces() -> Tokenizer:
    """Return a tokenizer as SentencePiece makes them, with a word mark before each part between control tokens."""
    return Tokenizer.from_str(kinds()["Llama 2"].own.to_str())


def read(folder: Path) -> Any:
    with tokenizer_view(folder) as view:
        return AutoTokenizer.from_pretrained(view, **NO_CODE)


@pytest.fixture(scope="module")
def named_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Any]:
    """The tokenizer of one tokenizer.json under each class and model type."""
    own = pieces()
    found = {}
    for place, (named, kind) in enumerate(zip(CLASSES * 2, (*TYPES, *reversed(TYPES)), strict=True)):
        folder = tmp_path_factory.mktemp("qwen2") / f"llama-{place}"
        folder.mkdir()
        own.save(str(folder / "tokenizer.json"))
        (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": named, "eos_token": "</s>"}))
        (folder / "config.json").write_text(json.dumps({"model_type": kind}))
        found[named, kind] = read(folder)
    return found


@settings(max_examples=25)
@given(text=some.text(some.sampled_from("the fox 0123\n ▁é<s>/\t"), max_size=24))
def test_whatever_class_is_named_tokenizer_json_decides(named_folders: dict[tuple[str, str], Any], text: str) -> None:
    """transformers builds some classes anew, with another normaliser and other pieces."""
    wanted = pieces().encode(text, add_special_tokens=False).ids
    found = {name: tokenizer.encode(text, add_special_tokens=False) for name, tokenizer in named_folders.items()}
    assert {name: ids for name, ids in found.items() if ids != wanted} == {}


def test_special_tokens_that_only_the_class_names_are_kept(tmp_path: Path) -> None:
    """GPT-2's files name no end token."""
    own = pieces()
    own.add_special_tokens(["<|endoftext|>"])
    own.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    assert read(tmp_path).eos_token == "<|endoftext|>"
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"eos_token": "</s>"}))
    assert read(tmp_path).eos_token == "</s>"
    (tmp_path / "special_tokens_map.json").unlink()
    pieces().save(str(tmp_path / "tokenizer.json"))
    assert read(tmp_path).eos_token is None, "a token that the file does not have is not added"
    assert len(read(tmp_path)) == pieces().get_vocab_size()


@pytest.fixture
def bare(folder: Path) -> Path:
    """A model folder without a chat template."""
    return edited(folder, "tokenizer_config.json", lambda own: own.pop("chat_template"))


def put(folder: Path, name: str, template: Any) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    if name.endswith(".jinja"):
        path.write_text(template)
    else:
        content = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps(content | {"chat_template": template}))


PLACES = ("chat_template.jinja", "tokenizer_config.json", "chat_template.json", "processor_config.json")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("mark", [b"", MARK])
def test_a_template_may_be_in_any_of_its_files(bare: Path, process: TokenizerProcess, place: str, mark: bytes) -> None:
    assert not has_template(bare)
    put(bare, place, CHATML)
    (bare / place).write_bytes(mark + (bare / place).read_bytes())
    assert has_template(bare)
    ids = prompts_of(bare).encode([user("Hi")], None, 500)
    assert ids == process.encode(
        bare, lambda: None, text="<|im_start|>user\nHi<|im_end|>\n", marks="\ue000\ue001", limit=500
    )


def test_the_first_of_the_files_counts(bare: Path) -> None:
    for number, place in reversed([*enumerate(PLACES)]):
        put(bare, place, str(number))
        assert read(bare).chat_template == str(number)


def templates(folder: Path, form: str) -> None:
    """Write a template for chats and one for tools, as transformers and people do."""
    if form == "a list":
        pair = [{"name": "default", "template": CHATML}, {"name": "tool_use", "template": TOOLS}]
        put(folder, "tokenizer_config.json", pair)
    elif form == "a map":
        put(folder, "chat_template.json", {"default": CHATML, "tool_use": TOOLS})
    else:
        put(folder, "tokenizer_config.json" if form == "beside the settings" else "chat_template.jinja", CHATML)
        put(folder, "additional_chat_templates/tool_use.jinja", TOOLS)


@pytest.mark.parametrize("form", ["a list", "a map", "beside the settings", "beside the template"])
def test_the_template_for_tools_is_used_for_tools(bare: Path, form: str) -> None:
    templates(bare, form)
    prompts = prompts_of(bare)
    put(bare, "tokenizer_config.json", CHATML)
    alone = shutil.copytree(bare, bare.parent / "alone")
    for path in (*alone.glob("chat_template.*"), *alone.glob("additional_chat_templates/*")):
        path.unlink()
    templates(bare, form)
    plain = prompts_of(alone)
    assert prompts.encode([user("Hi")], None, 500) == plain.encode([user("Hi")], None, 500)
    put(alone, "tokenizer_config.json", TOOLS)
    tools = prompts_of(alone)
    assert prompts.trained_for_tools == tools.trained_for_tools
    assert prompts.tool_markers == tools.tool_markers
    tool = json.dumps([TOOL])
    assert prompts.encode([user("Hi")], None, 900, tools=tool) == tools.encode([user("Hi")], None, 900, tools=tool)


PART = some.sampled_from(["\n", " ", "a", "{{ messages }}", "{% if 1 %}", "{% endif %}", "{%- if 1 -%}", "{#- x -#}"])


def balanced(parts: list[str]) -> str:
    """Return a template of some parts; an `if` that is not closed is closed, one that was not opened is left out."""
    text = ""
    depth = 0
    for part in parts:
        step = ("if 1" in part) - ("endif" in part)
        if depth + step >= 0:
            text = text + part
            depth = depth + step
    return text + "{% endif %}" * depth


@settings(max_examples=60)
@given(some.lists(PART, max_size=6).map(balanced), some.lists(PART, max_size=6).map(balanced))
def test_two_templates_in_one_write_the_same(branch: str, other: str) -> None:
    """Blanks and line ends around a template's tags are part of its text, or not, by jinja's rules."""

    def rendered(template: str, **variables: Any) -> str:
        return str(_compile_jinja_template(template).render(messages="M", **variables))

    both = joined_templates(branch, other)
    assert rendered(both, tools=[1]) == rendered(branch, tools=[1])
    assert rendered(both, tools=None) == rendered(other, tools=None)


def test_every_file_may_begin_with_a_byte_order_mark(bare: Path) -> None:
    put(bare, "chat_template.jinja", CHATML)
    wanted = prompts_of(bare).encode([user("Hi")], None, 500)
    for path in (path for path in bare.iterdir() if path.suffix in {".json", ".jinja", ".txt"}):
        path.write_bytes(MARK + path.read_bytes())
    assert prompts_of(bare).encode([user("Hi")], None, 500) == wanted


EVIL = """
from pathlib import Path
Path({marker!r}).touch()
from transformers import PreTrainedTokenizerFast
class EvilTokenizer(PreTrainedTokenizerFast):
    pass
"""
READS = re.compile(r"[\w.]+\.(from_pretrained|get_class_from_\w+)\(|mlx_lm\w*\.load\w*\(")


def evil(model: Path, place: Path, code: str = "evil.EvilTokenizer") -> Path:
    """Return the marker that the code of a model folder at `place` makes where it is run."""
    marker = place.parent / "was-run"

    def name_code(config: dict[str, Any]) -> None:
        config |= {"tokenizer_class": "EvilTokenizer", "auto_map": {"AutoTokenizer": [code, code]}}

    changed(model, place, "tokenizer_config.json", name_code)
    changed(model, place, "config.json", lambda config: config.update(auto_map={"AutoConfig": code}))
    (place / "evil.py").write_text(EVIL.format(marker=str(marker)))
    return marker


@pytest.mark.slow
@pytest.mark.parametrize("code", ["evil.EvilTokenizer", "someone/repo--evil.EvilTokenizer"])
def test_a_tokenizer_that_names_code_is_read_without_it(
    small_model: Path, tmp_path: Path, process: TokenizerProcess, code: str
) -> None:
    folder = tmp_path / "evil"
    marker = evil(small_model, folder, code)
    plain = read_tokenizer(small_model, process)
    read = read_tokenizer(folder, process)
    assert read.encode("Hello world 12") == plain.encode("Hello world 12")
    assert not marker.exists()


@pytest.mark.slow
def test_nobody_is_asked_whether_to_run_code_and_a_yes_runs_none(small_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "evil"
    marker = evil(small_model, folder)
    command = [sys.executable, "-m", "rdchat", "ask", "hi", "--model", str(folder), "--max-tokens", "4"]
    told = subprocess.run(command, input="y\ny\ny\n", capture_output=True, text=True, timeout=120, check=False)
    assert told.returncode == 0, told.stderr
    assert "custom code" not in told.stdout + told.stderr
    assert not marker.exists()


def test_a_tokenizer_that_is_code_alone_is_refused_by_name(
    small_model: Path, tmp_path: Path, process: TokenizerProcess
) -> None:
    folder = tmp_path / "evil"
    marker = evil(small_model, folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"needs its own code \(evil.EvilTokenizer\)"):
        read_tokenizer(folder, process)
    assert not marker.exists()


def test_transformers_sees_no_code_and_no_word_of_it(small_model: Path, tmp_path: Path) -> None:
    evil(small_model, tmp_path / "evil")
    with tokenizer_view(tmp_path / "evil") as view:
        assert not list(view.glob("*.py"))
        assert "auto_map" not in json.loads((view / "tokenizer_config.json").read_text())
        assert set(json.loads((view / "config.json").read_text())) <= {"model_type", "tokenizer_class"}


@pytest.mark.slow
def test_every_call_into_transformers_and_mlx_lm_says_that_no_code_is_trusted() -> None:
    found = set()
    for path in Path(rdchat.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            call = ast.unparse(node) if isinstance(node, ast.Call) else ""
            if READS.match(call):
                found.add(path.name)
                assert "NO_CODE" in call or "trust_remote_code=False" in call, (path.name, call)
    assert found == {"loading.py", "model_prompts.py", "tokenizers_child.py"}
    assert NO_CODE["trust_remote_code"] is False


@pytest.mark.slow
def test_the_child_takes_no_module_from_the_folder_it_is_started_in(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jinja2.py").write_text(f"open({os.fspath(tmp_path / 'was-run')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    process = TokenizerProcess()
    try:
        assert process.read_tokenizer(small_model)["<|im_start|>"] == 1
    finally:
        process.child.close()
    assert not (tmp_path / "was-run").exists()
