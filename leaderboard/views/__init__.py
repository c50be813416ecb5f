"""Views: typed parameters, one access function, one verb or one reading, one response. Rules stand elsewhere."""
