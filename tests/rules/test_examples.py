"""The examples of each rule, executed: `pytest tests/rules/test_examples.py -k TP004` for those of one rule."""

from support.rules import Examples as TestExamples

__all__ = ["TestExamples"]
