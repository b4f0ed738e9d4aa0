"""Reads a text into our syntax tree. Nothing outside this folder knows tree-sitter or where its grammar errs.

The imports go script -> compound -> commands -> tree -> words -> dollar. The grammar (0.23 to 0.25) reads some scripts
differently from bash, and all of that is corrected here:

* a character beyond U+FFFF may crash the process: `script.narrow`
* `A=1 B=2` at a line's end is joined with the next line: `script._swallowed_ends`, `commands._own_assignments`
* `$x` is plain text in some places: `dollar.text`
* a backslash at a line's end is a blank, and `$A/$B-$C` is two words: `words.Words.groups`
* in a string, the blanks before an expansion are a part of it: `words.Words.start`
* `((A > 4))` is the name of a command (0.23): `commands.command`; `! ((A > 4))` is two subshells: `compound.negation`
* `a = b && -n c` in a condition is `a = (b && -n c)`: `commands.condition`
* what follows `<<EOF` on its line is a part of the redirection: `compound.redirected`
"""
