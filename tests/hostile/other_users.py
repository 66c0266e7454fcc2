"""What another user of the machine could try: to plant a socket, to have code run. Needs root."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.hostile.command_runner import environment_of, fresh
from tests.hostile.samples import BUILD, samples
from tests.users import OTHER_USER, folder_for_all

_PATIENCE_S = 60.0
_PLANTED = '#include <cstdio>\n__attribute__((constructor)) static void run() { fopen(MARK, "w"); }\n'

type _Faults = list[str]


def _rdchat(place: Path, *arguments: object, **more: str) -> "subprocess.CompletedProcess[str]":
    environment = environment_of(place / "audit") | {
        "RDCHAT_DATA_DIR": str(place / "data"), "RDCHAT_CACHE_DIR": str(place / "cache"), "TMPDIR": "", **more,
    }  # fmt: skip
    command = [sys.executable, "-m", "rdchat", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)


def _planted_socket() -> _Faults:
    """Another user makes both folders first; the window must not listen there."""
    with folder_for_all(0o1777) as shared:
        planted = shared / "runtime"
        planted.mkdir(mode=0o777)
        planted.chmod(0o777)
        os.chown(planted, OTHER_USER, OTHER_USER)
        code = (
            "import sys; from pathlib import Path; from rdchat.services.app.single_instance import listening_path\n"
            "print(listening_path(Path(sys.argv[1])))"
        )
        environment = environment_of(shared / "audit") | {"XDG_RUNTIME_DIR": str(planted)}
        command = [sys.executable, "-c", code, str(shared)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        listens = Path(done.stdout.strip() or "/nowhere").parent
        return [f"it listens in {listens}"] if done.returncode or listens == planted else []


def _planted_kernel() -> _Faults:
    """Put libraries under all names that a reply has asked for into the folder that all users share."""
    place = fresh(BUILD / "users")
    ask = ("ask", "--model", samples() / "model", "--max-tokens", 4, "--temperature", 0, "Hello")
    with folder_for_all(0o1777) as shared:
        first = _rdchat(place, *ask, TMPDIR=str(shared))
        kernels = place / "cache" / "kernels"
        names = [path.relative_to(kernels) for path in kernels.glob("**/mlx/*/cpu/lib*.so")]
        if first.returncode or not names:
            return [f"no kernels: {first.stderr.strip()[:200]}"]
        (place / "planted.cpp").write_text(_PLANTED)
        library = place / "planted.so"
        mark = f'-DMARK="{place / "mark"}"'
        subprocess.run(["g++", "-shared", "-fPIC", mark, place / "planted.cpp", "-o", library], check=True)
        for name in names:
            # In MLX's own place, and where it would be for this processor.
            for path in (shared / name, shared.joinpath(*name.parts[name.parts.index("mlx") :])):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(library.read_bytes())
                os.chown(path, OTHER_USER, OTHER_USER)
            (kernels / name).unlink()
        second = _rdchat(place, *ask, TMPDIR=str(shared))
        faults = ["another user's library was run"] if (place / "mark").exists() else []
        same = (second.returncode, second.stdout) == (0, first.stdout)
        return faults + ([] if same else [f"another reply: {second.stderr.strip()[:200]}"])


CASES: Mapping[str, Callable[[], _Faults]] = {
    "a folder for the socket that was planted": _planted_socket,
    "a kernel of MLX's that was planted": _planted_kernel,
}
