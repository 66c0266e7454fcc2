"""Public suites: JSON schemas, Markdown, and the server's APIs. Their figures are in docs/conformance.md.

    make conformance ARGS="[--data FOLDER] [--only schemas|markdown|server|responses|clients]"

FOLDER is `maskbench/data` of a copy of guidance-ai/jsonschemabench: it has no licence, so its schemas are not here.
The server's suite is llmprobe, which npm installs beside this file; without Node it is left out. It runs against a
server of its own on this machine; nothing is uploaded, and nothing is stored outside of a temporary folder. See
`clients.py` for the last two, which need no model.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rdchat.ui.transcript.markdown.copying import as_plain
from tests.conformance import clients, markdown, schemas

ROOT = Path(__file__).resolve().parents[2]
PROBE = Path(__file__).resolve().parent / "llmprobe"
# Answers that are made from the grammar of each schema.
SAMPLES = 3
# Seconds for one request of llmprobe, on a busy machine.
PATIENCE_S = 600
# Checks that may fail, since llmprobe wants all tokens of the prompt in `input_tokens`, where Anthropic's API has those
# that were not cached, and since the default model does not write the word that should stop it.
EXCUSED = {
    "messages: prompt cache reporting",
    "messages: prefix cache reuses a growing conversation",
    "messages: stop_sequence is reported and echoed",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="schemas of MaskBench")
    parser.add_argument("--only", choices=["schemas", "markdown", "server", "responses", "clients"])
    arguments = parser.parse_args()
    suites: dict[str, Callable[[], bool]] = {
        "schemas": lambda: check_schemas(arguments.data),
        "markdown": check_markdown,
        "server": check_server,
        "responses": clients.check_responses,
        "clients": clients.check_clients,
    }
    failed = [name for name, check in suites.items() if arguments.only in (None, name) and not check()]
    print(f"Failed: {', '.join(failed)}." if failed else "Nothing failed.")
    return 1 if failed else 0


def check_schemas(data: Path | None) -> bool:
    suites = {"JSON-Schema-Test-Suite, draft 2020-12": schemas.suite}
    if data:
        suites["MaskBench, 1,000 schemas"] = lambda: list(schemas.sample_of_maskbench(data))
    else:
        print("MaskBench is left out: give --data.")
    passed = True
    for name, cases in suites.items():
        for strict in (False, True):
            report = schemas.judge(cases(), strict=strict, samples=SAMPLES)
            print(f"\n{name}{', strict' if strict else ''}: {len(report.wrong)} wrong")
            print("".join(f"  {count:6,} {label}\n" for label, count in sorted(report.counts.items()) if count), end="")
            print("".join(f"  {count:6,} {message}\n" for message, count in report.refusals.most_common()), end="")
            print("".join(f"  {line}\n" for line in report.wrong), end="")
            passed &= not report.wrong
    return passed


def check_markdown() -> bool:
    lost = markdown.lost_examples()
    print(f"\nMarkdown: {len(markdown.examples()):,} examples, {len(lost)} lose text {' '.join(lost)}")
    bad = []
    cases = list(markdown.pathological())
    for name, text, rest in cases:
        blocks, steps = markdown.read(text)
        if not markdown.is_bounded(text, steps) or markdown.missing(rest, as_plain(blocks)):
            bad.append(name)
    print(f"Markdown: {len(cases)} pathological cases, {len(bad)} lose text or take too long {' '.join(bad)}")
    return not lost and not bad


def check_server() -> bool:
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        print("\nllmprobe is left out: install Node 20 or newer.")
        return True
    install = [npm, "ci", "--prefix", str(PROBE), "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    program = PROBE / "node_modules" / "llmprobe" / "bin" / "dist" / "llmprobe.mjs"
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as (address, key):
        options = ["--full", "--no-bench", "--no-save", "--no-color", "--timeout", str(PATIENCE_S)]
        outcomes = probed([node, str(program), address, "-k", key, *options], Path(folder))
    counts = {sign: sum(line.startswith(sign) for line in outcomes) for sign in "✓✗?"}
    failed = {line[2:].rpartition("  ")[0] or line[2:] for line in outcomes if line.startswith("✗")}
    print(f"llmprobe: {counts['✓']} checks passed, {counts['✗']} failed, {counts['?']} could not be judged")
    print("".join(f"  {name}\n" for name in sorted(failed - EXCUSED)), end="")
    return bool(counts["✓"]) and failed <= EXCUSED


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, str]]:
    """Run a server on a free port of this machine; yield its address and its key."""
    command = [sys.executable, "-m", "rdchat", "serve", "--port", "0", "--api-key-file", str(folder / "key")]
    own = os.environ | {"RDCHAT_DATA_DIR": str(folder / "data")}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=own, cwd=ROOT)
    assert server.stdout
    try:
        address = server.stdout.readline().partition(" at ")[2].partition("/v1 ")[0]
        if not address.startswith("http://127.0.0.1:"):
            raise SystemExit("The server did not start.")
        yield address, (folder / "key").read_text().strip()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()


def probed(command: list[str], folder: Path) -> list[str]:
    """Run llmprobe; print and return the lines of its checks. What follows is about the model, so it ends there."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("LLMPROBE")}
    own |= {"HOME": str(folder), "NO_PROXY": "*"}
    probe = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=own)
    assert probe.stdout
    outcomes: list[str] = []
    for line in probe.stdout:
        print(line, end="", flush=True)
        if " /v1/models: " in line or outcomes:
            if not line.strip():
                break
            outcomes.append(line.strip())
    probe.terminate()
    probe.wait()
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
