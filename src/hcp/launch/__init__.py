"""Reads launches in every dialect into one `Launch`: facts with their origin.

Imports go one way: fact <- facts/ <- (words/, yaml/, script/) <- read <- load. A reader tells what is written (a
`Reading`); `build` makes the facts, with the defaults of the table; `load` adds what the command line states.
"""
