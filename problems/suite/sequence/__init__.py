"""Sequence parallelism: tokens of one sequence are split over the ranks, attention wants heads split instead."""
