"""Reads launches of every framework into one `Launch`: facts with their origin.

Imports go one way: fact <- facts/ <- forms/ <- dialects/ <- readers/ <- build <- load; tests/support/tree.py has all of
them. A framework (dialects/) says what its keys are and how it is read; a form (forms/) knows none. A reader returns
what is written (a `Reading`); `build` turns it into facts; `load` adds what the command line states.
"""
