"""The page of `rdchat report`: one HTML file without scripts, with its pictures inside."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

_STYLE = """
body { font: 15px/1.5 -apple-system, "Segoe UI", sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem;
       color: #1d1d1f; background: #fff }
h1 { font-size: 1.6rem } h2 { font-size: 1.25rem; margin-top: 2.2rem } h3 { font-size: 1rem; margin: 1.6rem 0 .4rem }
table { border-collapse: collapse; margin: .4rem 0 } p { margin: .4rem 0 }
td, th { padding: .15rem .9rem .15rem 0; text-align: right; font-variant-numeric: tabular-nums }
td:first-child, th:first-child { text-align: left } th { font-weight: 600; border-bottom: 1px solid #8884 }
.note { color: #6e6e73 }
@media (prefers-color-scheme: dark) { body { color: #f5f5f7; background: #1c1c1e } .note { color: #98989d } }
"""
_MODES = "mode", "tokens/s", "to plain", "to mlx-lm", "tokens per step", "waits per step", "same text"
_WIDTH = 640  # of a picture, in pixels
_COLORS = "#0a84ff", "#ff9f0a", "#30d158", "#bf5af2"


def report_page(report: Mapping[str, Any]) -> str:
    """Return a report, the data of `report.json`, as a page."""
    parts = [
        "<h1>rdchat report</h1>",
        '<p class="note">Figures of one machine. This page has no chats, no names of your own models and no paths.</p>',
        _table(("", ""), list(report["machine"].items())),
    ]
    if report.get("window"):
        parts += ["<h2>The window</h2>", "<p>How late the main thread was while a reply streamed in:</p>"]
        parts.append(
            _table(("", "ms"), [(name[8:], value) for name, value in report["window"].items() if "_ms_" in name])
        )
    for number, model in enumerate(report["models"], start=1):
        parts += _model(number, model)
    left_out = "".join(f"<li>{escape(item)}</li>" for item in report["left_out"])
    parts.append(f"<h2>Left out</h2>{f'<ul>{left_out}</ul>' if left_out else '<p>Nothing.</p>'}")
    body = "\n".join(filter(None, parts))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>rdchat report</title>\n'
        f"<style>{_STYLE}</style></head><body>\n{body}\n</body></html>\n"
    )


def _model(number: int, model: Mapping[str, Any]) -> list[str]:
    if "failure" in model:
        return [f"<h2>Model {number}</h2>", f"<p>{escape(model['failure'])}</p>"]
    facts, capability = model["model"], model["capability"]
    parts = [
        f"<h2>Model {number}: {escape(facts['architecture'])}, {facts['parameters'] / 1e6:,.0f} million weights, "
        f"{escape(facts['dtype'])}</h2>",
        _table(("", ""), [*facts.items(), *((name, capability[name]) for name in ("verifies", "reason"))]),
    ]
    errors = [(name, f"{error:.1e}") for name, error in capability["errors"].items()]
    parts.append(_part("Errors of the capability check, in deviations of the logits", ("", "median"), errors))
    parts.append(_part("Modes, beside plain decoding", _MODES, _modes(model.get("bench"))))
    for drafter in model.get("drafters", ()):
        parts += _drafter(drafter)
    if costs_at := model.get("rows"):
        curves = {f"{depth} tokens": costs["in_plain_steps"] for depth, costs in costs_at.items()}
        parts += ["<h3>What a call costs by its rows, in plain steps at that depth</h3>", _curves(curves)]
        steps = [(depth, costs["plain_step_ms"]) for depth, costs in costs_at.items()]
        parts.append(_table(("depth", "plain step, ms"), steps))
    plain = [_plain(found) for found in model.get("plain", {}).values()]
    titles = ("prompt", "tokens/s", "mlx-lm", "ratio", "peak MB", "mlx-lm")
    parts.append(_part("Plain decoding, beside mlx-lm", titles, plain))
    counted = [
        (row["mode"], row["temperature"], row["tokens"], row["per_thousand"], max(row["gaps"], default=0.0))
        for row in model.get("divergences", ())
    ]
    head = ("drafted by", "temperature", "tokens", "per 1,000", "largest gap")
    parts.append(_part("Other tokens than plain decoding would take", head, counted))
    parts += _settings(model.get("command_buffers"), model.get("window_speed"))
    queued = [(name, found["primitives"]) for name, found in model.get("graph", {}).items()]
    return [*parts, _part("Primitives that MLX queues", ("", "primitives"), queued)]


def _drafter(drafter: Mapping[str, Any]) -> list[str]:
    sure = "made for the model" if drafter["sure"] else "of sizes that fit the model"
    parts = [f"<h3>Drafter {drafter['drafter']}: {escape(drafter['kind'])}, {sure}</h3>"]
    if size := drafter["graph"]:
        parts.append(f"<p>A draft queues {size['primitives']} primitives.</p>")
    if bench := drafter.get("bench"):
        parts.append(_table(_MODES, _modes(bench)))
    return parts


def _settings(buffers: Mapping[str, Any] | None, window: Sequence[Mapping[str, Any]] | None) -> list[str]:
    """Return the comparison of settings: of MLX's command buffers, and of threads in a window."""
    parts = []
    alone = None  # plain tokens per second on the command line
    if buffers:
        modes = buffers["settings"][0]["decode_tps"] if buffers["settings"] else {}
        alone = modes.get("off")
        rows = [
            (
                one["setting"],
                *(one["decode_tps"].get(mode) for mode in modes),
                median(one["ratios"]) if one["ratios"] else None,
                one["read_tps"],
                one["peak_memory_bytes"] // 10**6,
            )
            for one in buffers["settings"]
        ]
        head = (
            "a buffer holds",
            *(f"{mode}, tokens/s" for mode in modes),
            "to MLX's own",
            "reading, tokens/s",
            "peak MB",
        )
        parts += [
            "<h3>MLX's command buffers</h3>",
            _table(head, rows) if rows else "",
            f"<p>{escape(buffers['verdict'])}</p>",
        ]
    if window:
        rows = [("command line", alone, None), *((each["with"], each["decode_tps"], alone) for each in window)]
        shown = [(name, speed, speed / base if speed and base else None) for name, speed, base in rows]
        parts.append(_part("Plain replies that a window draws", ("", "tokens/s", "to the command line"), shown))
    return parts


def _modes(bench: Mapping[str, Any] | None) -> list[tuple[object, ...]]:
    names = "decode_tps", "ratio_to_plain", "ratio_to_mlx_lm", "tokens_per_target_call", "host_syncs_per_round"
    return [
        (mode["mode"], *((mode[name] or {}).get("median") for name in names), mode["identical_text"])
        for mode in (bench["modes"] if bench else ())
    ]


def _plain(found: Mapping[str, Any]) -> tuple[object, ...]:
    peaks = found["peak_memory_bytes"]
    figures = (found[name] for name in ("prompt_tokens", "decode_tps", "mlx_lm_decode_tps", "ratio_to_mlx_lm"))
    return (*figures, *(peaks[name] // 10**6 for name in ("rdchat", "mlx-lm")))


def _curves(curves: Mapping[str, Mapping[Any, float]]) -> str:
    """Return a picture of curves over numbers of rows."""
    try:
        from rdchat.ui.plots.curves import Curve, CurvesPlot  # noqa: PLC0415
        from rdchat.ui.plots.pictures import inline_svg  # noqa: PLC0415
    except ImportError:  # a server without a desktop may lack Qt's libraries
        return ""
    found = [Curve(name, tuple((int(x), y) for x, y in curve.items())) for name, curve in curves.items() if curve]
    if not found:
        return ""
    most = max(x for curve in found for x, _ in curve.points)
    ticks = [(rows, str(rows)) for rows in (1, 4, 8, 12, 16, 32) if rows <= most]
    plot = CurvesPlot("Plain steps, by rows of a call", "", found, False, most, ticks, _COLORS)
    return inline_svg([plot], _WIDTH)


def _part(title: str, head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table with its title; empty without rows."""
    return f"<h3>{title}</h3>\n{_table(head, rows)}" if rows else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    top = f"<tr>{''.join(f'<th>{escape(name)}</th>' for name in head)}</tr>" if any(head) else ""
    cells = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table>{top}{cells}</table>"


def _cell(value: object) -> str:
    if value is None:
        return "&ndash;"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 1000 else f"{value:,.0f}"
    return escape(f"{value:,}" if isinstance(value, int) else str(value).replace("_", " "))
