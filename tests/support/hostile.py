"""Texts and scripts made to be slow or deep: tests read each of them, lab/hostile.py measures how long it takes."""

from __future__ import annotations

from megatron_hcp.launch.fact import Dialect

TEXTS = {
    "open lists": "[" * 4_000_000,
    "open mappings": "{" * 1_000_000,
    "a list in a word": "x=" + "[" * 1_000_000,
    "a long key": "model." * 500_000 + "=1",
    "a long number": "a: " + "9" * 4_000_000,
    "quotes": "'" * 300_000,
    "base 60": "a: " + "1:" * 1_000_000,
    "comments": "# x\n" * 900_000,
    "overrides": "model.a=1\n" * 400_000,
    "a mapping in a word": "model.a={" + "b:1," * 1_000_000 + "}",
    "flags": "--x 1\n" * 600_000,
    "keys": "a:\n" + "".join(f" k{i}: v\n" for i in range(120_000)),
}
SLOW_TEXTS = frozenset(("quotes", "keys"))
READ_TEXTS_AS: tuple[tuple[str, Dialect | None], ...] = (("x.yaml", None), ("x.txt", "bridge"), ("x.txt", "verl"))
"""(name of the file, dialect that is forced): how each text is read."""

LAUNCH = "torchrun pretrain_gpt.py --num-layers 2 "

SCRIPTS = {
    "doubled words": "X=aaaaaaaaaa\n" + 'X="$X$X"\n' * 200 + LAUNCH + "--foo $X",
    "doubled arrays": "A=(a b)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 200 + LAUNCH + '"${A[@]}"',
    "nested loops": "for a in {1..64}; do for b in {1..64}; do for c in {1..64}; do X=$a; done; done; done\n" + LAUNCH,
    "an endless loop": "while true; do X=$X; done\n" + LAUNCH,
    "a function that calls itself": "f() { f; f; }\nf\n" + LAUNCH,
    "eval of itself": 'X=\'eval "$X"\'\neval "$X"\n' + LAUNCH,
    "open conditions": "if foo; then X=1\n" * 2000 + "fi\n" * 2000 + LAUNCH,
    "open substitutions in a word": LAUNCH + "$(" * 20000,
    "open subshells": "(" * 100000,
    "open defaults": "X=" + "${a:-" * 30000,
    "quoted open substitutions": '"$(' * 50000,
    "open arithmetic": "X=$((" + "(" * 5000,
    "a long sum": "X=$((1" + "+1" * 50000 + "))\n" + LAUNCH,
    "a chain of and and or": "foo" + " && foo || bar" * 5000,
    "srun before srun": "srun " * 20000 + LAUNCH,
    "ray job submit before itself": "ray job submit -- " * 10000 + LAUNCH,
    "here-documents": "cat <<EOF > a.sh\n" * 3000,
    "patterns that backtrack": "X="
    + "a" * 3000
    + "\nY=${X%%*a*a*a*b}\n[[ $X == *a*a*a*b ]] && Z=1\n[[ $X =~ (a+)+b ]] && Z=2\n"
    + LAUNCH,
    "a long word beyond ASCII": "é" * 300000 + "\n" + LAUNCH,
    "words beyond ASCII": LAUNCH + "é --a 1 " * 30000,
}
