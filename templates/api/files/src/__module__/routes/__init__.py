"""The routes, one module for each kind of thing.

Each of them waits for the database, so each is declared with `blocking=True`: it is called in a
thread, and other requests go on meanwhile.
"""
