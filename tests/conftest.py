"""Fixtures for all tests: separate folders, and the real default model."""

import gc
import os
import signal
import socket
import sys
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from send2trash import plat_other
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from rdchat import host, machine, paths
from tests.hub.surroundings import hub, this_machine_only
from tests.kernels import prepared_marker, temporary_folder
from tests.project.scripts import parsed

__all__ = ["hub", "this_machine_only"]

# The person's own keychain is left alone, here and in processes that are begun. Without this line keyring would choose
# among all its backends, those of our tests too.
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
os.environ["TMPDIR"] = str(temporary_folder())  # else MLX would compile anew for each test's own cache folder
# Each run tries the same examples, however slow the machine is.
settings.register_profile("rdchat", derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
settings.load_profile("rdchat")
_numbers = count()
_QT = "pytest-qt"
# Those of a line share what takes seconds: packages that are imported, the real model, parsed modules.
_ON_ONE_WORKER = (
    ("tests/server/interfaces/test_openai_client.py", "tests/server/interfaces/test_responses.py",
     "tests/server/interfaces/test_anthropic_client.py", "tests/server/interfaces/test_other_programs.py"),
    ("tests/project/test_searchable_names.py", "tests/project/test_repeated_facts.py", "tests/project/test_size.py",
     "tests/project/test_test_imports.py", "tests/project/test_patterns.py", "tests/inference/test_failing_reads.py"),
)  # fmt: skip
# Beginnings of the names of files with few tests, which take long.
_LONG = (
    "tests/hostile/", "tests/e2e/", "tests/commands/", "tests/inference/training/", "tests/services/killed/",
    "tests/services/models/test_", "tests/hub/downloads/test_killed", "tests/chat/test_killed",
    "tests/chat/transfer/test_killed", "tests/inference/caches_on_disk/test_shared_caches",
    "tests/inference/drafting/test_quantised_targets",
)  # fmt: skip
_INSTALLED_MODEL = paths.default_model_dir()  # where `make setup` put it, before the folders are moved


def pytest_configure(config: pytest.Config) -> None:
    """Listen to Ctrl-C: a shell's background jobs do not, and the programs that tests start would inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _let_threads_finish_their_slices()
    _look_up_own_names_only()
    if not hasattr(config, "workerinput"):  # before the workers begin
        from rdchat.inference.loading import header_compiled

        with header_compiled():
            pass
    if config.pluginmanager.hasplugin(_QT):
        config.pluginmanager.import_plugin("tests.windows")


def _look_up_own_names_only() -> None:
    """Know no other machine by its name: asking the network for it takes as long as that likes."""
    look_up = socket.getaddrinfo
    own = {None, "", "localhost", b"localhost", socket.gethostname()}

    def looked_up(host: Any, port: Any, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0) -> list[Any]:
        if host not in own:
            flags |= socket.AI_NUMERICHOST
        return look_up(host, port, family, type, proto, flags)

    socket.getaddrinfo = looked_up


def _let_threads_finish_their_slices() -> None:
    """On Linux, do not let a thread that is woken interrupt the one that woke it.

    MLX wakes its CPU thread for every few operations. On a busy core each of those takes the core at once and is done
    after microseconds: two switches an operation, which cost tiny models as much as their arithmetic. It is for this
    process, and what it starts.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


@pytest.fixture(autouse=True)
def _drafting_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let replies draft from the first one on, whatever is compiled on this machine."""
    from rdchat.inference import blas

    monkeypatch.setattr(blas, "compiled_marker", prepared_marker)


@pytest.fixture(autouse=True)
def _equal_models_are_tried_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Try equal models once in a process, where what loads them was imported by an earlier test or its file.

    It is for the real model at once, of which a trial takes longest.
    """
    if "default_model" in request.fixturenames:
        import rdchat.inference.loading  # noqa: F401
    if loading := sys.modules.get("rdchat.inference.loading"):
        from tests.inference.known_capabilities import check_once

        monkeypatch.setattr(loading, "check_capability", check_once)


class _Files(LoadFileScheduling):
    """Gives a worker one file after the other, and one worker all of a line of `_ON_ONE_WORKER`.

    Those with most tests come first, as ever, but behind those of `_LONG`: a long one must not be the last.
    """

    def schedule(self) -> None:
        super().schedule()
        for scope in [scope for scope in self.workqueue if scope.startswith(_LONG)]:
            self.workqueue.move_to_end(scope, last=False)

    def _split_scope(self, nodeid: str) -> str:
        # each kind of hostile things takes as long as a file
        file = nodeid.partition(": ")[0] if "test_a_hostile_thing_ends" in nodeid else super()._split_scope(nodeid)
        return next((files[0] for files in _ON_ONE_WORKER if file in files), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Distribute files, where nothing else was asked for."""
    return _Files(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """Leave the modules and the tests themselves out of all collections: a look at them takes half a second."""
    gc.freeze()


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    if not pluginmanager.hasplugin(_QT):
        for name in ("qt_api", "qt_log_level_fail", "qt_log_ignore"):
            parser.addini(name, "pytest-qt's own, which is not here")
    words = "round by the number of rows, and coarsely, in all tests but those that are marked across_rows"
    parser.addoption("--round-by-rows", action="store_true", help=words)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
    """Run a test, and the fixtures that it is the first to need, on the device that its marks ask for."""
    with _device_for(item):
        done = yield
    if not (nextitem and nextitem.nodeid.startswith(_ON_ONE_WORKER[1])):
        parsed.cache_clear()  # two million objects: each collection would look at them for two seconds
    return done


def _device_for(item: pytest.Item) -> AbstractContextManager[None]:
    if item.get_closest_marker("across_rows"):
        return _on_the_cpu()
    if item.config.getoption("--round-by-rows"):
        import rdchat.inference.blas  # noqa: F401  before MLX
        from tests.inference.rounding import coarse_rounding_by_rows

        return coarse_rounding_by_rows()
    return nullcontext()


@contextmanager
def _on_the_cpu() -> Iterator[None]:
    """Have all threads compute on the CPU, where models are float32: there rows hardly change each other's rounding."""
    import rdchat.inference.blas  # noqa: F401  before MLX

    # isort: split
    import mlx.core as mx

    device = mx.default_device()
    mx.set_default_device(mx.cpu)
    yield
    mx.set_default_device(device)


def pytest_unconfigure() -> None:
    """Let go of what would be freed after Python has gone: a segmentation fault once all tests have passed.

    MLX keeps compiled functions for this thread, which must not use it any more. At exit it frees those of the thread
    that imported it. In the app that is the engine thread, and nothing else uses MLX; in a test run this thread may
    come to use it after an engine thread of an earlier test imported it.
    """
    if mlx := sys.modules.get("mlx.core"):
        mlx.clear_streams()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests recorded and do not judge, such as times."""
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.write_line(f"{report.nodeid}: {name}: {value}")


@pytest.fixture
def own_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a test's `tmp_path`; where it has none, a path of its own where nothing is: most tests write no file."""
    if "tmp_path" in request.fixturenames:
        folder: Path = request.getfixturevalue("tmp_path")
        return folder
    return tmp_path_factory.getbasetemp() / f"unused-{next(_numbers)}"


@pytest.fixture(autouse=True)
def own_folders(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep tests away from the person's own conversations, settings and cache."""
    monkeypatch.setenv("RDCHAT_DATA_DIR", str(own_folder / "data"))
    monkeypatch.setenv("RDCHAT_CACHE_DIR", str(own_folder / "cache"))


@pytest.fixture(autouse=True)
def no_keychain() -> Iterator[None]:
    """Forget the keychain of a test: it would ask the person of later ones, who is not there."""
    yield
    if keyring := sys.modules.get("keyring"):
        from keyring.backends.fail import Keyring

        keyring.set_keyring(Keyring())


@pytest.fixture(autouse=True)
def no_system_trash(own_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what tests delete out of the person's Trash: the system has none."""

    def refuse(path: Path) -> None:
        raise OSError(f"{path} cannot be moved to the Trash")

    monkeypatch.setenv("XDG_DATA_HOME", str(own_folder / "no share"))
    monkeypatch.setattr("send2trash.send2trash", refuse)


@pytest.fixture
def system_trash(no_system_trash: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let the system have a Trash, the freedesktop's; return the folder of its files."""
    if host.MACOS:
        pytest.skip("a Mac's Trash is the person's own")
    (tmp_path / "share").mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    trash = tmp_path / "share" / "Trash"
    monkeypatch.setattr("send2trash.send2trash", plat_other.send2trash)
    monkeypatch.setattr(plat_other, "XDG_DATA_HOME", str(tmp_path / "share").encode())
    monkeypatch.setattr(plat_other, "HOMETRASH_B", str(trash).encode())
    return trash / "files"


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let costs be measured whatever else this machine does, and on battery."""
    monkeypatch.setattr(machine, "others_seconds", lambda: 0.0)
    monkeypatch.setattr(machine, "on_battery", lambda: False)


@pytest.fixture(scope="session")
def default_model_folder() -> Path:
    """The real default model as `make setup` installs it."""
    if not (_INSTALLED_MODEL / "config.json").exists():
        pytest.fail(f"The default model is not at {_INSTALLED_MODEL}: run `make setup`.")
    return _INSTALLED_MODEL


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder of the real format with two small random layers, 4-bit. Copy it before changing it."""
    import rdchat.inference.blas  # noqa: F401  here, as most tests need no MLX; it picks the fast BLAS, so it goes first
    from rdchat.inference.models.default_conversion import convert
    from tests.inference.gguf_samples import write_gguf

    place = tmp_path_factory.mktemp("small")
    (place / "model").mkdir()
    convert(write_gguf(place / "small.gguf"), place / "model", lambda _progress: None)
    return place / "model"


@pytest.fixture
def default_model(own_folders: None, default_model_folder: Path) -> Path:
    """The real default model, in place in this test's own cache folder."""
    place = paths.default_model_dir()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(default_model_folder, target_is_directory=True)
    return place
