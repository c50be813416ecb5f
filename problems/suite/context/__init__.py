"""Context parallelism: every rank holds a stretch of a long sequence, for all heads."""
