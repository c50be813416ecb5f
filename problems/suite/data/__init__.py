"""Data parallelism: every rank has its own samples, and results or gradients of all ranks are brought together."""
