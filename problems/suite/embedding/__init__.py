"""Embedding tables split over the ranks: requests go to the owners, rows come back."""
