"""The static phase: what can be said of a file without running it."""

from __future__ import annotations

import ast

from evaluator.contract import MAX_SOURCE_BYTES, Code
from evaluator.judge.faults import Fault


def examine(source: str) -> None:
    """Raises Fault(INVALID_FILE) unless the source is a Python file with a top-level ``solution``."""
    size = len(source.encode("utf-8", "surrogatepass"))
    if not source.strip():
        raise _invalid("The file is empty.")
    if size > MAX_SOURCE_BYTES:
        raise _invalid(f"The file has {size} bytes; at most {MAX_SOURCE_BYTES} are allowed.")
    try:
        source.encode("utf-8")
        tree = ast.parse(source, filename="solution.py")
    except SyntaxError as error:
        place = f" in line {error.lineno}" if error.lineno else ""
        shown = f": {error.text.strip()[:200]}" if error.text else ""
        raise _invalid(f"Syntax error{place}: {error.msg}{shown}", normalised=f"syntax {error.msg}") from error
    except UnicodeEncodeError as error:
        raise _invalid("The file is not valid UTF-8.") from error
    except ValueError as error:
        raise _invalid(f"The file cannot be parsed: {error}.") from error
    except (RecursionError, MemoryError) as error:
        raise _invalid("The file is nested too deeply to be parsed.") from error
    if not any(_defines_solution(node) for node in ast.walk(tree)):
        raise _invalid("The file defines no solution at its top level; it must define the function solution(…).")


def _defines_solution(node: ast.AST) -> bool:
    """True for a statement that may bind the name; conditional definitions and imports count."""
    match node:
        case ast.FunctionDef(name="solution") | ast.ClassDef(name="solution") | ast.AsyncFunctionDef(name="solution"):
            return True
        case ast.Name(id="solution", ctx=ast.Store()):
            return True
        case ast.ImportFrom() | ast.Import():
            return any((alias.asname or alias.name) in ("solution", "*") for alias in node.names)
        case _:
            return False


def _invalid(message: str, *, normalised: str = "") -> Fault:
    return Fault(Code.INVALID_FILE, message[:1_000], normalised=normalised)
