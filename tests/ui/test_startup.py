import subprocess
import sys


def test_the_window_is_imported_without_mlx() -> None:
    """MLX takes seconds to import: the window stands before the engine thread does that."""
    code = (
        "import sys, rdchat.app\n"
        "slow = {'mlx', 'mlx_lm', 'transformers', 'huggingface_hub', 'numpy'} & set(sys.modules)\n"
        "sys.exit(', '.join(slow))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
