"""By which mechanisms a submission moves and computes data, read from its source.

Python is read as a syntax tree: names with their imports resolved, so that a name in a comment, a docstring or a
message counts for nothing. CUDA stands in strings that go to a builder of extensions and is read with its own lexer;
Triton kernels are functions under ``triton.jit``. A label is a description and never a verdict. "(static)" behind it
says that no run has confirmed it: what the profiler saw (``census``) takes the mark away, or adds a label.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from evaluator.judge.cuda_text import code_of, kernels_in, looks_like_cuda

STATIC = " (static)"

COPY_ENGINE = "copy engine"
TMA = "TMA"
LOCAL_TMA = "TMA within a GPU"
PEER_ACCESS = "SM peer access"
MULTIMEM = "multimem"
NVSHMEM = "NVSHMEM or device NCCL"
DISTRIBUTED = "torch.distributed"
SYMMETRIC_OPERATORS = "symmetric memory operators"
SYMMETRIC = "symmetric memory"
TRITON = "Triton"
OWN_CUDA = "own CUDA"
LIBRARY = "library"
GRAPH = "CUDA graph"
STREAMS = "streams"
HOST_STAGING = "host staging"
COMPRESSED = "compressed wire"
OBFUSCATED = "obfuscated"
WRAPPER = "wrapper of the reference"

ORDER = (
    COPY_ENGINE, TMA, LOCAL_TMA, PEER_ACCESS, MULTIMEM, NVSHMEM, DISTRIBUTED, SYMMETRIC_OPERATORS, SYMMETRIC, TRITON,
    OWN_CUDA, LIBRARY, GRAPH, STREAMS, HOST_STAGING, COMPRESSED, OBFUSCATED, WRAPPER,
)  # fmt: skip

_C10D = (
    r"all_reduce|all_gather\w*|all_to_all\w*|reduce|reduce_scatter\w*|broadcast\w*|gather\w*|scatter\w*|send\w*|recv\w*"
    r"|isend|irecv|batch_isend_irecv|barrier|P2POp"
)

# On dotted names of Python, imports resolved: "torch.distributed.all_reduce"; a name after a call or a subscript
# begins with a dot: ".get_buffer".
_PYTHON: dict[str, str] = {
    COPY_ENGINE: r"^cuda\.bindings\b.*[mM]emcpy|cudaMemcpy\w*|cuMemcpy\w*",
    TMA: r"\bmake_tensor_descriptor$|experimental_descriptor|\bTensorDescriptor\b|^cutlass\.cute\..*SM90_TMA",
    PEER_ACCESS: r"\.(buffer_ptrs(_dev)?)$|^iris\.|cudaIpcOpenMemHandle|^triton\.language\.pointer_type$",
    MULTIMEM: r"\.multicast_ptr$|multimem_\w+$|^cuMulticast",
    NVSHMEM: r"^nvshmem\b|\.nvshmem\b|^nccl4py\b",
    DISTRIBUTED: (
        rf"^torch\.distributed\.({_C10D})$|^torch\.distributed\.(nn\b|_functional_collectives\.|tensor\.)"
        rf"|^torch\.ops\.(c10d|_c10d_functional)\.|^torch\.nn\.parallel\.DistributedDataParallel"
    ),
    SYMMETRIC_OPERATORS: r"^torch\.ops\.symm_mem\.|fused_all_gather_matmul$|fused_matmul_reduce_scatter$",
    SYMMETRIC: r"torch\.distributed\._symmetric_memory\b|\.(signal_pad\w*|get_signal_pad|put_signal|wait_signal)$",
    TRITON: r"^triton\.(jit|autotune|experimental\.gluon)|^(tilelang|helion|cutlass\.cute)\b",
    OWN_CUDA: (
        r"cpp_extension\.(load|load_inline|CUDAExtension)$|compile_cuda_extension$|_compile_kernel$|nvrtc|RawKernel$"
    ),
    LIBRARY: (
        r"^torch\.(mm|bmm|matmul|addmm|baddbmm|einsum|_scaled_mm|linalg\.\w+)$|^torch\.nn\.functional\.(linear|conv\w*"
        r"|scaled_dot_product_attention)$|^(flash_attn|cutlass|transformer_engine|apex|xformers)\b"
    ),
    GRAPH: r"^torch\.cuda\.(CUDAGraph|graph|make_graphed_callables)$",
    STREAMS: r"^torch\.cuda\.(Stream|stream)$",
    HOST_STAGING: r"\.(cpu|pin_memory)$|^multiprocessing\.shared_memory|^mmap\b",
    COMPRESSED: r"^torch\.(float8_\w+|quantize_per_\w+)$",
    OBFUSCATED: r"^(exec|eval|__import__|marshal\.loads|base64\.\w*b\d+decode|zlib\.decompress)$",
}
# On the code of CUDA sources and on the PTX of Triton kernels.
_CUDA: dict[str, str] = {
    COPY_ENGINE: r"\bcudaMemcpyPeer\w*|\bcuMemcpy\w+|\bcudaMemcpyBatchAsync",
    TMA: r"cp\.async\.bulk|cp\.reduce\.async\.bulk|\bcuTensorMapEncode|\bCUtensorMap\b|\bSM90_TMA_|\btma::",
    PEER_ACCESS: (
        r"ld\.(acquire|relaxed|volatile)\.sys|st\.(release|relaxed|volatile)\.sys|\b(red|atom)\.[\w.]*\bsys\b"
        r"|\batomic\w+_system\b|__threadfence_system|cudaIpcOpenMemHandle|cuMemImportFromShareableHandle"
        r"|\b(peer|remote)_?(ptr|buf|base|data)\w*|\bbuffer_ptrs\w*"
    ),
    MULTIMEM: r"\bmultimem\b|\bmulticast_ptr\b|\bmc_ptr|\bcuMulticast\w+",
    NVSHMEM: r"\bnvshmemx?_\w+|\bnccl(DevComm|Window|Lsa|Gin)\w*",
    DISTRIBUTED: r"\bnccl(AllReduce|AllGather|ReduceScatter|Send|Recv|Broadcast|Reduce)\b",
    SYMMETRIC: r"\bsignal_pad\w*",
    LIBRARY: r"\bcublas\w+\(|\bcutlass::|\bcudnn\w+\(|\bat::(mm|matmul|addmm|bmm|linear)\w*\(",
    GRAPH: r"\bcudaStreamBeginCapture|\bcudaGraphLaunch",
    STREAMS: r"\bcudaStreamCreate\w*|ProgrammaticStreamSerialization",
    COMPRESSED: r"\b__nv_fp8\w*|\be4m3\w*|\be5m2\w*",
}
_PYTHON_RULES = {label: re.compile(pattern) for label, pattern in _PYTHON.items()}
_CUDA_RULES = {label: re.compile(pattern) for label, pattern in _CUDA.items()}
_SYMMETRIC_IN_CUDA = re.compile(r"\bmultimem\b|\bsignal_pad|peer|remote|\bbuffer_ptrs")


@dataclass
class Scan:
    """What was read in a source."""

    labels: set[str] = field(default_factory=set)
    cuda_kernels: list[str] = field(default_factory=list)
    """Names of ``__global__`` functions."""
    triton_kernels: list[str] = field(default_factory=list)
    """Names of functions under ``triton.jit``."""
    imports: set[str] = field(default_factory=set)
    """Top-level names of imported packages."""
    devices: tuple[int, ...] = ()
    """Lines that name a device by a number of its own: ``cuda:<rank>`` in a string or an f-string."""

    def static_labels(self) -> tuple[str, ...]:
        """The labels in the usual order, each with "(static)"."""
        return tuple(f"{label}{STATIC}" for label in ORDER if label in self.labels)


def scan(source: str) -> Scan:
    """Reads a source. One that cannot be parsed gives an empty scan: it is no Python, and the static phase says so."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Scan()
    found = Scan()
    reader = _Reader(tree)
    found.imports = reader.imports
    found.devices = tuple(reader.device_lines)
    for name in reader.names:
        found.labels |= {label for label, rule in _PYTHON_RULES.items() if rule.search(name)}
    found.triton_kernels = reader.triton_kernels
    found.labels |= {COPY_ENGINE} if reader.copies_peers else set()
    found.labels |= {PEER_ACCESS} if reader.uses_peers else set()
    for text in reader.cuda_texts():
        code = code_of(text)
        found.cuda_kernels += kernels_in(code)
        found.labels |= {label for label, rule in _CUDA_RULES.items() if rule.search(code)} | {OWN_CUDA}
        if _SYMMETRIC_IN_CUDA.search(code):
            found.labels.add(PEER_ACCESS)
    for text in reader.ptx:
        found.labels |= {label for label, rule in _CUDA_RULES.items() if rule.search(text)}
    if TMA in found.labels and not found.labels & {PEER_ACCESS, MULTIMEM, SYMMETRIC, NVSHMEM}:
        found.labels = found.labels - {TMA} | {LOCAL_TMA}
    return found


