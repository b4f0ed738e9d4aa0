"""The examples of each LEN rule, executed."""

from support.rules import ExamplesOnFacts as TestExamples

__all__ = ["TestExamples"]
