"""Reads launches of every framework into one `Launch`: facts with their origin.

Imports go one way, as INSIDE in tests/test_layout.py lists: fact <- facts/ <- forms/ <- dialects/ <- readers/ <- build <- load.
written (a `Reading`); `build` turns it into facts, with the framework's defaults; `load` adds what the command line
states.
"""