def needs_multicast(source: str) -> bool:
    """True if the source uses instructions or pointers of in-switch multicast."""
    return MULTIMEM in scan(source).labels


_PEER_BUFFERS = ("get_buffer", "get_remote_tensor")
_DEVICE = re.compile(r"^cuda:(\d+)?$")
_BUILDERS = re.compile(r"(load_inline|compile_cuda_extension|_compile_kernel|RawKernel|RawModule)$")


class _Reader(ast.NodeVisitor):
    """Collects what a source names, with imports resolved."""

    def __init__(self, tree: ast.Module) -> None:
        self.aliases: dict[str, str] = {}
        self.imports: set[str] = set()
        self.names: set[str] = set()
        self.ptx: list[str] = []
        self.triton_kernels: list[str] = []
        self.device_lines: list[int] = []
        self._docstrings: set[int] = set()
        self._constants: dict[str, list[str]] = {}
        self._strings: list[str] = []
        self._built: list[ast.expr] = []
        self._peers: set[str] = set()
        """Names that are bound to buffers of other ranks."""
        self.copies_peers = self.uses_peers = False
        for node in ast.walk(tree):
            self._note(node)
        copied = [part for node in ast.walk(tree) if (call := _copied(node)) for part in ast.walk(call)]
        bound = [node.value for node in ast.walk(tree) if isinstance(node, ast.Assign)]
        self._in_copies = {id(part) for part in copied}
        self._in_bindings = {id(part) for value in bound for part in ast.walk(value)}
        for node in ast.walk(tree):
            self._read(node)

    def cuda_texts(self) -> list[str]:
        """Strings that go to a builder, directly or by a name, and those that are CUDA by their look."""
        texts = [text for text in self._strings if looks_like_cuda(text)]
        for expression in self._built:
            texts += self._texts_in(expression)
        return list(dict.fromkeys(texts))

    def _texts_in(self, expression: ast.expr) -> list[str]:
        texts = []
        for node in ast.walk(expression):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_code(node.value):
                texts.append(node.value)
            elif isinstance(node, ast.Name):
                texts += [text for text in self._constants.get(node.id, ()) if _is_code(text)]
        return texts

    def _note(self, node: ast.AST) -> None:
        """First pass: imports, docstrings, strings by the names they are bound to."""
        match node:
            case ast.Import(names=names):
                for alias in names:
                    self.imports.add(alias.name.partition(".")[0])
                    if alias.asname:
                        self.aliases[alias.asname] = alias.name
                    self.names.add(alias.name)
            case ast.ImportFrom(module=module, names=names, level=0) if module:
                self.imports.add(module.partition(".")[0])
                for alias in names:
                    self.aliases[alias.asname or alias.name] = f"{module}.{alias.name}"
                    self.names.add(f"{module}.{alias.name}")
            case ast.Module(body=body) | ast.FunctionDef(body=body) | ast.ClassDef(body=body):
                first = body[0] if body else None
                if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                    self._docstrings.add(id(first.value))
            case ast.Assign(targets=targets, value=value):
                if _has_peer(value):
                    self._peers |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
                for target in targets:
                    if isinstance(target, ast.Name):
                        self._constants.setdefault(target.id, []).extend(_strings_of(value))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                self._constants.setdefault(name, []).extend(_strings_of(value))
            case _:
                pass

    def _read(self, node: ast.AST) -> None:
        """Second pass: names, calls of builders, Triton kernels, devices."""
        match node:
            case ast.Name() | ast.Attribute():
                self.names.add(self.dotted(node))
                self._note_peer(node)
            case ast.Constant(value=str(text)) if id(node) not in self._docstrings:
                self._strings.append(text)
                if _DEVICE.match(text):
                    self.device_lines.append(node.lineno)
            case ast.Call(func=function):
                name = self.dotted(function)
                if _BUILDERS.search(name):
                    self._built += [*node.args, *(keyword.value for keyword in node.keywords)]
                if name.endswith("inline_asm_elementwise"):
                    arguments = [*node.args, *(k.value for k in node.keywords if k.arg == "asm")]
                    self.ptx += [text for argument in arguments for text in _strings_of(argument)]
            case ast.FunctionDef(name=name, decorator_list=decorators):
                used = [self.dotted(d.func if isinstance(d, ast.Call) else d) for d in decorators]
                if any(re.search(r"^triton\.(jit|autotune|heuristics)$|\bgluon\.jit$", text) for text in used):
                    self.triton_kernels.append(name)
            case _:
                pass

    def _note_peer(self, node: ast.Name | ast.Attribute) -> None:
        """A buffer of another rank is copied as a whole (a copy engine may do that), or read in some other way."""
        if isinstance(node, ast.Name):
            peer = node.id in self._peers and isinstance(node.ctx, ast.Load)
        else:
            peer = node.attr in _PEER_BUFFERS
        if peer and id(node) in self._in_copies:
            self.copies_peers = True
        elif peer and (isinstance(node, ast.Name) or id(node) not in self._in_bindings):
            self.uses_peers = True

    def dotted(self, node: ast.AST) -> str:
        """ "torch.distributed.all_reduce" for ``dist.all_reduce``; ".get_buffer" for ``f(x).get_buffer``."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name):
            root = self.aliases.get(node.id)
            # Attributes of a local name are looked for by the attribute, those of a module by the whole path.
            parts.append(root or node.id)
            return ".".join(reversed(parts))
        return "." + ".".join(reversed(parts)) if parts else ""


def _copied(node: ast.AST) -> ast.expr | None:
    """The whole call if it is ``a.copy_(b)``."""
    match node:
        case ast.Call(func=ast.Attribute(attr="copy_")):
            return node
        case _:
            return None


def _has_peer(expression: ast.expr) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr in _PEER_BUFFERS for n in ast.walk(expression))


def _strings_of(expression: ast.expr) -> list[str]:
    return [n.value for n in ast.walk(expression) if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def _is_code(text: str) -> bool:
    """More than a name, a flag or a path."""
    return any(mark in text for mark in "{;")


def merged(static: Scan, confirmed: Iterable[str]) -> tuple[str, ...]:
    """Labels of a submission: those that a run has confirmed as they are, the rest of the source's with "(static)"."""
    seen = set(confirmed)
    labels = [label if label in seen else f"{label}{STATIC}" for label in ORDER if label in seen | static.labels]
    return tuple(labels)
