"""Collectives: the primitives of torch.distributed, alone."""
