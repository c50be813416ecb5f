"""What public submissions may import as ``utils``: bound into the sandbox beside the runner."""
