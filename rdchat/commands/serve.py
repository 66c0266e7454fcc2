"""`rdchat serve`: the HTTP server without a window. Qt's event loop runs on the main thread, the engine on its own."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QObject, Qt

from rdchat import machine
from rdchat.chat.settings import Settings, stored_settings
from rdchat.commands.terminal import INTERRUPTED, ProgressLine, add_hosts, add_model, engine_address, print_warning
from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.inference.api import DEFAULT_PORT, Dtype, Engines, LoadProgress, ModelCard, ModelInfo, remote_model
from rdchat.server.credentials import end_notice, find_key, fingerprint, own_certificate
from rdchat.server.guard import is_loopback
from rdchat.server.server import Server
from rdchat.server.server_settings import CONTAINER_HOST, DEFAULT_HOST, ServerSettings
from rdchat.services.app.event_loop import QuitSignals
from rdchat.services.engine.engine_client import EngineClient, ModelSlot
from rdchat.services.engine.engine_request import Failure
from rdchat.services.servers.server_control import SharedEngine


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `serve`."""
    parser.description = (
        "Lets programs made for OpenAI's or Anthropic's API use a model on this machine. It prints the address, and "
        "where the key is that every request needs."
    )
    parser.add_argument(
        "--host",
        default=DEFAULT_HOST,
        help="address to listen on; only 127.0.0.1, the default, keeps other machines out",
    )
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="0 takes a free one (default: %(default)s)")
    add_model(parser)
    add_hosts(parser)
    parser.add_argument(
        "--load-models", action="store_true", help="let a request name another installed model, and load it"
    )
    parser.add_argument(
        "--only-installed-models",
        action="store_true",
        help="refuse a request that names a model that is not installed; else the loaded one answers it",
    )
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help=f"exact name by which programs may call this machine, beside {CONTAINER_HOST}; may be repeated",
    )
    parser.add_argument(
        "--api-key-file",
        metavar="FILE",
        type=Path,
        help="file with the key that requests need; made if it is missing (default: a key in the system's keychain)",
    )
    tls = parser.add_argument_group("encryption", "the printed fingerprint lets rdchat on another Mac recognise it")
    tls.add_argument("--tls", action="store_true", help="use a certificate that rdchat makes once, and signs itself")
    tls.add_argument("--certificate", metavar="FILE", type=Path, help="use this certificate, in PEM")
    tls.add_argument("--certificate-key", metavar="FILE", type=Path, help="its private key (default: in the same file)")


def run(args: argparse.Namespace) -> int:
    """Serve until Ctrl-C; the exit status is 130 then. Raise RdchatError where the model or the server cannot start."""
    if remote_model(args.model):
        raise InvalidSettingError("A remote model cannot be served from here.", "Serve it on its own computer.")
    key = find_key(args.api_key_file)
    settings = ServerSettings(
        key.text,
        args.host,
        args.port,
        args.load_models,
        (CONTAINER_HOST, *args.allow_host),
        not args.only_installed_models,
        certificate=args.certificate or (own_certificate() if args.tls else None),
        certificate_key=args.certificate_key,
    )
    qt = QCoreApplication.instance() or QCoreApplication(sys.argv[:1])
    with ProgressLine(verbose=True) as progress:
        serving = _Serving(settings, f"The key is in {key.location}.", Dtype(args.dtype), progress)
        signals = QuitSignals()
        signals.quit_requested.connect(qt.quit, Qt.ConnectionType.QueuedConnection)
        serving.load_and_listen(engine_address(args), args.load_anyway)
        qt.exec()
        ended = serving.stop_serving()
        signals.release()
    if not ended:
        # A thread that hangs must not be destroyed: exit without Qt's clean-up.
        os._exit(INTERRUPTED)
    if serving.problem is not None:
        raise serving.problem
    return INTERRUPTED


class _Serving(QObject):
    """The engine and the server, from loading the model to the end; lives on the main thread.

    Args:
        settings: The server's settings.
        key_text: A sentence that says where the key is.
        dtype: Precision of the model.
        progress: Shows how far loading is.

    Attributes:
        problem: Why it ended by itself; None while it runs, and after Ctrl-C.
    """

    def __init__(self, settings: ServerSettings, key_text: str, dtype: Dtype, progress: ProgressLine) -> None:
        super().__init__()
        self.problem: RdchatError | None = None
        self._key_text = key_text
        self._progress = progress
        self._engine = EngineClient(_engines, machine.keep_awake)
        self._slot = ModelSlot(self._engine, Settings(dtype=dtype))
        self._server = Server(settings, SharedEngine(self._slot, _models))
        self._slot.load_progressed.connect(progress.show_stage)
        self._slot.loaded.connect(self._start)
        self._slot.failed.connect(self._fail)

    def load_and_listen(self, model: str | None, anyway: bool) -> None:
        """Load the model, then listen."""
        self._progress.show_stage(LoadProgress("Loading the model", None))
        self._slot.load_model(model, anyway=anyway)

    def _start(self, info: ModelInfo) -> None:
        """Listen, and print how clients reach the server; do nothing when a client's request loaded another model."""
        if self._server.address:
            return
        self._progress.erase()
        print_warning(info)
        try:
            self._server.listen()
        except RdchatError as error:
            self._give_up(error)
            return
        address = self._server.address
        print(f"rdchat serves {info.name} at {address}/v1 (for Anthropic's API: {address}).", flush=True)
        print(f"{self._key_text} Ctrl-C ends it.", flush=True)
        if certificate := self._server.settings.certificate:
            print(f"Fingerprint of its certificate (SHA-256): {fingerprint(certificate)}", flush=True)
            if notice := end_notice(certificate):
                print(notice, flush=True)
        elif not is_loopback(self._server.settings.host):
            print("Other machines can reach it; what they send and get is not encrypted.", flush=True)

    def _fail(self, failure: Failure) -> None:
        if not self._server.address:
            # A running server sends the error to its client.
            self._give_up(RdchatError(failure.message, failure.hint))

    def _give_up(self, problem: RdchatError) -> None:
        """Leave the event loop; `run` raises the problem."""
        self.problem = problem
        QCoreApplication.exit(1)

    def stop_serving(self) -> bool:
        """Stop the server and the engine; False if a thread did not end."""
        stopped = self._server.stop_server()
        return self._engine.shutdown() and stopped


def _engines() -> Engines:
    from rdchat.inference.engines import EnginesByAddress  # noqa: PLC0415  only once the arguments are right

    return EnginesByAddress(hosts=lambda: stored_settings().hosts)


def _models() -> Sequence[ModelCard]:
    from rdchat.inference.library.model_library import library_models  # noqa: PLC0415  only for another model's name

    return tuple(library_models())
