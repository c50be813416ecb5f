"""CUDA C++ as it stands in the strings of a submission: without comments, and of its own strings only inline PTX."""

from __future__ import annotations

import re

_TOKEN = re.compile(
    r"""
      (?P<comment>//[^\n]*|/\*.*?(?:\*/|\Z))
    | (?P<raw>R"(?P<mark>[^()\s\\]{0,16})\(.*?(?:\)(?P=mark)"|\Z))
    | (?P<string>"(?:\\.|[^"\\\n])*(?:"|$))
    | (?P<char>'(?:\\.|[^'\\\n])'|'\\?[^'\n]{1,6}')
    | (?P<asm>\b(?:asm|__asm|__asm__)\b)
    | (?P<open>\()
    | (?P<close>\))
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_KERNEL = re.compile(
    r"__global__\s+(?:(?:static|inline|extern|__forceinline__)\s+)*(?:__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*)?"
    r"void\s+(?:__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)\s*)?(\w+)\s*\("
)
_LOOKS_LIKE_CUDA = re.compile(r"__global__|#\s*include\s*[<\"]|PYBIND11_MODULE|TORCH_LIBRARY|extern\s+\"C\"")


def looks_like_cuda(text: str) -> bool:
    """True for a string that is C++ or CUDA source, wherever it goes."""
    return bool(_LOOKS_LIKE_CUDA.search(text))


def code_of(source: str) -> str:
    """The source with comments taken out and strings emptied, except those of ``asm`` statements: they are PTX."""
    pieces: list[str] = []
    at = 0
    depth = 0
    asm_depth: int | None = None
    asm_next = False
    for match in _TOKEN.finditer(source):
        pieces.append(source[at : match.start()])
        at = match.end()
        match match.lastgroup:
            case "comment":
                pieces.append(" ")
            case "string" | "raw" | "mark":
                pieces.append(match.group() if asm_depth is not None else '""')
            case "asm":
                asm_next = True
                pieces.append(match.group())
            case "open":
                depth += 1
                if asm_next and asm_depth is None:
                    asm_depth = depth
                asm_next = False
                pieces.append("(")
            case "close":
                if asm_depth == depth:
                    asm_depth = None
                depth -= 1
                pieces.append(")")
            case _:
                pieces.append(match.group())
    pieces.append(source[at:])
    return "".join(pieces)


def kernels_in(code: str) -> list[str]:
    """Names of the ``__global__`` functions."""
    return list(dict.fromkeys(_KERNEL.findall(code)))
