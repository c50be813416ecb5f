"""Worked examples of the prompts, one file each, as a submission would be; they need GPUs with peer access to run."""
