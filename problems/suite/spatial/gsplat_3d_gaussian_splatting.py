"""Distributed 3-D Gaussian splatting: project own Gaussians to the cameras of all ranks, hand them to the owners.

Legend: n_r Gaussians of rank r, C cameras per rank, c colour channels, W ranks, g a camera of all W C, owned by rank
g // C; w, h image width and height; V, K a camera's pose and intrinsics.

    Sigma = A A^T, A = R diag(scales), R the rotation of quats / |quats|                                          (3, 3)
    m = V_R mean + V_t;  (u, v) = (K[:2] m) / z, z = m[2]
    J = [[fx/z, 0, -fx x/z^2], [0, fy/z, -fy y/z^2]], where x/z is m[0]/z kept within
        [-cx/fx - 0.15 w/fx, (w-cx)/fx + 0.15 w/fx], and y/z likewise
    cov = J V_R Sigma V_R^T J^T + eps2d I;  conic = (cov11, -cov01, cov00) / max(det cov, 1e-10)
    radius = ceil(3.33 sqrt(diagonal of cov)) where near < z < far and the box around (u, v) touches the image, else 0
    rank d receives all (camera, Gaussian) of its cameras with both radii > 0, by source rank, camera and Gaussian
    gaussian_ids = index on the source + n_0 + ... + n_{d-1}, d the *destination*; camera_ids = index among d's cameras
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import List, Tuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from problems.suite.base import Args, Case, Close, Exact, Expected, Leaf, Problem, RankCost, Rng, Rule, wide
from problems.suite.costs import all_to_all_cost, element_size
from problems.suite.families.exchange import index_bytes
from problems.suite.families.gaussians import View, random_camera, random_gaussians, view
from problems.suite.golden import sin_rule
from problems.suite.shapes import jitter

CHANNELS = 3


def inputs(case: Case, rng: Rng) -> list[Args]:
    """n + 37 r Gaussians, half of them in view, and cameras that differ from rank to rank; always float32.

    No Gaussian is so near to an edge or to the next radius that rounding decides; in bf16 it would for one in forty.
    The published inputs have equal cameras that see everything. "planes": near and far planes that cut; "cameras": one
    more camera per rank; "blurred": eps2d 3.
    """
    W = case.world_size
    C = case["C"] + (1 if case.draw == "cameras" else 0)
    cameras = [torch.stack([random_camera(rng, r, r * C + c) for c in range(C)]) for r in range(W)]
    focal = 0.8 * min(case["w"], case["h"])
    K = torch.tensor([[focal, 0, case["w"] / 2], [0, focal, case["h"] / 2], [0, 0, 1]])
    shared: Args = {
        "Ks": K.repeat(C, 1, 1),
        "image_width": case["w"],
        "image_height": case["h"],
        "eps2d": 3.0 if case.draw == "blurred" else 0.3,
        "near_plane": 1.5 if case.draw == "planes" else 0.01,
        "far_plane": 4.0 if case.draw == "planes" else 1e10,
        "camera_model": "pinhole",
    }
    everywhere = list(torch.cat(cameras))
    ranks: list[Args] = []
    for r in range(W):
        gaussians = random_gaussians(rng, r, shared, everywhere, case["n"] + 37 * r, CHANNELS)
        ranks.append({**gaussians, "viewmats": cameras[r], **shared, "Ks": shared["Ks"].clone()})
    return ranks


def covariances(quats: Tensor, scales: Tensor) -> Tensor:
    """Covariance of every Gaussian: (n, 3, 3)."""
    w, x, y, z = F.normalize(quats, dim=-1, eps=1e-12).unbind(-1)
    rows = [
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    A = torch.stack(rows, dim=-1).view(-1, 3, 3) * scales.unsqueeze(1)
    return A @ A.transpose(1, 2)


def project(
    means: Tensor, Sigma: Tensor, V: Tensor, K: Tensor, width: int, height: int, eps2d: float, near: float, far: float
) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
    """Radii (cameras, n, 2), centres (cameras, n, 2), depths (cameras, n) and conics (cameras, n, 3)."""
    Q = V[:, None, :3, :3]
    m = (Q @ means.unsqueeze(-1)).squeeze(-1) + V[:, None, :3, 3]
    covariance = Q @ Sigma @ Q.transpose(-1, -2)
    z = m[..., 2]
    fx, fy, cx, cy = (K[:, i, j].unsqueeze(1) for i, j in ((0, 0), (1, 1), (0, 2), (1, 2)))
    margin_x, margin_y = 0.3 * (0.5 * width / fx), 0.3 * (0.5 * height / fy)
    x = z * torch.clamp(m[..., 0] / z, -(cx / fx + margin_x), (width - cx) / fx + margin_x)
    y = z * torch.clamp(m[..., 1] / z, -(cy / fy + margin_y), (height - cy) / fy + margin_y)
    zero = torch.zeros_like(z)
    J = torch.stack([fx / z, zero, -fx * x / z**2, zero, fy / z, -fy * y / z**2], dim=-1).view(*z.shape, 2, 3)
    cov = J @ covariance @ J.transpose(-1, -2)
    centres = (K[:, None, :2] @ m.unsqueeze(-1)).squeeze(-1) / z.unsqueeze(-1)
    a, b, c, d = cov[..., 0, 0] + eps2d, cov[..., 0, 1], cov[..., 1, 0], cov[..., 1, 1] + eps2d
    det = (a * d - b * c).clamp(min=1e-10)
    conics = torch.stack([d / det, -(b + c) / 2 / det, a / det], dim=-1)
    radii = torch.ceil(3.33 * torch.sqrt(torch.stack([a, d], dim=-1)))
    low, high = centres + radii, centres - radii
    inside = (low > 0).all(-1) & (high[..., 0] < width) & (high[..., 1] < height)
    valid = (z > near) & (z < far) & inside
    return torch.where(valid.unsqueeze(-1), radii, 0).to(torch.int32), centres, z, conics


def solution(
    means: Tensor,
    quats: Tensor,
    scales: Tensor,
    opacities: Tensor,
    colors: Tensor,
    viewmats: Tensor,
    Ks: Tensor,
    image_width: int,
    image_height: int,
    eps2d: float = 0.3,
    near_plane: float = 0.01,
    far_plane: float = 1e10,
    camera_model: str = "pinhole",
) -> Tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    if camera_model != "pinhole":
        raise ValueError(f"camera model {camera_model!r}: only pinhole is supported")
    W, C, device = dist.get_world_size(), len(viewmats), means.device
    counts = torch.empty(W, dtype=torch.int32, device=device)
    dist.all_gather_into_tensor(counts, torch.tensor([len(means)], dtype=torch.int32, device=device))
    own = torch.cat([viewmats.flatten(1), Ks.flatten(1)], dim=1)
    cameras = own.new_empty((W * C, 25))
    dist.all_gather_into_tensor(cameras, own)
    V, K = cameras[:, :16].view(-1, 4, 4), cameras[:, 16:].view(-1, 3, 3)

    planes = (near_plane, far_plane)
    radii, centres, depths, conics = project(
        means, covariances(quats, scales), V, K, image_width, image_height, eps2d, *planes
    )
    camera, gaussian = (radii > 0).all(dim=-1).nonzero(as_tuple=True)  # camera-major
    owner = camera // C
    send_counts = torch.bincount(owner, minlength=W)
    receive_counts = torch.empty_like(send_counts)
    dist.all_to_all_single(receive_counts, send_counts)
    send_sizes, receive_sizes = torch.stack([send_counts, receive_counts]).tolist()

    offsets = counts.cumsum(0) - counts  # of the destination, as in the original
    at = (camera, gaussian)
    geometry = [centres[at], depths[at].unsqueeze(1), conics[at], opacities[gaussian].unsqueeze(1), colors[gaussian]]
    sent = (radii[at], torch.cat(geometry, dim=1), torch.stack([camera % C, gaussian + offsets[owner]], dim=1))
    received: List[Tensor] = []
    for rows in sent:
        received.append(rows.new_empty((sum(receive_sizes), rows.shape[1])))
        dist.all_to_all_single(received[-1], rows, receive_sizes, send_sizes)
    sizes = [2, 1, 3, 1, colors.shape[1]]
    means2d, depth, conic, opacity, color = (part.contiguous() for part in torch.split(received[1], sizes, dim=1))
    camera_ids, gaussian_ids = received[2].t().contiguous()
    return camera_ids, gaussian_ids, received[0], means2d, depth.squeeze(1), conic, opacity.squeeze(1), color


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    counts = [len(a["means"]) for a in args]
    expected = []
    for d, owner in enumerate(args):
        parts: list[tuple[torch.Tensor, ...]] = []
        for source in args:
            for c, seen in enumerate(_views(source, owner)):
                at = seen.kept.nonzero().flatten()
                ids = at + sum(counts[:d])
                geometry = (seen.radii[at], seen.means2d[at], seen.depths[at], seen.conics[at])
                parts.append((torch.full_like(at, c), ids, *geometry, source["opacities"][at], source["colors"][at]))
        columns = [torch.cat(column) for column in zip(*parts, strict=True)]
        dtypes = [torch.int64, torch.int64, torch.int32, *[owner["means"].dtype] * 5]
        rules: list[Rule] = [
            Exact(),
            Exact(),
            Exact(),
            Close(rms=2e-6),
            Close(rms=2e-6),
            Close(rms=2e-5),
            Exact(),
            Exact(),
        ]
        leaves = [Leaf(x, dtype, rule) for x, dtype, rule in zip(columns, dtypes, rules, strict=True)]
        expected.append(Expected(tuple(leaves)))
    return expected


def _views(source: Args, owner: Args) -> list[View]:
    """The Gaussians of one rank as the cameras of another see them."""
    pairs = zip(owner["viewmats"], owner["Ks"], strict=True)
    return [view(source, wide(camera), K) for camera, K in pairs]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """250 flops for each Gaussian and camera; attributes read and received rows written once.

    Link: cameras to all ranks; for each source and destination, which Gaussians are seen, as packed indices or one bit
    each, and of these either the attributes, 11 + c numbers, or for each camera that sees one its centre, depth, conic
    and 16-bit radii, and once its opacity and colour. ``one_way``: with multicast attributes leave a rank once.
    """
    W, C, e = len(args), len(args[0]["viewmats"]), element_size(args[0]["means"].dtype)
    channels = args[0]["colors"].shape[1]
    sizes, out_once, rows = [[0.0] * W for _ in range(W)], [0.0] * W, [0] * W
    for s, source in enumerate(args):
        n, anywhere = len(source["means"]), torch.zeros(len(source["means"]), dtype=torch.bool)
        for d, owner in enumerate(args):
            kept = torch.stack([seen.kept for seen in _views(source, owner)])
            pairs, seen = int(kept.sum()), int(kept.any(dim=0).sum())
            rows[d] += pairs
            which = min(n / 8, seen * index_bytes(n))
            projected = pairs * (6 * e + 4) + seen * (1 + channels) * e + which * C
            sizes[s][d] = 25.0 * C * e + min(seen * (11 + channels) * e + which, projected)
            if s != d:
                anywhere |= kept.any(dim=0)
        out_once[s] = 25.0 * C * e + int(anywhere.sum()) * (11 + channels) * e + min(n / 8, n * index_bytes(n))
    links = all_to_all_cost(sizes, flops={}, hbm=[0.0] * W)
    ranks = []
    for r, (a, link) in enumerate(zip(args, links, strict=True)):
        n = len(a["means"])
        hbm = float(n * (11 + channels) * e + rows[r] * (24 + (7 + channels) * e))
        floor = max(link.received, min(link.sent, out_once[r]))
        ranks.append(RankCost({"fp32": 250.0 * n * W * C}, hbm, link.sent, link.received, one_way=floor))
    return ranks


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("n", "w", "h"), keep=("C",))


def blank(args: Args) -> Args:
    """The same cameras; Gaussians far behind them."""
    return {**args, "means": torch.full_like(args["means"], -1000.0)}


def golden_inputs(name: str, world_size: int) -> list[Args]:
    """20 + 2 r Gaussians and one camera per rank, turned by a tenth of a radian from rank to rank."""
    ranks: list[Args] = []
    for r in range(world_size):
        n = 20 + 2 * r
        i = torch.arange(n, dtype=torch.float64)
        phases = (0.37 * i + 1.3 * r, 0.83 * i + 1.3 * r + 0.11, 1.91 * i + 1.3 * r + 0.22)
        x, y, z = (torch.sin(phase) for phase in phases)
        c, s = torch.cos(torch.tensor(0.1 * r)).item(), torch.sin(torch.tensor(0.1 * r)).item()
        camera = [[c, 0, s, 0.2 * r], [0, 1, 0, -0.1 * r], [-s, 0, c, 0.3 * r], [0, 0, 0, 1]]
        ranks.append(
            {
                "means": torch.stack([4 * x, 4 * y, 2 + 2.2 * z], dim=1).float(),
                "quats": sin_rule([n, 4], rank=r, k=1),
                "scales": sin_rule([n, 3], rank=r, k=2, scale=0.2, offset=0.3),
                "opacities": sin_rule([n], rank=r, k=3, scale=0.4, offset=0.5),
                "colors": sin_rule([n, 3], rank=r, k=4, scale=0.5, offset=0.5),
                "viewmats": torch.tensor([camera]),
                "Ks": torch.tensor([[[50.0, 0, 32], [0, 45, 24], [0, 0, 1]]]),
                "image_width": 64,
                "image_height": 48,
                "eps2d": 0.3,
                "near_plane": 0.01,
                "far_plane": 1e10,
                "camera_model": "pinhole",
            }
        )
    return ranks


PROBLEM = Problem(
    id=61,
    slug="gsplat_3d_gaussian_splatting",
    title="Distributed 3-D Gaussian splatting: project, then redistribute to camera owners",
    type="spatial",
    also=("data",),
    domain="vision",
    stage="forward",
    origin="nerfstudio gsplat: rasterization(distributed=True), packed projection",
    difficulty=5,
    statement=(
        "Every rank holds Gaussians (means, quaternions w x y z of any length, scales, opacities, colours; their "
        "number differs from rank to rank) and C cameras (world-to-camera matrices `viewmats` (C, 4, 4), intrinsics "
        "`Ks` (C, 3, 3)), the same C everywhere. Every Gaussian is projected to the cameras of all ranks by the "
        "equations above, in the dtype of the inputs; a pair of camera and Gaussian is kept if both its radii are "
        "positive. Radii are zero unless near_plane < z < far_plane and u + r_x > 0, u - r_x < width, v + r_y > 0, v - "
        "r_y < height; comparisons with NaN are false. The clamp of x/z and y/z serves the Jacobian only.\n\nThe "
        "result on a rank is the kept pairs of its own cameras, ordered by source rank, camera and Gaussian, as a "
        "tuple of eight tensors: `camera_ids` int64, counted among the own cameras; `gaussian_ids` int64, the index on "
        "the source plus the number of Gaussians on all ranks before the **destination** (not the source: ids of "
        "different sources may coincide, as in the original); `radii` (nnz, 2) int32; centres (nnz, 2); depths; conics "
        '(nnz, 3); opacities; colours (nnz, c). `camera_model` other than "pinhole" is a ValueError.'
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"n": 1024, "w": 512, "h": 512, "C": 1},
    cpu_sizes={"n": 1000, "w": 64, "h": 64, "C": 1},
    check_sizes={"n": 120, "w": 64, "h": 48, "C": 2},
    hidden_sizes=hidden_sizes,
    hidden_property="numbers of Gaussians and image sizes are odd",
    draws={
        "cameras": "structured: one more camera per rank",
        "planes": "structured: near and far planes that cut many Gaussians off",
        "blurred": "structured: a ten times larger eps2d",
    },
    replicated=("Ks",),
    blank=blank,
    golden_inputs=golden_inputs,
    run_dtypes=(torch.float32,),
    communication=(
        "all_gather of the number of Gaussians\nall_gather of the cameras, (C, 25)\nall_to_all_single of W counts\n"
        "all_to_all_single with sizes: radii, int32\nall_to_all_single with sizes: centres, depths, conics, opacities, "
        "colours\nall_to_all_single with sizes: ids, int64"
    ),
    hazards=(
        "What is kept depends on the data, and so do all sizes.",
        "Gaussian ids are shifted by the destination's offset, a quirk of the original.",
        "A radius is rounded up: inputs are drawn so that float32 rounding does not decide, bf16 would.",
        "Sending attributes and projecting at the destination may be cheaper than sending projected rows.",
    ),
)
