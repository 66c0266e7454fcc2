"""Files of `rdchat ask`: reads them as the app does and puts them before the question."""

import argparse
import hashlib
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from rdchat import paths
from rdchat.chat.attachments.attached_file import (
    Part,
    ReadFile,
    all_of,
    attached,
    block_of,
    pages,
    parsed_pages,
    passages_of,
    ranked,
)
from rdchat.chat.attachments.file_reader import FileReader
from rdchat.chat.attachments.kinds import is_image
from rdchat.errors import InvalidSettingError, ModelError, PromptTooLongError, file_errors, one_line
from rdchat.files import opened
from rdchat.inference.api import MAX_MESSAGE_IMAGES, NO_VISION, ChatImage, ChatMessage, Role, remote_model
from rdchat.inference.vision.image_process import shared_images
from rdchat.services.files.part_choice import fitting_passages, tokens_of

# A quarter of the context is left for the reply, or less if the reply may be shorter.
_REPLY_SHARE = 4

type Count = Callable[[Sequence[ChatMessage]], int]


def add_file_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose files and parts of them."""
    parser.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="FILE",
        help="add a file to the question: text, source code, CSV, Markdown, HTML, PDF or DOCX; may be repeated",
    )
    parser.add_argument(
        "--image",
        action="append",
        default=[],
        metavar="FILE",
        help="show an image to a model that sees; may be repeated",
    )
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--pages", metavar="PAGES", help="only these pages of PDF files, such as 1-4,7")
    part.add_argument(
        "--passages",
        action="store_true",
        help="only the passages that match the question, as many as fit",
    )


def read_files(args: argparse.Namespace) -> list[ReadFile]:
    """Read the files of the options.

    Raises:
        InvalidSettingError: If options contradict each other, or one is an image.
        FileRefusedError: If one cannot be read.
    """
    if not args.file:
        if args.pages is not None or args.passages:
            raise InvalidSettingError("--pages and --passages need a file.", "Add one with --file.")
        return []
    if image := next(filter(is_image, map(Path, args.file)), None):
        raise InvalidSettingError(f"{one_line(image.name)} is an image, not a text.", "Show it with --image.")
    with closing(FileReader()) as reader:
        files = [reader.read_file(Path(name)) for name in args.file]
    if args.pages is not None:
        _check_pages(files, args.pages)
    return files


def read_images(args: argparse.Namespace) -> tuple[ChatImage, ...]:
    """Look at the images of the options, and print what should be known of them.

    Raises:
        InvalidSettingError: If they are too many, or several Macs run the model.
        ImageRefusedError: If one cannot be read.
        FileRefusedError: If one is in iCloud and cannot be downloaded.
        ModelError: If the model does not see, as far as its files tell.
    """
    if not args.image:
        return ()
    if args.hosts:
        raise InvalidSettingError("A model that several Macs run cannot see images.", "Leave --hosts or --image out.")
    if len(args.image) > MAX_MESSAGE_IMAGES:
        raise InvalidSettingError(f"A question takes {MAX_MESSAGE_IMAGES} images.", "Give fewer.")
    from rdchat.inference.library.model_library import why_blind  # noqa: PLC0415  NumPy, and only for images

    images = []
    with closing(FileReader()) as reader:
        for name in args.image:
            reader.download(Path(name))
    for path in map(Path, args.image):
        facts = shared_images().check_image(path)
        if facts.note:
            print(f"rdchat: {one_line(path.name)}: {facts.note}", file=sys.stderr)
        with file_errors(f"The image {path.name} cannot be read", "Check the path."), opened(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        images.append(ChatImage(path, digest, facts.width, facts.height, path.name))
    if not remote_model(args.model) and (reason := why_blind(args.model)) is not None:
        raise blind(args.model or paths.default_model_dir().name, reason)
    return tuple(images)


def blind(model: str, reason: str) -> ModelError:
    """Return the error for a model that does not see, with the reason if it should."""
    get = f"Get that of its original: `{shlex.join(['rdchat', 'models', 'vision', model])}`."
    return ModelError(f"{model} cannot see images. {reason}".strip(), get if reason == NO_VISION else "Choose another.")


def _check_pages(files: Sequence[ReadFile], requested: str) -> None:
    paged = [file for file in files if file.paged]
    if not paged:
        raise InvalidSettingError("--pages needs a PDF file.", "Leave it out, or use --passages.")
    for file in paged:
        if parsed_pages(requested, len(file.parts)) is None:
            raise InvalidSettingError(
                f"{file.name} does not have the pages {one_line(requested)}.",
                f"It has pages 1 to {len(file.parts)}. Give them like 1-4,7.",
            )


def with_files(
    prompt: str,
    files: Sequence[ReadFile],
    *,
    system: Sequence[ChatMessage],
    count: Count,
    limit: int,
    longest: int,
    args: argparse.Namespace,
) -> str:
    """Return the prompt with files before it; print the chosen parts and notes on standard error.

    Args:
        prompt: The question.
        files: The files.
        system: Messages before the prompt.
        count: Counts the tokens of messages.
        limit: The model's context, in tokens.
        longest: See `ModelInfo.longest_count`.
        args: The options.

    Raises:
        PromptTooLongError: If they do not fit.
    """
    if args.passages:
        around = count((*system, ChatMessage(Role.USER, prompt)))
        room = limit - around - min(args.max_tokens or limit, limit // _REPLY_SHARE)
        parts = [_matching(file, prompt, room // len(files), count) for file in files]
    else:
        parts = [_pages_of(file, args.pages) for file in files]
    pairs = list(zip(files, parts, strict=True))
    blocks = (block_of(attached(file, part.text, part.label), part.text) for file, part in pairs)
    # The app joins them in the same way.
    text = "\n\n".join((*blocks, prompt))
    try:
        fits = count((*system, ChatMessage(Role.USER, text))) < longest
    except PromptTooLongError:
        fits = False
    if not fits:
        raise _too_long(files, text, count, limit, args)
    for file, part in pairs:
        if part.label:
            print(f"rdchat: using {part.label} of {one_line(file.name)}", file=sys.stderr)
        if file.note:
            print(f"rdchat: {one_line(file.name)}: {one_line(file.note)}", file=sys.stderr)
    return text


def _pages_of(file: ReadFile, requested: str | None) -> Part:
    numbers = parsed_pages(requested, len(file.parts)) if requested is not None and file.paged else None
    return all_of(file) if numbers is None else pages(file, numbers)


def _matching(file: ReadFile, question: str, room: int, count: Count) -> Part:
    """Return all of the file if it fits, else the passages that match the question."""
    tokens = tokens_of(all_of(file).text, count)
    if tokens.tokens <= room:
        return all_of(file)
    passages = passages_of(file)
    order = ranked(passages, question)
    if not order:
        raise PromptTooLongError(
            f"No passage of {file.name} has a word of the question.", "Use words that are in the file."
        )
    per_token = sum(map(len, file.parts)) / max(tokens.tokens, 1)
    return fitting_passages(passages, order, room, per_token, lambda part: tokens_of(part.text, count))[0]


def _too_long(
    files: Sequence[ReadFile], text: str, count: Count, limit: int, args: argparse.Namespace
) -> PromptTooLongError:
    many = "These files are" if len(files) > 1 else f"{files[0].name} is"
    tokens = tokens_of(text, count).description
    shorter = "Use fewer files, or a model with a longer context."
    if not args.passages:
        by_pages = "pages with --pages 1-4, or " if any(file.paged for file in files) else ""
        shorter = f"Choose {by_pages}the passages that match the question with --passages."
    return PromptTooLongError(f"{many} too long for the model: {tokens}, and the limit is {limit:,}.", shorter)
