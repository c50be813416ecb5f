"""The reference of a problem as one self-contained file.

This is what people and models read, what the reference arm of the judge runs and what the tests send in: ``solution``
with everything it needs from its own module and from the suite's shared ones, and no import of the suite.
"""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from problems.suite.base import Problem
from problems.suite.registry import Entry, find, module_file

_BUILTIN = frozenset(dir(builtins))


@dataclass
class _Module:
    """Top level of a module: which statement defines a name, which import brings it."""

    path: Path
    lines: list[str]
    docstring: str
    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    imports: dict[str, str] = field(default_factory=dict)
    """Name -> import statement of a third-party or standard module."""
    shared: dict[str, tuple[str, str]] = field(default_factory=dict)
    """Name -> (module of the suite, name there)."""

    def source(self, node: ast.stmt) -> str:
        """Text of a statement with its decorators and the comment lines directly above."""
        decorators = getattr(node, "decorator_list", [])
        first = min([node.lineno, *(d.lineno for d in decorators)]) - 1
        while first > 0 and self.lines[first - 1].startswith("#"):
            first -= 1
        return "\n".join(self.lines[first : node.end_lineno])


def reference_source(problem: Problem | Entry) -> str:
    """Source of the reference as one file: docstring, imports, helpers, ``solution``.

    Raises ValueError where a name cannot be resolved or two modules define different things under one name.
    """
    module = _module(find(problem.id).path)
    needed: dict[str, tuple[_Module, ast.stmt]] = {}
    imports: set[str] = set()
    _collect("solution", module, needed, imports)
    pieces: dict[tuple[Path, int], str] = {}
    for owner, node in needed.values():
        pieces[owner.path, node.lineno] = owner.source(node)
    # Families first and the problem's own module last, each in its own order, as a reader would write them.
    order = sorted(pieces, key=lambda key: (key[0] == module.path, key))
    text = f'"""{module.docstring.strip()}\n"""\n\n{_import_block(imports)}'
    previous_simple = True
    for path, line in order:
        simple = not any(row.startswith(("def ", "class ", "@")) for row in pieces[path, line].splitlines())
        text += ("\n" if simple and previous_simple else "\n\n") + pieces[path, line] + "\n"
        previous_simple = simple
    return text


def signature_text(problem: Problem | Entry) -> str:
    """The ``def solution(...) -> ...`` line or lines as they stand in the module, without the colon."""
    module = _module(find(problem.id).path)
    node = module.definitions["solution"]
    if not isinstance(node, ast.FunctionDef):
        raise ValueError(f"{module.path}: solution is not a function")
    end = _body_start(node)
    return "\n".join(module.lines[node.lineno - 1 : end]).rstrip().removesuffix(":")


def _body_start(node: ast.FunctionDef) -> int:
    """Last line (1-based) of the header of a function."""
    parts = [node.lineno]
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    parts += [a.end_lineno or a.lineno for a in arguments]
    if node.returns is not None:
        parts.append(node.returns.end_lineno or node.returns.lineno)
    return max(parts)


@cache
def _module(path: Path) -> _Module:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    module = _Module(path, text.splitlines(), ast.get_docstring(tree) or "")
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("problems.suite."):
            for alias in node.names:
                module.shared[alias.asname or alias.name] = (node.module or "", alias.name)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                module.imports[alias.asname or alias.name] = f"from {node.module} import {_renamed(alias)}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.split(".")[0]
                module.imports[name] = f"import {_renamed(alias)}"
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            module.definitions[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                for name in (n.id for n in ast.walk(target) if isinstance(n, ast.Name)):
                    module.definitions[name] = node
    return module


def _renamed(alias: ast.alias) -> str:
    return f"{alias.name} as {alias.asname}" if alias.asname else alias.name


def _collect(name: str, module: _Module, needed: dict[str, tuple[_Module, ast.stmt]], imports: set[str]) -> None:
    """Adds the definition of ``name`` and of all it uses to ``needed``, and imports to ``imports``."""
    if name in module.shared:
        source, original = module.shared[name]
        if original != name:
            raise ValueError(f"{module.path}: a reference cannot use {original} under the name {name}")
        _collect(original, _module(module_file(source)), needed, imports)
        return
    if name in module.imports:
        imports.add(module.imports[name])
        return
    if name not in module.definitions:
        raise ValueError(f"{module.path}: the reference uses {name}, which the module does not define")
    known = needed.get(name)
    if known is not None:
        if known[0].path != module.path:
            raise ValueError(f"the reference needs two things called {name}: {known[0].path}, {module.path}")
        return
    node = module.definitions[name]
    needed[name] = (module, node)
    for used in _free_names(node):
        if used in module.definitions or used in module.imports or used in module.shared:
            _collect(used, module, needed, imports)
        elif used not in _BUILTIN and used not in _bound_names(node):
            raise ValueError(f"{module.path}:{node.lineno}: {name} uses {used}, which nothing defines")


def _free_names(node: ast.stmt) -> list[str]:
    """Names that a statement reads, in the order of appearance; locals that shadow a module name are not told apart."""
    local = _bound_names(node)
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id not in local]


def _bound_names(node: ast.stmt) -> set[str]:
    """Parameters and local variables of a function; empty for other statements."""
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        return set()
    bound = {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
    bound |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {n.name for n in ast.walk(node) if isinstance(n, ast.FunctionDef | ast.ClassDef) and n is not node}
    return bound


def _import_block(imports: set[str]) -> str:
    """Import statements, plain ones first, names from one module on one line, in the order that isort uses."""
    plain = sorted(line for line in imports if line.startswith("import "))
    grouped: dict[str, list[str]] = {}
    for line in imports - set(plain):
        source, _, name = line.removeprefix("from ").partition(" import ")
        grouped.setdefault(source, []).append(name)
    standard: list[str] = []
    torch: list[str] = []
    for line in [*plain, *(f"from {s} import {', '.join(sorted(grouped[s]))}" for s in sorted(grouped))]:
        (torch if line.split()[1].split(".")[0] == "torch" else standard).append(line)
    return "\n\n".join("\n".join(block) for block in (standard, torch) if block) + "\n"
