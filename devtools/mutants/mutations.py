"""All one-token mutations of a module's source.

The operators are the usual ones: a comparison, a boolean or arithmetic operator, a condition, a constant, a bound or a
quantifier becomes its nearest neighbour. These rules leave out what no behaviour of the engines depends on:

- type annotations, type aliases and arguments of decorators (flags of dataclasses, sizes of caches);
- `assert` statements, `strict=` of zip, `repr=` of fields, `__slots__`, `__all__` and `__repr__`;
- texts for people: strings other than identifiers, f-strings and docstrings.
"""

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise

COMPARISONS: Mapping[type[ast.cmpop], tuple[bytes, bytes]] = {
    ast.Eq: (rb"==", b"!="),
    ast.NotEq: (rb"!=", b"=="),
    ast.Lt: (rb"<", b"<="),
    ast.LtE: (rb"<=", b"<"),
    ast.Gt: (rb">", b">="),
    ast.GtE: (rb">=", b">"),
    ast.Is: (rb"\bis\b", b"is not"),
    ast.IsNot: (rb"\bis\s+not\b", b"is"),
    ast.In: (rb"\bin\b", b"not in"),
    ast.NotIn: (rb"\bnot\s+in\b", b"in"),
}
ARITHMETIC: Mapping[type[ast.operator], tuple[bytes, bytes]] = {
    ast.Add: (rb"\+", b"-"),
    ast.Sub: (rb"-", b"+"),
    ast.Mult: (rb"\*", b"/"),
    ast.Div: (rb"/", b"*"),
    ast.FloorDiv: (rb"//", b"*"),
    ast.Mod: (rb"%", b"*"),
    ast.Pow: (rb"\*\*", b"*"),
    ast.LShift: (rb"<<", b">>"),
    ast.RShift: (rb">>", b"<<"),
    ast.BitOr: (rb"\|", b"&"),
    ast.BitAnd: (rb"&", b"|"),
    ast.BitXor: (rb"\^", b"&"),
}
OPPOSITES = {"min": b"max", "max": b"min", "any": b"all", "all": b"any"}
IDENTIFIER = re.compile(r"[a-z0-9_.:/*-]*")
NEVER_CALLED_WITH_VALUES = {"NewType", "TypeVar", "cast", "lru_cache"}
UNCHANGED_NAMES = {"__slots__", "__all__", "__match_args__"}


@dataclass(frozen=True, slots=True)
class Mutation:
    """One replacement in the source: bytes `start` to `end`, in a statement whose own lines are `lines`."""

    line: int
    lines: range
    is_in_function: bool
    """Otherwise the statement runs when its module is imported."""
    start: int
    end: int
    before: str
    after: str

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.after.encode() + source[self.end :]


def mutations(source: bytes) -> Iterator[Mutation]:
    """In the order of the source; each leaves a module that compiles."""
    found = _Finder(source)
    found.visit(ast.parse(source))
    yield from sorted(found.mutations, key=lambda one: (one.start, one.end, one.after))


