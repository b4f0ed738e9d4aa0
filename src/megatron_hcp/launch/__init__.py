"""Reads launches in every dialect into one `Launch`: facts with their origin.

Imports go one way: fact <- facts/ <- (words/, yaml/, script/) <- read <- load. A reader returns what is written (a
`Reading`); `build` turns it into facts, with the table's defaults; `load` adds what the command line states.
"""
