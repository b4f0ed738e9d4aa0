"""The examples of each ASSUME rule, executed."""

from support.rules import Examples as TestExamples

__all__ = ["TestExamples"]