class _Finder(ast.NodeVisitor):
    def __init__(self, source: bytes) -> None:
        self.source, self.mutations = source, list[Mutation]()
        self._line_starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
        self._lines, self._functions = range(1, 1), 0

    # Which statement owns a token, and which tokens no behaviour depends on.

    def visit(self, node: ast.AST) -> None:
        if not isinstance(node, ast.stmt):
            super().visit(node)
            return
        outer, self._lines = self._lines, _own_lines(node)
        super().visit(node)
        self._lines = outer

    def _visit_definition(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        if node.name == "__repr__":
            return
        is_function = isinstance(node, ast.FunctionDef)
        if isinstance(node, ast.FunctionDef):
            self.visit(node.args)
        self._functions += is_function
        for part in node.body:
            self.visit(part)
        self._functions -= is_function

    visit_FunctionDef = visit_ClassDef = _visit_definition  # noqa: N815 - ast.NodeVisitor names its methods so

    def visit_arg(self, node: ast.arg) -> None:
        """A parameter is a name and an annotation."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """The code's own check of itself."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """A text for people."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        is_alias = isinstance(node.annotation, ast.Name) and node.annotation.id == "TypeAlias"
        if node.value is not None and not is_alias:
            self.visit(node.value)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        if not (names & UNCHANGED_NAMES or (isinstance(node.value, ast.Subscript) and _is_alias(names))):
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in {"strict", "repr"}:
            self.generic_visit(node)

    # The operators.

    def visit_Compare(self, node: ast.Compare) -> None:
        self.generic_visit(node)
        for (left, right), operator in zip(pairwise((node.left, *node.comparators)), node.ops, strict=True):
            self._between(left, right, *COMPARISONS[type(operator)])

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        self.generic_visit(node)
        token, other = (rb"\band\b", b"or") if isinstance(node.op, ast.And) else (rb"\bor\b", b"and")
        for left, right in pairwise(node.values):
            self._between(left, right, token, other)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        self.generic_visit(node)
        if type(node.op) in ARITHMETIC:
            self._between(node.left, node.right, *ARITHMETIC[type(node.op)])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.generic_visit(node)
        token, other = ARITHMETIC[type(node.op)]
        self._between(node.target, node.value, token + b"=", other + b"=")

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        self.generic_visit(node)
        start = self._start(node)
        if isinstance(node.op, ast.Not):
            self._add(start, start + len("not"), b"")
        elif isinstance(node.op, ast.USub):
            self._add(start, start + 1, b"+")

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in NEVER_CALLED_WITH_VALUES:
            return
        if name in OPPOSITES:
            self._add(self._start(node.func), self._end(node.func), OPPOSITES[name])
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        start, end, value = self._start(node), self._end(node), node.value
        if isinstance(value, bool):
            self._add(start, end, str(not value).encode())
        elif isinstance(value, int | float):
            for other in (value + 1, value - 1):
                self._add(start, end, repr(other).encode() if other >= 0 else b"(%d)" % other)
        elif isinstance(value, str) and IDENTIFIER.fullmatch(value):
            self._add(start, end, repr(f"{value}XX").encode())

    def visit_Break(self, node: ast.Break) -> None:
        self._add(self._start(node), self._end(node), b"continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(self._start(node), self._end(node), b"break")

    def _visit_condition(self, node: ast.If | ast.While | ast.IfExp) -> None:
        if _is_type_checking(node.test):
            return
        self._negate(node.test)
        self.generic_visit(node)

    visit_If = visit_While = visit_IfExp = _visit_condition  # noqa: N815 - ast.NodeVisitor names its methods so

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._negate(condition)
        self.generic_visit(node)

    def _negate(self, condition: ast.expr) -> None:
        """Comparisons, `and`, `or` and `not` have separate operators."""
        if not isinstance(condition, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
            start, end = self._start(condition), self._end(condition)
            self._add(start, end, b"not (" + self.source[start:end] + b")")

    # Positions.

    def _between(self, left: ast.AST, right: ast.AST, token: bytes, other: bytes) -> None:
        start = self._end(left)
        gap = re.sub(rb"#.*", lambda comment: b" " * len(comment[0]), self.source[start : self._start(right)])
        found = re.search(token, gap)
        assert found, (token, gap)
        self._add(start + found.start(), start + found.end(), other)

    def _add(self, start: int, end: int, after: bytes) -> None:
        line = bisect_right(self._line_starts, start)
        before = self.source[start:end].decode()
        self.mutations.append(Mutation(line, self._lines, self._functions > 0, start, end, before, after.decode()))

    def _start(self, node: ast.AST) -> int:
        assert isinstance(node, ast.expr | ast.stmt)
        return self._line_starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.AST) -> int:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._line_starts[node.end_lineno - 1] + node.end_col_offset


def _own_lines(statement: ast.stmt) -> range:
    """The lines of a statement without those of the statements in it."""
    inner = [part.lineno for part in ast.walk(statement) if isinstance(part, ast.stmt) and part is not statement]
    assert statement.end_lineno is not None
    last = max(statement.lineno, min(inner) - 1) if inner else statement.end_lineno
    return range(statement.lineno, last + 1)


def _is_alias(names: set[str]) -> bool:
    """Whether a subscript assigned to these names is a type: such names are in CapWords."""
    return all(name[:1].isupper() and not name.isupper() for name in names)


def _is_type_checking(test: ast.expr) -> bool:
    return isinstance(test, ast.Name) and test.id == "TYPE_CHECKING"
