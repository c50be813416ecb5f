"""The command line ``pkb``. Standard library only, so that it runs wherever there is a checkout and Python 3.11."""
