"""`rdchat ask`: one question and one answer in the terminal, without history or the app's settings."""

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from rdchat.chat.settings import stored_settings
from rdchat.commands.ask_files import Count, add_file_options, blind, read_files, read_images, with_files
from rdchat.commands.preparation import command_begins, prepare_later
from rdchat.commands.terminal import (
    INTERRUPTED,
    NAMED,
    ProgressLine,
    add_fields,
    add_hosts,
    add_model,
    ctrl_c_calls,
    engine_address,
    from_options,
    print_json,
    print_warning,
)
from rdchat.errors import InvalidSettingError, RdchatError, file_errors, one_line
from rdchat.inference.api import (
    DRAFTERS,
    UNKNOWN_LENGTH,
    AnswerShape,
    ChatMessage,
    DraftSettings,
    Dtype,
    FinishReason,
    GenerationRequest,
    LedgerRow,
    Mode,
    ModelInfo,
    ReplyEnd,
    Role,
    SamplingDefaults,
    SamplingParams,
    ShapeKind,
    Statistics,
    ThinkingChoice,
    TokenEvent,
    TokenIterator,
    check_seed,
    fresh_seed,
    grouped_entries,
    ledger_rows,
    remote_model,
)
from rdchat.inference.engines import EnginesByAddress, start_tokenizers

type _Loaded = tuple[ModelInfo, Count, Callable[[GenerationRequest], TokenIterator]]
"""A loaded model, a function that counts the tokens of messages, and one that begins a reply."""

