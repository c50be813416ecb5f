"""The suite: 87 multi-GPU workloads as pure PyTorch. Knows nothing of Django or of the evaluator."""
