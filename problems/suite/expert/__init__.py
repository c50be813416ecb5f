"""Expert parallelism: tokens travel to the ranks that hold their experts and back."""
