"""What is pretended, one module each: what it stands for (`STANDS_FOR`) and what it can't tell (`CANNOT_TELL`).

`install()` of each module puts it in place, before upstream is imported; `late()`, where there is one, afterwards.
"""
