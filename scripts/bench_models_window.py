"""Measures how fast the models window opens over 200 models, and whether it ever stalls.

The models are made up: folders with the configuration and headers of 8B models, whose weights take no disk space. The
real app lists them, first without cached facts and then with them; the list is scrolled, searched, sorted and walked
through. Then the Discover page gets 500 results from a local hub. `--json` prints one object.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench_transcript import DelayMeter, wait
from PySide6.QtCore import QEventLoop, Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractItemView, QApplication, QLineEdit, QWidget
from stand_in_app import running_app
from stand_in_engine import StandInReply

from rdchat.app import App
from rdchat.inference.api.model_facts import MachineMemory, MemoryRoom

MODELS, RESULTS = 200, 500
OPEN_MS, STALL_MS = 300, 50  # what must hold
_LAYERS, _WIDTH, _INNER, _TOKENS = 32, 4096, 14336, 128_256
_TOKENIZER_BYTES = 9_000_000
_GB = 2**30


def header() -> tuple[bytes, int]:
    """Return the header of a 4-bit model of 8B parameters, and the bytes of what follows it."""
    tensors: dict[str, object] = {}
    end = 0

    def add(name: str, dtype: str, width: int, *shape: int) -> None:
        nonlocal end
        size = width
        for each in shape:
            size *= each
        tensors[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size

    def add_matrix(name: str, rows: int, columns: int) -> None:
        add(f"{name}.weight", "U32", 4, rows, columns // 8)
        add(f"{name}.scales", "BF16", 2, rows, columns // 64)
        add(f"{name}.biases", "BF16", 2, rows, columns // 64)

    add_matrix("model.embed_tokens", _TOKENS, _WIDTH)
    add_matrix("lm_head", _TOKENS, _WIDTH)
    add("model.norm.weight", "BF16", 2, _WIDTH)
    for layer in range(_LAYERS):
        start = f"model.layers.{layer}"
        for part, rows, columns in (
            ("self_attn.q_proj", _WIDTH, _WIDTH),
            ("self_attn.k_proj", 1024, _WIDTH),
            ("self_attn.v_proj", 1024, _WIDTH),
            ("self_attn.o_proj", _WIDTH, _WIDTH),
            ("mlp.gate_proj", _INNER, _WIDTH),
            ("mlp.up_proj", _INNER, _WIDTH),
            ("mlp.down_proj", _WIDTH, _INNER),
        ):
            add_matrix(f"{start}.{part}", rows, columns)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            add(f"{start}.{norm}.weight", "BF16", 2, _WIDTH)
    raw = json.dumps(tensors).encode()
    raw += b" " * (-len(raw) % 8)
    return len(raw).to_bytes(8, "little") + raw, end


def make_models(home: Path, count: int) -> None:
    """Fill the hub's cache, LM Studio's folder and a folder of one's own."""
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": _WIDTH,
        "intermediate_size": _INNER,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": _TOKENS,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 131072,
        "quantization": {"group_size": 64, "bits": 4},
    }
    start, size = header()
    tokenizer = home / "tokenizer.json"
    tokenizer.write_bytes(b"{" + b" " * (_TOKENIZER_BYTES - 2) + b"}")
    for number in range(count):
        name = f"model-{number:03}-8B-Instruct-4bit"
        if number % 4 == 3:
            folder = home / ".lmstudio/models" / f"org-{number % 7}" / name
        else:
            repository = home / "hub" / f"models--org-{number % 7}--{name}"
            (repository / "refs").mkdir(parents=True)
            (repository / "refs" / "main").write_text(f"{number:040x}")
            folder = repository / "snapshots" / f"{number:040x}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
        os.link(tokenizer, folder / "tokenizer.json")
        with (folder / "model.safetensors").open("wb") as file:
            file.write(start)
            file.truncate(len(start) + size)


@contextmanager
def stalls(figures: dict[str, float], name: str) -> Iterator[None]:
    """Note by how much a click would have waited at most while the block runs."""
    meter = DelayMeter()
    yield
    wait(0.05)
    meter.stop()
    figures[f"{name}_stall_ms"] = round(max(meter.delays, default=0.0), 1)


def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Run the event loop until something holds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("It took too long.")
        wait(0.02)