_MAX_PROMPT_BYTES = 64 * 2**20
# Properties of `Statistics` that are derived from its counters.
_RATES = (
    "decode_tps",
    "prefill_tps",
    "plain_tps",
    "speedup",
    "speedup_range",
    "acceptance_rate",
    "acceptance_by_position",
    "tokens_per_target_call",
)
# Sampling options and their help, by field of `SamplingParams`.
_SAMPLING = {
    "temperature": "0 always takes the most likely token; the default of each sampling option is the model's own",
    "top_k": "keep this many of the most likely tokens; 0 is off",
    "top_p": "keep the most likely tokens up to this probability; 1 is off",
    "min_p": "keep tokens at least this share as likely as the best; 0 is off",
    "repetition_penalty": "above 1, tokens of the question and the answer become less likely; 1 is off",
    "presence_penalty": "above 0, tokens that the answer has become less likely; 0 is off",
    "frequency_penalty": "the same for each time that it has them; 0 is off",
    "max_tokens": "longest reply",
}
# Drafting options with a number, and their help, by field of `DraftSettings`.
_DRAFTS = {
    "draft_tokens": "tokens drafted in a step",
    "beam_width": "for drafter: number of beams",
    "beam_length": "for drafter: tokens of each beam; the first is the model's own, so 5 drafts 4",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `ask`."""
    parser.add_argument("prompt", nargs="?", help="the question")
    parser.add_argument("--prompt-file", metavar="FILE", help="read the question from a file; - is standard input")
    add_file_options(parser)
    add_model(parser, remote=True)
    add_hosts(parser)
    parser.add_argument(
        "--thinking",
        choices=[each.value for each in ThinkingChoice],
        help="whether the model thinks, if it has a switch for it",
    )
    parser.add_argument("--system", default="", metavar="TEXT", help="system prompt")
    add_fields(parser, SamplingParams(), _SAMPLING, unset=True)
    parser.add_argument(
        "--seed", type=int, help="the same seed gives the same text, on a GPU up to rounding (default: random)"
    )
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before TEXT; may be repeated")
    parser.add_argument("--json", action="store_true", help="print one JSON object with text, tokens and statistics")
    group = parser.add_argument_group("answer format", "the answer has this format, unless it is cut off")
    shape = group.add_argument
    shape("--json-object", action="store_true", help="the answer is a JSON object")
    shape("--schema", metavar="FILE", help="the answer is JSON that fits the schema in FILE; - is standard input")
    shape("--regex", metavar="R", help="the whole answer matches the regular expression R")
    _add_draft_options(parser)


def _add_draft_options(parser: argparse.ArgumentParser) -> None:
    defaults = DraftSettings()
    group = parser.add_argument_group("drafting", "makes the answer faster; the text stays the same, up to rounding")
    modes = [mode.option for mode in Mode]
    group.add_argument(
        "--mode",
        # The names of `DRAFTERS` are older ones, which are not in the help.
        choices=[*modes, *DRAFTERS],
        default=defaults.mode.value,
        metavar=f"{{{','.join(modes)}}}",
        help="how tokens are drafted",
    )
    group.add_argument(
        "--draft-model", metavar="MODEL", help="for draft-model, auto: a smaller model with the same tokenizer"
    )
    group.add_argument(
        "--drafter", help=f"for drafter, auto: {NAMED} its folder, or mtp (default: the one made for it)"
    )
    add_fields(group, defaults, _DRAFTS, draft_tokens="K", beam_width="W", beam_length="L")
    group.add_argument(
        "--lookup-branch",
        action=argparse.BooleanOptionalAction,
        default=defaults.lookup_branch,
        help="for drafter: also draft text that followed the same words before",
    )
    group.add_argument("--profile", action="store_true", help="show where the time went (this is slower)")


def run(args: argparse.Namespace) -> int:
    """Answer the question; the exit status is 0, or 130 after Ctrl-C. With `--json`, Ctrl-C too prints the object."""
    _check_texts(args)
    sampling = {name: value for name in _SAMPLING if (value := getattr(args, name)) is not None}
    sampling["stop"] = tuple(args.stop)
    # Raises for wrong values, before the model is loaded.
    SamplingParams(**sampling)
    seed = fresh_seed() if args.seed is None else args.seed
    check_seed(seed)
    draft = from_options(DraftSettings, args, mode=Mode(args.mode))
    # A drafter that the person names must be one that the mode uses.
    for mode, drafter in DRAFTERS.items():
        if draft.named(mode) and not draft.mode.uses(drafter.option):
            option = f"--{drafter.option.replace('_', '-')}"
            raise InvalidSettingError(
                f"{option} has no effect with --mode {draft.mode.option}.", f"Add --mode {mode.option}."
            )
    answer = _Answer(sampling, seed, draft, args.json, _read_shape(args))
    try:
        answer.write_answer(args)
    except KeyboardInterrupt:
        answer.cancelled = True
    if args.json:
        print_json(answer.report())
    elif not answer.cancelled or answer.end is not None:
        # Ends the answer's last line. After Ctrl-C there is one only if the reply came to its last event.
        print()
    if args.profile and not args.json and answer.end is not None:
        print(ledger_table(ledger_rows(grouped_entries(answer.end.statistics.ledger))), file=sys.stderr)
    if not answer.cancelled:
        answer.prepare_drafting()
    return INTERRUPTED if answer.cancelled else 0


def _check_texts(args: argparse.Namespace) -> None:
    """Refuse bytes that are not text: Python turns them into lone surrogates, which no tokenizer accepts."""
    texts = (("prompt", args.prompt), ("system prompt", args.system), *(("stop string", text) for text in args.stop))
    for name, text in texts:
        try:
            (text or "").encode()
        except UnicodeEncodeError as error:
            raise InvalidSettingError(f"The {name} is not UTF-8 text.", "Set the terminal to UTF-8.") from error


def _read_shape(args: argparse.Namespace) -> AnswerShape | None:
    """Return the format of the answer; None for any text."""
    given = [name for name in ("json_object", "schema", "regex") if getattr(args, name)]
    if len(given) > 1:
        raise InvalidSettingError("Give only one of --json-object, --schema and --regex.")
    if given and args.thinking not in {None, ThinkingChoice.OFF.value}:
        raise InvalidSettingError("Thinking is off for an answer with a format.", "Leave --thinking out.")
    match given:
        case ["json_object"]:
            return AnswerShape(ShapeKind.JSON)
        case ["schema"]:
            return AnswerShape(ShapeKind.SCHEMA, _read_text(args.schema, "schema"))
        case ["regex"]:
            return AnswerShape(ShapeKind.REGEX, args.regex)
    return None


def _read_prompt(args: argparse.Namespace) -> str:
    """Return the question: the argument, or the content of the prompt file."""
    if (args.prompt is None) == (args.prompt_file is None):
        raise InvalidSettingError("Give either a prompt or --prompt-file.")
    if args.prompt is not None:
        prompt = str(args.prompt)
        if not prompt.strip():
            raise InvalidSettingError("The prompt is empty.", "Type something to ask.")
        return prompt
    prompt = _read_text(args.prompt_file, "prompt")
    if not prompt.strip():
        raise RdchatError(f"The prompt file {args.prompt_file} is empty.", "Write a question in it.")
    return prompt


def _read_text(name: str, what: str) -> str:
    """Read a prompt or a schema from a file, a named pipe or standard input; refuse more than a prompt can have."""
    if name == "-" and sys.stdin is None:
        other = "as an argument or with --prompt-file" if what == "prompt" else "in a file"
        raise RdchatError("Standard input is closed.", f"Give the {what} {other}.")
    with (
        file_errors(f"The {what} file {name} cannot be read", "Check the path."),
        nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file,
    ):
        data = file.read(_MAX_PROMPT_BYTES + 1)
    if len(data) > _MAX_PROMPT_BYTES:
        size = f"{_MAX_PROMPT_BYTES // 2**20} MB"
        raise RdchatError(f"The {what} file {name} is longer than {size}.", "Use a shorter one.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RdchatError(f"The {what} file {name} is not UTF-8 text.", "Save it as UTF-8.") from error


@dataclass(slots=True)
class _Answer:
    """The answer to the question: `write_answer` loads a model and prints it, and `report` describes it for `--json`.

    Ctrl-C may come at any moment, so each step sets a field as soon as it is known, and `report` works with what is
    there.

    Attributes:
        chosen: Sampling values that the person gave; all others are the model's.
        seed: Seed of the reply.
        draft: How the reply is drafted.
        quiet: Whether nothing of the answer is printed while it is written.
        shape: Format of the answer; None for any text.
        info: The model, once it is loaded.
        end: The last event of the reply, once it has ended.
        cancelled: Whether Ctrl-C was pressed.
        verification: What the model verifies in one call, a `DraftKind`; None for a reply that drafts nothing.
        prepare_drafting: Prepares drafting in another process, for the next command; does nothing where that was done.
    """

    chosen: dict[str, Any]
    seed: int
    draft: DraftSettings
    quiet: bool
    shape: AnswerShape | None
    info: ModelInfo | None = None
    end: ReplyEnd | None = None
    cancelled: bool = False
    verification: str | None = None
    prepare_drafting: Callable[[], object] = lambda: None

    def write_answer(self, args: argparse.Namespace) -> None:
        """Read the question with its files and images, load the model, and print the reply while it is written."""
        system = [ChatMessage(Role.SYSTEM, args.system)] if args.system else []
        prompt = _read_prompt(args)
        images = read_images(args)
        files = read_files(args)
        load = self._load_elsewhere if args.hosts or remote_model(args.model) else self._load
        with ProgressLine() as progress:
            self.info, count, generate = load(args, progress)
            if images and not self.info.sees:
                raise blind(self.info.name, self.info.blind)
            if files:
                limit = self.info.context_length
                longest = self.info.longest_count
                prompt = with_files(prompt, files, system=system, count=count, limit=limit, longest=longest, args=args)
        print_warning(self.info)
        self._print_sampling(self.info.sampling)
        request = GenerationRequest(
            (*system, ChatMessage(Role.USER, prompt, images=images)),
            self.sampling,
            self.seed,
            draft=self.draft,
            thinking=ThinkingChoice(args.thinking) if args.thinking else None,
            shape=self.shape,
        )
        self._print_reply(generate(request))

    def _load(self, args: argparse.Namespace, progress: ProgressLine) -> _Loaded:
        """Load a model in this process, with the drafters of the mode, without an engine around it."""
        # That process imports transformers meanwhile, as this one does next.
        start_tokenizers()
        from rdchat.inference.session import ChatSession  # noqa: PLC0415  MLX: only once the arguments are right

        command_begins()
        session = ChatSession.of_model(args.model, Dtype(args.dtype), progress.show_stage, anyway=args.load_anyway)
        loaded = session.model
        auto = self.draft.mode is Mode.AUTO
        named = any(self.draft.named(mode) for mode in DRAFTERS)
        # The automatic mode's first reply on a machine waits for no drafter and no measuring. A drafter that the person
        # named is loaded all the same, since it may not fit the model.
        drafts = loaded.is_tried() or named or not auto
        if drafts:
            session.drafters.load_drafters(self.draft, progress.show_stage, strict=True)
        session.prepare(replace(self.draft, mode=Mode.OFF) if auto else self.draft, progress.show_stage)
        # The one reply of this command may skip drafting.
        session.plain_replies = int(auto)
        if drafts and self.draft.mode is not Mode.OFF:
            self.verification = loaded.capability.kind.value
        if not session.is_prepared(self.draft):
            self.prepare_drafting = partial(prepare_later, args.model, args.dtype, self.draft)
        count = partial(loaded.prompts.count, context_length=loaded.info.context_length)
        return loaded.info, count, session.generate

    def _load_elsewhere(self, args: argparse.Namespace, progress: ProgressLine) -> _Loaded:
        """Load a model of a remote server, or one over several Macs, and say where it runs."""
        settings = stored_settings()
        address = engine_address(args)
        engines = EnginesByAddress(lambda: settings.remote_servers, lambda: settings.hosts)
        info = engines.load(address, Dtype(args.dtype), progress.show_stage, args.load_anyway)
        engine = engines.chosen
        engine.load_drafters(self.draft, progress.show_stage)
        where = f"runs on {info.server} ({info.device}), where your text goes" if info.server else "runs on these Macs"
        progress.erase()
        print(f"rdchat: {info.name} {where}.", file=sys.stderr)
        # Without a known context there is no limit, so nothing needs to be counted.
        is_known = info.context_length < UNKNOWN_LENGTH
        return info, engine.count_tokens if is_known else lambda _messages: 0, engine.generate

    def _print_reply(self, iterator: TokenIterator) -> None:
        """Print the reply while it is written, and then why it was not drafted or has not the requested format."""
        with closing(iterator), ctrl_c_calls(lambda: self._cancel(iterator)):
            for event in iterator:
                if isinstance(event, TokenEvent):
                    self._write(event.text)
                elif isinstance(event, ReplyEnd):
                    self._write(event.trailing_text)
                    self.end = event
        if (end := self.end) is None:
            return
        if end.mode_reason is not None:
            plainly = "written without drafting. " if end.mode is Mode.OFF else ""
            print(f"rdchat: {plainly}{one_line(end.mode_reason)}", file=sys.stderr)
        if self.shape is not None and end.finish_reason is not FinishReason.EOS:
            print("rdchat: The answer was cut off, so it does not have the requested format.", file=sys.stderr)

    @property
    def sampling(self) -> SamplingParams:
        """The values of the reply: the person's, and the model's for all others."""
        return replace(self.info.sampling.params if self.info else SamplingParams(), **self.chosen)

    def _print_sampling(self, defaults: SamplingDefaults) -> None:
        """Print the sampling values that the model decides."""
        for name in _SAMPLING:
            if name not in self.chosen and (source := defaults.source(name)):
                value = f"{name.replace('_', '-')} {getattr(self.sampling, name):g}"
                print(f"rdchat: {value} ({source[0].lower()}{source[1:]})", file=sys.stderr)

    def _cancel(self, iterator: TokenIterator) -> None:
        """Stop the reply at Ctrl-C; its last event still comes."""
        self.cancelled = True
        iterator.cancel()

    def _write(self, text: str) -> None:
        if text and not self.quiet:
            sys.stdout.write(text)
            sys.stdout.flush()

    def report(self) -> dict[str, Any]:
        """Return the object for `--json`, with what is known so far."""
        info = self.info
        end = self.end
        return {
            "model": info and info.name,
            "model_path": info and os.fspath(info.path),
            "dtype": info and info.dtype,
            "drafter": end and end.drafter,
            "drafter_kind": end and end.kind,
            "mode": end.mode if end else Mode.OFF,
            "requested_mode": self.draft.mode.value,
            "mode_reason": end and end.mode_reason,
            "verification": self.verification,
            "seed": self.seed,
            "sampling": asdict(self.sampling),
            "text": end.text if end else "",
            "token_ids": list(end.token_ids) if end else [],
            "finish_reason": end.finish_reason.value if end else FinishReason.CANCELLED.value,
            "stats": statistics_report(end.statistics if end else Statistics()) | {"ledger_exact": self.draft.profile},
        }


def statistics_report(statistics: Statistics) -> dict[str, Any]:
    """Return the counters and the rates derived from them, for JSON."""
    report = {field.name: getattr(statistics, field.name) for field in fields(statistics)}
    report["choice"] = statistics.choice and asdict(statistics.choice)
    report["ledger"] = [asdict(row) for row in ledger_rows(statistics.ledger)]
    for rate in _RATES:
        report[rate] = getattr(statistics, rate)
    return report


def ledger_table(rows: tuple[LedgerRow, ...]) -> str:
    """Return the time ledger of a profiled reply as a table, with nested stages indented."""
    names = ["  " * row.depth + row.name for row in rows]
    width = max((len(name) for name in names), default=0)
    lines = ["", f"{'stage':{width}}  {'calls':>6}  {'mean ms':>9}  {'total ms':>9}  % of parent"]
    for name, row in zip(names, rows, strict=True):
        share = "" if row.percent_of_parent is None else f"  {row.percent_of_parent:>11.1f}"
        mean = "-" if row.mean_ms is None else f"{row.mean_ms:.2f}"
        calls = f"{row.calls:,}" if row.calls else "-"
        lines.append(f"{name:{width}}  {calls:>6}  {mean:>9}  {row.total_ms:>9.1f}{share}")
    return "\n".join([*lines, "Exact times: with --profile each stage waits for its results, which takes longer."])
