import subprocess
import sys


def test_the_window_is_imported_without_mlx() -> None:
    """MLX takes seconds to import: the window stands before the engine thread does that."""
    code = (
        "import sys, rdchat.app\n"
        "print({'mlx', 'mlx_lm', 'transformers', 'huggingface_hub', 'numpy', 'gguf'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert (done.stdout.strip(), done.stderr) == ("set()", "")
