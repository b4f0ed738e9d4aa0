"""The examples of each MOE rule, executed."""

from support.rules import ExamplesOnFacts as TestExamples

__all__ = ["TestExamples"]
