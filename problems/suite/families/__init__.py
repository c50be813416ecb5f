"""Code that several problems share: draws, costs and helpers of the references, by family."""
