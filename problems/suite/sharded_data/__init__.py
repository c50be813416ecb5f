"""Sharded data parallelism: parameters, gradients or optimizer states are split over the ranks."""
