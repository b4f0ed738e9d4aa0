"""The examples of each BATCH rule, executed."""

from support.rules import ExamplesOnFacts as TestExamples

__all__ = ["TestExamples"]
