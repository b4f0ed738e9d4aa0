"""The examples of each ACCEPT rule, executed."""

from support.rules import Examples as TestExamples

__all__ = ["TestExamples"]
