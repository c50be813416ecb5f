"""3-D Gaussians seen by pinhole cameras, in float64: draws without borderline cases, and what each camera sees.

A Gaussian with mean m, rotation R (unit quaternion) and scales s has the covariance A A^T, A = R diag(s). A camera with
rotation Q, translation t and intrinsics K maps m to p = Q m + t and, to first order, the covariance to
T T^T + eps I with T = J Q A, J the Jacobian of the projection at p.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from problems.suite.base import Args, Rng, wide

SIGMAS = 3.33  # radius of a Gaussian in standard deviations


@dataclass(frozen=True)
class View:
    """All n Gaussians of one rank as one camera sees them, float64; ``kept`` are those that touch the image."""

    kept: torch.Tensor
    radii: torch.Tensor
    """(n, 2), whole numbers of pixels; meaningful where kept."""
    means2d: torch.Tensor
    depths: torch.Tensor
    conics: torch.Tensor
    borderline: torch.Tensor
    """True where rounding could change ``kept`` or a radius."""


def view(a: Args, camera: torch.Tensor, K: torch.Tensor) -> View:
    """What the camera (4, 4) with intrinsics (3, 3) sees of the Gaussians in the arguments of one rank."""
    Q, t, K = wide(camera)[:3, :3], wide(camera)[:3, 3], wide(K)
    width, height = a["image_width"], a["image_height"]
    fx, fy, cx, cy = (float(x) for x in (K[0, 0], K[1, 1], K[0, 2], K[1, 2]))
    p = wide(a["means"]) @ Q.t() + t
    z = p[:, 2]
    u, v = (p @ K[0]) / z, (p @ K[1]) / z
    # The Jacobian is taken at most 0.3 half images outside of the image.
    x = z * _clamped(p[:, 0] / z, cx, width, fx)
    y = z * _clamped(p[:, 1] / z, cy, height, fy)
    zero = torch.zeros_like(z)
    J = torch.stack([fx / z, zero, -fx * x / z**2, zero, fy / z, -fy * y / z**2], dim=1).view(-1, 2, 3)
    T = J @ Q @ (rotations(a["quats"]) * wide(a["scales"]).unsqueeze(1))
    cov = T @ T.transpose(1, 2) + a["eps2d"] * torch.eye(2, dtype=torch.float64)
    det = (cov[:, 0, 0] * cov[:, 1, 1] - cov[:, 0, 1] ** 2).clamp(min=1e-10)
    conics = torch.stack([cov[:, 1, 1], -cov[:, 0, 1], cov[:, 0, 0]], dim=1) / det.unsqueeze(1)
    exact = SIGMAS * torch.stack([cov[:, 0, 0], cov[:, 1, 1]], dim=1).sqrt()
    radii = exact.ceil()
    edges = torch.stack([u + radii[:, 0], width - u + radii[:, 0], v + radii[:, 1], height - v + radii[:, 1]], dim=1)
    seen = (z > a["near_plane"]) & (z < a["far_plane"])
    planes = torch.stack([z - a["near_plane"], z - min(a["far_plane"], 1e10)], dim=1).abs() < 1e-3
    close = (edges.abs() < 1e-2).any(dim=1) | ((exact - exact.round()).abs() < 1e-3).any(dim=1)
    borderline = (z.abs() < 0.2) | planes.any(dim=1) | (seen & close)
    kept = seen & (edges > 0).all(dim=1) & (radii > 0).all(dim=1)
    return View(kept, radii, torch.stack([u, v], dim=1), z, conics, borderline)


def _clamped(slope: torch.Tensor, centre: float, size: int, focal: float) -> torch.Tensor:
    margin = 0.3 * 0.5 * size / focal
    return slope.clamp(-centre / focal - margin, (size - centre) / focal + margin)


def rotations(quats: torch.Tensor) -> torch.Tensor:
    """Rotation matrices (n, 3, 3) of quaternions (w, x, y, z) of any length, float64."""
    q = wide(quats)
    w, x, y, z = (q / q.norm(dim=1, keepdim=True).clamp(min=1e-12)).unbind(1)
    rows = [
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    return torch.stack(rows, dim=1).view(-1, 3, 3)


def random_camera(rng: Rng, rank: int, number: int) -> torch.Tensor:
    """World to camera (4, 4), float32: turned about the vertical axis by about half a radian at most, and shifted."""
    angle, dx, dy, dz = (0.1 * (rng.uniform(rank, (4,)) - 0.5)).tolist()
    angle += 0.25 * ((number % 5) - 2)
    c, s = math.cos(angle), math.sin(angle)
    x, y, z = 0.2 * ((number % 3) - 1) + dx, 0.1 * (number % 2) + dy, 0.25 * (number % 4) + dz
    return torch.tensor([[c, 0, s, x], [0, 1, 0, y], [-s, 0, c, z], [0, 0, 0, 1]], dtype=torch.float32)


def random_gaussians(rng: Rng, rank: int, shared: Args, cameras: list[torch.Tensor], n: int, channels: int) -> Args:
    """n Gaussians around and in front of the cameras, none of them a borderline case for any camera.

    ``shared``: the image, intrinsics and planes. A fifth of those drawn is left out; a camera sees about half.
    """
    batches: list[Args] = []
    missing = n
    while missing > 0:
        count = 2 * missing
        new = {
            "means": torch.tensor([-4.0, -4.0, -2.0]) + 8.0 * rng.uniform(rank, (count, 3)),
            "quats": rng.normal(rank, (count, 4)),
            "scales": 0.02 + 0.28 * rng.uniform(rank, (count, 3)),
            "opacities": 0.1 + 0.8 * rng.uniform(rank, (count,)),
            "colors": rng.uniform(rank, (count, channels)),
        }
        views = [view({**shared, **new}, camera, shared["Ks"][0]) for camera in cameras]
        clear = (~torch.stack([v.borderline for v in views]).any(dim=0)).nonzero().flatten()[:missing]
        batches.append({name: values[clear] for name, values in new.items()})
        missing -= len(clear)
    return {name: torch.cat([batch[name] for batch in batches]) for name in batches[0]}
