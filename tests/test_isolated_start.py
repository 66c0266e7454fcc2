"""rdchat in a Python that is started as Briefcase's program starts it, in an isolated configuration."""

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

STUB = r"""
#include <Python.h>
int main(int argc, char **argv) {
    PyConfig config;
    PyConfig_InitIsolatedConfig(&config);
    PyConfig_SetBytesString(&config, &config.executable, argv[1]);
    PyConfig_SetBytesString(&config, &config.run_filename, argv[2]);
    if (PyStatus_Exception(Py_InitializeFromConfig(&config))) return 99;
    return Py_RunMain();
}
"""
MAIN = """
import os, sys
sys.path[:0] = {path!r}
from rdchat import __main__ as entry
def child(arguments):
    {action}
entry.run_child = child
sys.exit(entry.main())
"""
WRITE = "ends = os.pipe(); os.close(ends[0]); os.write(ends[1], b'x')"


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that runs a file: `stub PYTHON FILE`."""
    compiler = shutil.which("cc")
    headers = Path(sysconfig.get_paths()["include"])
    if compiler is None or not (headers / "Python.h").exists():
        pytest.skip("no C compiler, or no headers of Python")
    folder = tmp_path_factory.mktemp("stub")
    (folder / "stub.c").write_text(STUB)
    library = sysconfig.get_config_var("LIBDIR")
    command = [compiler, "stub.c", "-o", "stub", f"-I{headers}", f"-L{library}", f"-Wl,-rpath,{library}"]
    command += [f"-lpython{sysconfig.get_config_var('LDVERSION')}", "-lm", "-ldl", "-lpthread"]
    built = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if built.returncode:
        pytest.skip(f"no program with Python in it can be built: {built.stderr[-200:]}")
    return folder / "stub"


@pytest.mark.parametrize(
    ("action", "status", "message"),
    [
        (WRITE, 1, "BrokenPipeError"),
        ("raise ValueError('broken child')", 1, "ValueError: broken child"),
        ("sys.exit('a text')", 1, "a text"),
        ("sys.exit(3)", 3, ""),
        ("return 0", 0, ""),
    ],
)
def test_a_child_neither_dies_of_a_signal_nor_lets_an_exception_out(
    stub: Path, tmp_path: Path, action: str, status: int, message: str
) -> None:
    """SIGPIPE ended the bundled app, and an exception in a child opened an alert."""
    main = tmp_path / "main.py"
    main.write_text(MAIN.format(path=[path for path in sys.path if path], action=action))
    command = [str(stub), sys.executable, str(main)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stderr
    assert message in done.stderr
