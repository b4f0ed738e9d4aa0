"""Reads launches of every framework into one `Launch`: facts with their origin.

Imports go one way: fact <- facts/ <- forms/ <- dialects/ <- readers/ <- recipes/ <- load. A reader returns what is
written (a `Reading`); `build` turns it into facts, with the framework's defaults; `load` adds what the command line
states.
"""
