"""The child process that measures one setting of MLX, `rdchat --child speed`: MLX reads its settings once."""

from typing import Any

from rdchat import host
from rdchat.work.job import Job
from rdchat.work.served import serve


def main() -> int:
    """Answer requests until the parent ends."""
    return serve({"measure": _measure})


def _measure(job: Job[Any], model: str | None, question: str, tokens: int, buffers: list[int] | None) -> dict[str, Any]:
    """Load a model and measure it; see `measure_speed`.

    Args:
        job: Ends the work between two tokens.
        model: A name or a folder; None is the default model.
        question: What it is asked.
        tokens: Length limit of a reply.
        buffers: For `host.set_command_buffers`; None leaves MLX its own.
    """
    used = buffers is None or host.set_command_buffers(*buffers)
    from rdchat.inference.machine_report.speed import measure_speed  # noqa: PLC0415  MLX, after its settings

    return {"used": used, **measure_speed(model, question, tokens, job)}
