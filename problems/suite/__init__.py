"""The suite: 87 multi-GPU workloads as pure PyTorch. Knows nothing of Django or of the evaluator."""

import warnings

# torch says so at import where numpy is absent; the suite does not use numpy.
warnings.filterwarnings("ignore", message="Failed to initialize NumPy", category=UserWarning)
