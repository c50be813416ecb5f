"""Parses Python sources in a process that may die of them. Run by path, knows nothing of the project.

Reads a JSON list of sources on standard input, writes one JSON object a line for each: {} if it parses and defines
``solution``, {"missing": true} if it does not define it, {"error", "line", "column"} if it does not parse.
"""

import ast
import json
import resource
import sys

MEMORY = 2_000_000_000  # bytes; 1 MB of source needs up to some 600 MB as a tree
SECONDS = 20  # of processor time, for the whole list


def look(source: str) -> dict[str, object]:
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        return {"error": error.msg or "invalid syntax", "line": error.lineno, "column": error.offset}
    except (RecursionError, MemoryError):
        return {"error": "nested too deeply", "line": None, "column": None}
    except ValueError as error:
        return {"error": str(error), "line": None, "column": None}
    return {} if any(defines(node) for node in tree.body) else {"missing": True}


def defines(node: ast.stmt) -> bool:
    """Whether a statement at the top level may bind ``solution``; compound statements get the benefit of the doubt."""
    for part in ast.walk(node):
        if isinstance(part, ast.FunctionDef | ast.ClassDef) and part.name == "solution":
            return True
        if isinstance(part, ast.Name) and part.id == "solution" and isinstance(part.ctx, ast.Store):
            return True
        if isinstance(part, ast.alias) and (part.asname or part.name) in {"solution", "*"}:
            return True
    return False


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for source in json.load(sys.stdin):
        print(json.dumps(look(source)), flush=True)


if __name__ == "__main__":
    main()
