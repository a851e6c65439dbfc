"""The prose of a file, each piece on the line where the file has it, so that what vale reports can be found."""

import ast
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from io import StringIO

Piece = tuple[int, str]
"""The line where a text begins, counted from 1, and the text."""
CODE = re.compile(r"`[^`\n]*`")
VISIBLE_ATTRIBUTES = ("alt", "aria-label", "content", "data-confirm", "hx-confirm", "placeholder", "title")
HIDDEN_ELEMENTS = ("pre", "code", "script", "style", "svg")
TEMPLATE_TAG = re.compile(r"{%.*?%}|{{.*?}}", re.DOTALL)
QUOTED = re.compile(r'"([^"]*)"')


def of_python(source: str) -> str:
    """Comments, and strings of several words: docstrings, help texts, messages. Without what stands in backticks."""
    pieces = (*_comments(source), *_strings(ast.parse(source)))
    return _on_their_lines((line, CODE.sub("N", text)) for line, text in pieces if " " in text)


def of_template(source: str) -> str:
    """The text that a page shows, in its elements, in their attributes, and in the arguments of Django's tags."""
    page = _Page()
    page.feed(TEMPLATE_TAG.sub(_arguments, source))
    page.close()
    return _on_their_lines(page.pieces)


def _comments(source: str) -> Iterator[Piece]:
    for token in tokenize.generate_tokens(StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#! ")


def _strings(node: ast.AST) -> Iterator[Piece]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.lineno, node.value
    elif isinstance(node, ast.JoinedStr):  # in one piece, as its words belong together
        yield node.lineno, "".join(str(part.value) if isinstance(part, ast.Constant) else "N" for part in node.values)
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from _strings(part.value)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _strings(child)


def _arguments(tag: re.Match[str]) -> str:
    """A tag's quoted arguments, with its line breaks: they are labels and hints as well as names."""
    words = " ".join(text for text in QUOTED.findall(tag[0]) if " " in text)
    return f" {words} " + "\n" * tag[0].count("\n") if words else "N" + "\n" * tag[0].count("\n")


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[Piece] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._hidden += tag in HIDDEN_ELEMENTS
        self.pieces += [(self.getpos()[0], text) for name, text in attrs if name in VISIBLE_ATTRIBUTES and text]

    def handle_endtag(self, tag: str) -> None:
        self._hidden -= tag in HIDDEN_ELEMENTS

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.pieces.append((self.getpos()[0], data))


def _on_their_lines(pieces: Iterable[Piece]) -> str:
    lines: defaultdict[int, list[str]] = defaultdict(list)
    for first, text in pieces:
        for number, line in enumerate(text.splitlines(), first):
            lines[number].append(line.strip())
    return "".join(f"{' | '.join(lines[number])}\n" for number in range(1, max(lines, default=0) + 1))
