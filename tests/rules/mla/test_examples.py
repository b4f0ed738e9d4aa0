"""The examples of each MLA rule, executed."""

from support.rules import ExamplesOnFacts as TestExamples

__all__ = ["TestExamples"]
