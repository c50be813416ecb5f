"""Breaks a whole site at random: does every submission still get its one verdict? See docs/reliability.md."""
