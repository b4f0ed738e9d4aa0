"""Our verdict against upstream's own, on random launches: `python lab agree`.

`compare` judges, `process` talks to a process that runs upstream's code; each upstream has a module that makes its
launches and one that is run beside upstream's code, in that process alone.
"""
