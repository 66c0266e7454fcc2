"""Finds passages of files by the words of a question, with FTS5's words and English stems."""

import re
import sqlite3
import threading
import unicodedata
import weakref
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise
from math import log

_WORD = re.compile(r"\w+")
# At the end of a line, the hyphen goes with the line break.
_SOFT_HYPHEN = re.compile("\u00ad\\s*")
# Normalizing takes time with the square of the number of marks on one letter, so a text is normalized in pieces. Rows
# are read as many at a time.
_PIECE = 1000
# Some scripts have no spaces, such as Chinese.
_UNSPACED = re.compile(r"[\u0e00-\u1dff\u2000-\U0010ffff]+")
# English stems; in other languages words are matched as they are.
_FTS = "fts5 (text, name, content = '', tokenize = 'porter unicode61 remove_diacritics 2')"
_TABLES = f"""
    CREATE VIRTUAL TABLE passages USING {_FTS};
    CREATE VIRTUAL TABLE passage_words USING fts5vocab (passages, instance);
    CREATE VIRTUAL TABLE question USING {_FTS};
    CREATE VIRTUAL TABLE question_words USING fts5vocab (question, row);
"""
# A word of the question, and a passage that has it, as often as it has it; NULL where none has it. So there is a row
# after little work. With `GROUP BY` or an inner join, SQLite could work long before the next one.
_FOUND = "SELECT term, passage_words.doc FROM question_words LEFT JOIN passage_words USING (term)"
# A long question is read in pieces of so many characters, which end between two words where there are several.
_QUESTION_PIECE = re.compile(rf".{{1,{_PIECE - 1}}}(?:\s|\Z)|.{{1,{_PIECE}}}", re.DOTALL)
# How much a word counts that a passage has several times (k1 of bm25).
_SATURATION = 1.2


class PassageIndex:
    """The words of passages. Any thread may use it.

    In scripts without spaces each pair of letters is a word. Words of a file's name count as words of its passages.

    Args:
        passages: The texts of the passages of each file, by the file's name.
        check: Called before each passage; what it raises ends the work.
    """

    def __init__(
        self, passages: Sequence[tuple[str, Sequence[str]]], check: Callable[[], object] = lambda: None
    ) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite3.connect(":memory:", check_same_thread=False)
        weakref.finalize(self, self._connection.close)
        self._connection.executescript(_TABLES)
        self._size = 0
        for name, texts in passages:
            spaced = _spaced(name, letters=True)
            for text in texts:
                check()
                row = self._size, _spaced(text, letters=True), spaced
                self._connection.execute("INSERT INTO passages (rowid, text, name) VALUES (?, ?, ?)", row)
                self._size += 1

    def ranked(self, question: str, check: Callable[[], object] = lambda: None) -> tuple[list[int], int]:
        """Return the indices of passages with words of a question, the best first, and how many are the only ones.

        Those that alone have a word of the question come first: each of these words counts, wherever it stands. All are
        ordered by Okapi's bm25, without the passages' lengths. Words that most passages have, such as `of`, count only
        where the question has no others.

        `check` is called between short pieces of the work, and may raise.
        """
        found = Counter[tuple[str, int | None]]()
        with self._lock:
            connection = self._connection
            connection.execute("INSERT INTO question (question) VALUES ('delete-all')")
            for piece in _QUESTION_PIECE.finditer(question):
                check()
                connection.execute("INSERT INTO question (text) VALUES (?)", (_spaced(piece[0], letters=False),))
            with closing(connection.execute(_FOUND)) as rows:
                while some := rows.fetchmany(_PIECE):
                    check()
                    found.update(some)
        passages_with = defaultdict[str, list[tuple[int, int]]](list)
        for (term, passage), times in found.items():
            check()
            if passage is not None:
                passages_with[term].append((passage, times))
        rare = [each for each in passages_with.values() if len(each) <= max(self._size // 2, 1)]
        scores = defaultdict[int, float](float)
        alone = set[int]()
        for having in rare or passages_with.values():
            check()
            weight = log(1 + (self._size - len(having) + 0.5) / (len(having) + 0.5))
            for passage, times in having:
                scores[passage] += weight * times * (1 + _SATURATION) / (times + _SATURATION)
            if len(having) == 1:
                alone.add(having[0][0])
        order = sorted(scores, key=lambda passage: (passage not in alone, -scores[passage], passage))
        return order, len(alone)


def _spaced(text: str, *, letters: bool) -> str:
    """Return a text in the form in which words are compared, with spaces in scripts that have none.

    Ligatures become letters, and words lose their soft hyphens. With `letters` the single letters of a run stand beside
    its pairs, so that a question of one letter is found.
    """

    def spread(run: re.Match[str]) -> str:
        pieces = []
        for word in _WORD.findall(run[0]):
            if letters or len(word) == 1:
                pieces += word
            pieces += [first + second for first, second in pairwise(word)]
        return f" {' '.join(pieces)} "

    plain = _SOFT_HYPHEN.sub("", text)
    pieces = (plain[begin : begin + _PIECE] for begin in range(0, len(plain), _PIECE))
    comparable = "".join(unicodedata.normalize("NFKC", piece) for piece in pieces)
    return _UNSPACED.sub(spread, comparable).encode("utf-8", "replace").decode()
