"""The examples of each PIPE rule, executed."""

from support.rules import ExamplesOnFacts as TestExamples

__all__ = ["TestExamples"]
