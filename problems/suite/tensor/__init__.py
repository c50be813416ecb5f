"""Tensor parallelism: one layer's matrices are split over the ranks."""
