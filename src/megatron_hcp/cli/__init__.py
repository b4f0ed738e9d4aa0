"""The click commands: they parse, call and print. No arithmetic and no rules here."""

import gc

gc.set_threshold(400_000)  # few collections: a check makes little garbage, but many trees and modules
