"""The examples of each KEY rule, executed."""

from support.rules import Examples as TestExamples

__all__ = ["TestExamples"]
