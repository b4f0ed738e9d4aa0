"""Follows a bash script without running it: the values of its variables, and the commands that it reaches.

This package does not know what a script is for. The caller passes in what a command means and which variables are set
from outside:

    walker = Walker(parse(ScriptText(data, "job.sh")), STATEMENTS, on_command, preset)
    walker.walk()

A script passes through the modules from left to right, and each imports only from its left:

    value <- arith, merge, split <- syntax <- parser/ <- state <- walker <- params, expand
          <- paths <- assign, conditions <- builtins, loops, redirect <- statements

* `value`: texts, and the known values of variables, each part with its place
* `arith`, `merge`, `split`: arithmetic, values after branches, the splitting of words
* `syntax`: the tree of a script; `parser/` builds it, and is the only part that knows tree-sitter
* `state`, `walker`: the variables, and the path through the statements
* `params`, `expand`: the expansion of words
* `paths`: other files' locations relative to the script's folder
* `assign` to `redirect`: the effects of each kind of statement; `statements` is the table of all kinds
"""
