"""Keeps the n-gram table for a model's tokenizer: what often follows a few tokens; see `ngram_table`.

It is counted once, in the answers that come with rdchat. No text of a person is ever counted.
"""

import logging
import traceback
from contextlib import suppress
from functools import partial
from itertools import batched
from pathlib import Path
from typing import Any

from rdchat import paths
from rdchat.errors import RdchatError
from rdchat.inference.api import GenerationRequest
from rdchat.inference.decoding.sampling import noise_of_one
from rdchat.inference.drafting.lookup_index import NgramModel
from rdchat.inference.drafting.ngram_table import NgramTable, count_ngrams, write_table
from rdchat.inference.drafting.shipped_answers import (
    DEFAULT_MODEL,
    DEFAULT_TOKENIZER,
    read_answers,
    read_pieces,
    shipped_path,
)
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess, tokenizer_key
from rdchat.work import Job, SerialThread

_LOG = logging.getLogger(__name__)
# Part of the file's name: increase it when what is counted, or how, changes.
_REVISION = 1
# Answers that are encoded together.
_TOGETHER = 32


class NgramStore:
    """The n-gram table of one model.

    It is counted on a thread while the app is idle, once a reply could have used it; the replies after it draft from
    it. Models with the same tokenizer share a file in the cache folder.

    Args:
        folder: The model's folder.
        tokenizers: Encodes the answers, which the default model wrote, for another model.
    """

    def __init__(self, folder: Path, tokenizers: TokenizerProcess) -> None:
        self._folder = folder
        self._tokenizers = tokenizers
        self._table: NgramTable | None = None
        # Whether a reply has looked for the table's file; where there was none, it is counted.
        self._opened = False
        # The count, running or ended; after an error it is not tried again.
        self._counting: Job[NgramTable] | None = None
        self._thread = SerialThread("n-grams")

    def for_reply(self, request: GenerationRequest) -> NgramModel | None:
        """Return what the table expects in a reply; None while there is no table."""
        if not self._opened:
            self._opened = True
            # A table that is missing or damaged is counted later.
            with suppress(RdchatError):
                self._table = NgramTable(self._path())
        if self._table is None:
            return None
        sampling = request.sampling
        temperature = 0.0 if sampling.greedy else sampling.temperature
        return NgramModel(self._table, temperature, partial(noise_of_one, request.seed))

    def count_when_missed(self) -> None:
        """Begin to count, once, if a reply has found no table."""
        if self._opened and self._table is None and self._counting is None:
            self._counting = self._thread.do(self._count, self._take, may_stop=True)

    def finish_counting(self) -> None:
        """Count now if a reply has found no table, and wait for it."""
        self.count_when_missed()
        if self._counting is not None:
            with suppress(RdchatError):
                # `_take` may run a moment after the result is there.
                self._table = self._counting.result()

    def stop_counting(self) -> None:
        """Stop a count that has begun, since the model goes: the next reply with it counts anew."""
        if self._counting is not None:
            self._counting.cancel()

    def _path(self) -> Path:
        """Return the table's file."""
        return paths.cache_dir() / "phrases" / f"{tokenizer_key(self._folder)}-{_REVISION}"

    def _count(self, job: Job[NgramTable]) -> NgramTable:
        """Count the table and write it; runs on the thread."""
        answers = read_answers(shipped_path(DEFAULT_MODEL))
        texts = [(answer.tokens, answer.answer_start) for answer in answers]
        if tokenizer_key(self._folder) != DEFAULT_TOKENIZER:
            pieces = read_pieces()
            # One text of several answers, in which every token but the first counts as a follower.
            written = ["\n\n".join(each.text(pieces) for each in batch) for batch in batched(answers, _TOGETHER)]
            texts = []
            answers = []
            for text in written:
                job.check_cancelled()
                texts.append((self._tokenizers.encode_text(self._folder, text), 1))
        write_table(self._path(), count_ngrams(texts))
        return NgramTable(self._path())

    def _take(self, outcome: Any) -> None:
        """Take the table that was counted, or the error."""
        if isinstance(outcome, NgramTable):
            self._table = outcome
        else:
            _LOG.warning("Drafting goes on without an n-gram table: %s", outcome)
            # The error stays with the job: it must not hold all answers.
            traceback.clear_frames(outcome.__traceback__)
