"""Follows a bash script without running it: what its variables hold, which commands it comes to, with which words.

It does not know what a script is for. Whoever follows one hands in what a command means and which variables are set
from outside:

    walker = Walker(parse(ScriptText(data, "job.sh")), STATEMENTS, on_command, preset)
    walker.walk()

A script goes through the modules from left to right, and each imports only from its left:

    value <- arith, merge, split <- syntax <- parser/ <- state <- walker <- params, expand
          <- paths <- assign, conditions <- builtins, loops, redirect <- statements

* `value`: texts, and the values of variables as far as they are known, each part with its place
* `arith`, `merge`, `split`: arithmetic, values after branches, the splitting of words
* `syntax`: the tree of a script; `parser/` makes it, and alone knows tree-sitter
* `state`, `walker`: the variables, and the way through the statements
* `params`, `expand`: what a word becomes
* `paths`: where other files lie as seen from the script's folder
* `assign` to `redirect`: what single kinds of statements do; `statements` is the table of all kinds
"""
