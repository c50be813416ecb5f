"""Forms and filters of the pages."""
