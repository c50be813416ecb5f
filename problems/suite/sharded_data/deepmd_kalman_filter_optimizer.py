"""Layer-wise Kalman filter optimiser step with blocks distributed over the ranks, as in DeePMD-kit; float64 throughout.

Legend: block i of a rank has weights w_i, gradients H_i (n_i, 1) and a covariance P_i (n_i, n_i); every rank has blocks
and an error of its own; W ranks; lam kalman_lambda, nue kalman_nue.

    A = 1 / sum over all blocks of all ranks of (lam + H_i^T P_i H_i)
    K_i = P_i H_i,    w_i <- w_i + A error K_i,    P_i <- (P_i - A K_i K_i^T) / lam
    result: the new weights of all ranks in rank order, the own new P, and nue lam + 1 - nue

The entries of the lists ``weights`` and ``P`` are replaced by new tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import List, Tuple

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.families.uneven_gather import uneven_gather
from problems.suite.golden import sin_rule
from problems.suite.shapes import jitter

DTYPE = torch.float64


def inputs(case: Case, rng: Rng) -> list[Args]:
    """P = 1 + U U^T / 8 with 8 normal columns; H of norm 2, so H^T P H is about 8; weights standard normal.

    Errors of about 20 W with alternating sign: weights move by 0.1 to 0.9, which the published inputs keep near 1e-3.
    """
    W = case.world_size
    lam = 0.9 + 0.09 * float(rng.uniform(None, ()))
    ranks: list[Args] = []
    for r in range(W):
        sizes = _block_sizes(case, r)
        columns = [0.0 if case.draw == "identity" else rng.normal(r, (n, 8)).to(DTYPE) for n in sizes]
        error = (-1.0) ** r * 20.0 * W * (0.5 + rng.uniform(r, ()).to(DTYPE))
        ranks.append(
            {
                "H": [rng.normal(r, (n, 1), std=2.0 * n**-0.5).to(DTYPE) for n in sizes],
                "error": torch.zeros_like(error) if case.draw == "met" and r == 0 else error,
                "weights": [rng.normal(r, (n, 1)).to(DTYPE) for n in sizes],
                "P": [_covariance(u, n) for u, n in zip(columns, sizes, strict=True)],
                "kalman_lambda": lam,
                "kalman_nue": 0.9 if case.draw == "nue" else 0.9987,
            }
        )
    return ranks


def _covariance(columns: torch.Tensor | float, n: int) -> torch.Tensor:
    identity = torch.eye(n, dtype=DTYPE)
    return identity + columns @ columns.t() / 8.0 if isinstance(columns, torch.Tensor) else identity


def _block_sizes(case: Case, r: int) -> list[int]:
    nb, n = case["nb"], case["n"]
    if case.draw == "uneven":
        return [n // 2 + n // 4 * ((r + i) % 3) + i for i in range(nb + r % 2)]
    if case.draw == "lopsided":
        return [n] * nb if r == case.world_size - 1 else [1]
    return [n] * nb


def solution(
    H: List[torch.Tensor],
    error: torch.Tensor,
    weights: List[torch.Tensor],
    P: List[torch.Tensor],
    kalman_lambda: float,
    kalman_nue: float = 0.9987,
) -> Tuple[List[torch.Tensor], List[torch.Tensor], torch.Tensor]:
    lam = torch.tensor(kalman_lambda, dtype=weights[0].dtype, device=weights[0].device)
    error = error.to(lam.dtype)
    total = torch.zeros((1, 1), dtype=lam.dtype, device=lam.device)
    for h, p in zip(H, P, strict=True):
        total += lam + h.t() @ p @ h
    if dist.is_initialized():
        dist.all_reduce(total, op=dist.ReduceOp.SUM)
    A = 1.0 / total
    for i in range(len(weights)):
        K = P[i] @ H[i]
        weights[i] = weights[i] + A * error * K
        P[i] = (1.0 / lam) * (P[i] - A * K @ K.t())
    weights_all = gather_blocks(weights) if dist.is_initialized() else list(weights)
    return weights_all, P, kalman_nue * lam + 1.0 - kalman_nue


def gather_blocks(blocks: List[torch.Tensor]) -> List[torch.Tensor]:
    """Column vectors of all ranks in rank order; their numbers and sizes may differ from rank to rank."""
    sizes = torch.tensor([block.shape[0] for block in blocks], device=blocks[0].device)
    number = torch.tensor([len(blocks)], device=sizes.device)
    numbers = number.new_empty(dist.get_world_size())
    dist.all_gather_into_tensor(numbers, number)
    sizes_of = [of_rank.tolist() for of_rank in gather_uneven(sizes, numbers.tolist())]
    flat = torch.cat([block.reshape(-1) for block in blocks])
    shares = gather_uneven(flat, [sum(of_rank) for of_rank in sizes_of])
    result: List[torch.Tensor] = []
    for share, of_rank in zip(shares, sizes_of, strict=True):
        result += [piece.clone().view(-1, 1) for piece in share.split_with_sizes(of_rank)]
    return result


def gather_uneven(own: torch.Tensor, lengths: List[int]) -> List[torch.Tensor]:
    """Vectors of all ranks, of the given lengths, in rank order; shorter ones travel filled up to the longest."""
    longest = max(lengths)
    gathered = own.new_empty(len(lengths) * longest)
    dist.all_gather_into_tensor(gathered, F.pad(own, (0, longest - len(own))))
    return [share[:n] for share, n in zip(gathered.view(-1, longest), lengths, strict=True)]


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    lam = args[0]["kalman_lambda"]
    gains = [[wide(p) @ wide(h) for h, p in zip(a["H"], a["P"], strict=True)] for a in args]
    variances = [
        lam + (wide(h) * gain).sum()
        for a, own in zip(args, gains, strict=True)
        for h, gain in zip(a["H"], own, strict=True)
    ]
    A = 1.0 / torch.stack(variances).sum()
    moved = [
        [Leaf(wide(w) + A * a["error"] * gain, DTYPE) for w, gain in zip(a["weights"], own, strict=True)]
        for a, own in zip(args, gains, strict=True)
    ]
    everything = [leaf for own in moved for leaf in own]
    expected = []
    for a, own, gain_of in zip(args, moved, gains, strict=True):
        P = [
            Leaf((wide(p) - A * torch.outer(g[:, 0], g[:, 0])) / lam, DTYPE)
            for p, g in zip(a["P"], gain_of, strict=True)
        ]
        nue = a["kalman_nue"]
        following = Leaf(torch.tensor(nue * lam + 1.0 - nue, dtype=DTYPE), DTYPE)
        expected.append(Expected((everything, P, following), mutated={"weights": own, "P": P}))
    return expected


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """2 n² flops for P H and 3 n² for the rank-one update of each block, in float64; P in and out, all weights out.

    Link: an all-gather of the weights and an all-reduce of one number; the sizes of blocks are not counted.
    """
    W = len(args)
    sizes = [[w.shape[0] for w in a["weights"]] for a in args]
    scalar = 2.0 * (W - 1) / W * 8
    links = uneven_gather([8.0 * sum(own) for own in sizes])
    ranks = []
    for own, link in zip(sizes, links, strict=True):
        squares = float(sum(n * n for n in own))
        hbm = 16.0 * squares + 8.0 * (2 * sum(own) + sum(map(sum, sizes)) + sum(own) + 2)
        floor = link.floor + min(scalar, 8.0)
        ranks.append(RankCost({"fp64": 5.0 * squares}, hbm, link.sent + scalar, link.received + scalar, one_way=floor))
    return ranks


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("n",), keep=("nb",))


def golden_inputs(name: str, world_size: int) -> list[Args]:
    ranks: list[Args] = []
    for r in range(world_size):
        s = [sin_rule([4, 1], rank=r, k=3 + 0.05 * b, dtype=DTYPE) for b in range(2)]
        ranks.append(
            {
                "H": [sin_rule([4, 1], rank=r, k=0.05 * b, dtype=DTYPE) for b in range(2)],
                "error": sin_rule([], rank=r, k=1, scale=5.0, dtype=DTYPE),
                "weights": [sin_rule([4, 1], rank=r, k=2 + 0.05 * b, dtype=DTYPE) for b in range(2)],
                "P": [torch.eye(4, dtype=DTYPE) + 0.5 * x @ x.t() for x in s],
                "kalman_lambda": 0.98,
                "kalman_nue": 0.9987,
            }
        )
    return ranks


PROBLEM = Problem(
    id=63,
    slug="deepmd_kalman_filter_optimizer",
    title="Layer-wise Kalman filter optimizer step with distributed blocks",
    type="sharded_data",
    also=("data",),
    domain="scientific",
    stage="optimizer",
    origin="DeePMD-kit LKF optimizer (update step)",
    difficulty=4,
    statement=(
        "Everything is float64, whatever the run dtype. Every rank has blocks of its own, whose number and sizes may "
        "differ from rank to rank: lists `H` and `weights` of columns (n, 1) and `P` of symmetric positive definite "
        "(n, n), and a scalar `error` of its own. A is one over the sum, over all blocks of all ranks, of "
        "`kalman_lambda` + H^T P H. For each block with K = P H the weights become w + A · error · K, with the own "
        "rank's error, and P becomes (P - A K K^T) / kalman_lambda. The result is the tuple of the list of new weights "
        "of all ranks, in rank and block order, (n, 1) each; the list of the own new P; and the scalar tensor "
        "`kalman_nue` · kalman_lambda + 1 - kalman_nue. The entries of the lists `weights` and `P` that were passed "
        "in are to be the new values as well: the reference replaces them by new tensors and returns the list P itself."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"nb": 8, "n": 1024},
    cpu_sizes={"nb": 2, "n": 192},
    check_sizes={"nb": 2, "n": 40},
    hidden_sizes=hidden_sizes,
    hidden_property="blocks have an odd number of rows",
    draws={
        "uneven": "structured: numbers and sizes of blocks differ from rank to rank",
        "lopsided": "structured: one block of a single weight on every rank but the last",
        "identity": "structured: P is the identity, as at the start of training",
        "met": "structured: the error of rank 0 is zero, its weights stay",
        "nue": "structured: kalman_nue is 0.9",
    },
    may_mutate=("weights", "P"),
    replaces=("weights", "P"),
    may_alias=("weights", "P"),
    local_outputs=("output.2",),
    communication=(
        "all_reduce SUM of a (1, 1) float64 number\nall_gather of the numbers and sizes of blocks, int64\n"
        "all_gather of the new weights, filled up to the largest share, in float64"
    ),
    hazards=(
        "P need not be the identity, and K is not H.",
        "Errors differ from rank to rank, and each rank uses its own; lambda is added once for each block.",
        "The lists are changed by the call, so every call needs fresh ones: P grows by 1/lambda each time.",
        "A is known only after the all-reduce, so P is read twice unless it stays on the chip.",
        "Reading the sizes of the other ranks' blocks waits for the device.",
    ),
    golden_inputs=golden_inputs,
    # float64 in every run.
    tolerances=calibrated(bf16=1e-10, fp16=1e-10, fp32=1e-10, fp64=1e-10),
)
