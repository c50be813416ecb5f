"""How much a submission is the reference: its program beside the reference's, and what both ran.

Each signal alone says little: a good kernel may keep the reference's set-up line for line, and two programs may call
the same operations for different reasons. Together they say that nothing was written but the baseline.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from difflib import SequenceMatcher

from evaluator.contract import Decision, Similarity
from evaluator.judge import mechanisms
from evaluator.judge.census import timeline
from evaluator.judge.mechanisms import Scan
from evaluator.judge.observations import Observation

SAME_PROGRAM = 0.97
"""From here on the programs are one, but for names, comments and types."""
ALIKE = 0.6
"""From here on it is worth asking whether both run the same operations."""
SAME_OPERATIONS = 0.97
MAX_TOKENS = 6_000
PLAIN = {mechanisms.DISTRIBUTED, mechanisms.LIBRARY, mechanisms.HOST_STAGING}
"""Labels that a wrapper of the reference may carry."""


def of_programs(source: str, reference: str) -> float:
    """Similarity of two programs from 0 to 1, by the tokens of what ``solution`` uses; 0 if one cannot be parsed."""
    first, second = tokens(source), tokens(reference)
    if not first or not second:
        return 0.0
    return SequenceMatcher(None, first[:MAX_TOKENS], second[:MAX_TOKENS], autojunk=False).ratio()


def worth_comparing(program: float, scan: Scan) -> bool:
    """Whether the source leaves it open that the submission is the reference."""
    return program >= ALIKE and scan.labels <= PLAIN


def of_operations(first: Sequence[Observation], second: Sequence[Observation]) -> float | None:
    """Similarity of what two programs ran, in the order of its start, the least of all ranks; None if unknown."""
    empty = Scan()
    found: list[float] = []
    for one, other in zip(first, second, strict=True):
        ours, theirs = ([name for name, _, _ in timeline(o, empty).counted][:MAX_TOKENS] for o in (one, other))
        if not ours or not theirs or len(one.calls) != len(other.calls) or one.dropped or other.dropped:
            return None
        found.append(SequenceMatcher(None, ours, theirs, autojunk=False).ratio())
    return min(found, default=None)


def judge(program: float, operations: float | None, decision: Decision) -> Similarity:
    """Both signals, and the label where they agree. Who is measurably faster than the reference is no wrapper of it."""
    label = ""
    if operations is not None and operations >= SAME_OPERATIONS:
        if program >= SAME_PROGRAM:
            label = "baseline duplicate"
        elif program >= ALIKE and decision is not Decision.FASTER:
            label = "wrapper"
    return Similarity.model_validate({"label": label, "source": program, "operations": operations})


def tokens(source: str) -> list[str]:
    """What ``solution`` and all it uses in the file says, without names of variables, types, docstrings, comments."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    writer = _Writer(tree)
    writer.use("solution")
    return writer.out


class _Writer:
    """Writes definitions as tokens, in the order of their first use from ``solution`` on."""

    def __init__(self, tree: ast.Module) -> None:
        self.out: list[str] = []
        self._aliases: dict[str, str] = {}
        self._definitions: dict[str, ast.stmt] = {}
        self._waiting: list[str] = []
        self._used: set[str] = set()
        self._locals: dict[str, str] = {}
        for node in ast.walk(tree):
            match node:
                case ast.Import(names=names):
                    self._aliases |= {a.asname or a.name.partition(".")[0]: a.name for a in names}
                case ast.ImportFrom(module=module, names=names):
                    self._aliases |= {a.asname or a.name: f"{module}.{a.name}" for a in names}
                case _:
                    pass
        for statement in tree.body:
            match statement:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                    self._definitions[name] = statement
                case ast.Assign(targets=[ast.Name(id=name)]):
                    self._definitions[name] = statement
                case _:
                    pass

    def use(self, name: str) -> None:
        """Writes the definition of a name, and then of all that it uses."""
        self._waiting.append(name)
        while self._waiting:
            name = self._waiting.pop(0)
            if name in self._definitions and name not in self._used:
                self._used.add(name)
                self._locals = {}
                self._write(self._definitions[name])

    def _write(self, node: ast.AST) -> None:
        match node:
            case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Assert() | ast.Import() | ast.ImportFrom():
                return
            case ast.Name(id=name):
                self._name(name)
                return
            case ast.arg(arg=name):
                self.out.append(self._locals.setdefault(name, f"v{len(self._locals)}"))
                return
            case ast.Attribute(value=value, attr=attribute):
                self._write(value)
                self.out.append(f".{attribute}")
                return
            case ast.Constant(value=value):
                self.out.append(repr(value)[:80])
                return
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._write(ast.Assign(targets=[target], value=value))
                return
            case _:
                pass
        self.out.append(type(node).__name__)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "ctx", "type_comment", "type_params", "decorator_list"):
                continue
            for part in value if isinstance(value, list) else [value]:
                if isinstance(part, ast.AST):
                    self._write(part)

    def _name(self, name: str) -> None:
        if name in self._definitions:
            self.out.append("f")
            self._waiting.append(name)
        elif name in self._aliases:
            self.out.append(self._aliases[name])
        else:
            self.out.append(self._locals.setdefault(name, f"v{len(self._locals)}"))
