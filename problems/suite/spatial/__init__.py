"""Spatial parallelism: a field or an image is cut over the ranks, neighbours exchange borders or transposes."""
