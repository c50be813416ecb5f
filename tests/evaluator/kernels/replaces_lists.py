# expect: correct
# problem: 63
import torch
import torch.distributed as dist


def solution(H, error, weights, P, kalman_lambda, kalman_nue=0.9987):
    total = sum(kalman_lambda + h.T @ p @ h for h, p in zip(H, P))
    dist.all_reduce(total)
    gains = [p @ h for h, p in zip(H, P)]
    weights[:] = [w + error / total * k for w, k in zip(weights, gains)]
    P[:] = [(p - k @ k.T / total) / kalman_lambda for p, k in zip(P, gains)]
    return gathered(weights), P, torch.tensor(kalman_nue * kalman_lambda + 1 - kalman_nue, dtype=torch.float64)


def gathered(blocks):
    lengths = [None] * dist.get_world_size()
    for rank in range(len(lengths)):
        count = torch.tensor([len(b) for b in blocks] + [0] * (64 - len(blocks)))
        dist.broadcast(count, src=rank)
        lengths[rank] = [n for n in count.tolist() if n]
    result = []
    for rank, sizes in enumerate(lengths):
        flat = torch.cat(blocks) if rank == dist.get_rank() else torch.empty(sum(sizes), 1, dtype=torch.float64)
        dist.broadcast(flat, src=rank)
        result += flat.split(sizes)
    return [block.clone() for block in result]
