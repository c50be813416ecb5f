"""What the pages show, read from the database as plain data: one module a page, no HTML and no request in it."""
