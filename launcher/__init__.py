"""The two commands of the README: ``./run`` (the whole site on one machine) and ``./test`` (every check).

Standard library only, and no import from the other rooms: this package runs before anything is installed.
"""