def open_window(app: App, figures: dict[str, float], name: str) -> QWidget:
    """Open the models window; note how long it took until it was drawn."""
    with stalls(figures, f"{name}_opening"):
        began, worked = time.perf_counter(), time.thread_time()
        app.window.actions_.models.trigger()
        window = app.window.windows.models
        window.repaint()
        loop = QEventLoop()
        QTimer.singleShot(0, loop.quit)
        loop.exec()
        figures[f"{name}_open_ms"] = round((time.perf_counter() - began) * 1000, 1)
        figures[f"{name}_open_cpu_ms"] = round((time.thread_time() - worked) * 1000, 1)
        wait_until(lambda: window.installed.list.count() == MODELS)
        figures[f"{name}_listed_ms"] = round((time.perf_counter() - began) * 1000, 1)
    return window


def walk(app: App, figures: dict[str, float]) -> None:
    """Scroll, search, sort, and look at each model."""
    page = app.window.windows.models.installed
    bar = page.list.verticalScrollBar()
    with stalls(figures, "scrolling"):
        for place in range(0, bar.maximum(), max(bar.maximum() // 60, 1)):
            bar.setValue(place)
            wait(0.01)
    with stalls(figures, "searching"):
        for text in ("1", "12", "12 llama", "org-3 4bit", "zzz", ""):
            page.search.setText(text)
            wait(0.05)
    with stalls(figures, "sorting"):
        for place in (1, 2, 0):
            page.sort.setCurrentIndex(place)
            page.sort.activated.emit(place)
            wait(0.05)
    with stalls(figures, "walking"):
        page.list.setFocus()
        page.list.setCurrentRow(0)
        for _ in range(MODELS - 1):
            QTest.keyClick(page.list, Qt.Key.Key_Down)
            wait(0.005)
        wait(0.5)


def discover(app: App, figures: dict[str, float]) -> None:
    """Search on the Discover page and scroll to the end of what is found, where there is such a page."""
    window = app.window.windows.models
    page = window.discover
    fields = page.findChildren(QLineEdit)
    if not fields:
        return
    with stalls(figures, "discover_opening"):
        window.show_page(page)
        wait(0.5)
    with stalls(figures, "discover_searching"):
        QTest.keyClicks(fields[0], "model")
        QTest.keyClick(fields[0], Qt.Key.Key_Return)
        wait_until(lambda: _longest(page) >= 10)
    with stalls(figures, "discover_scrolling"):
        end = time.monotonic() + 30
        while _longest(page) < RESULTS and time.monotonic() < end:
            for view in page.findChildren(QAbstractItemView):
                view.verticalScrollBar().setValue(view.verticalScrollBar().maximum())
            wait(0.02)
    figures["discover_results"] = _longest(page)


def _longest(page: QWidget) -> int:
    return max((view.model().rowCount() for view in page.findChildren(QAbstractItemView) if view.model()), default=0)


def run(qt: QApplication, figures: dict[str, float], name: str, everything: bool) -> None:
    """Open the app and its models window; with `everything`, do all that can be done there."""
    with running_app(qt, StandInReply) as app:
        wait(3.0)  # what the window needs is imported meanwhile; opened before, it waits for that
        open_window(app, figures, name)
        if everything:
            walk(app, figures)
            discover(app, figures)
        app.window.windows.models.close()
    wait(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    options = parser.parse_args()
    command = [sys.executable, str(Path(__file__).with_name("stand_in_hub.py")), str(RESULTS)]
    hub = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    home = Path(tempfile.mkdtemp(prefix="bench-models-"))
    try:
        assert hub.stdout is not None
        os.environ |= {
            "HOME": str(home),
            "HF_HUB_CACHE": str(home / "hub"),
            "HF_ENDPOINT": hub.stdout.readline().strip(),
            "NO_PROXY": "127.0.0.1",
            "RDCHAT_DATA_DIR": str(home / "data"),
            "RDCHAT_CACHE_DIR": str(home / "cache"),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        }
        make_models(home, MODELS)
        sys.modules["rdchat.app"].machine_memory = lambda: MachineMemory(  # type: ignore[attr-defined]
            True, 16 * _GB, MemoryRoom(11 * _GB, 9 * _GB), 0
        )
        qt = QApplication(sys.argv[:1])
        figures: dict[str, float] = {"models": MODELS}
        run(qt, figures, "first", everything=False)
        run(qt, figures, "later", everything=True)
    finally:
        hub.communicate("")
        shutil.rmtree(home, ignore_errors=True)
    if options.json:
        print(json.dumps(figures))
    else:
        for what, figure in figures.items():
            limit = STALL_MS if what.endswith("stall_ms") else OPEN_MS if what.endswith("open_ms") else None
            print(f"{what}: {figure}{f'  (wanted: under {limit})' if limit else ''}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
