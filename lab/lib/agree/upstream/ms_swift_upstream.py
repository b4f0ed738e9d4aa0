"""ms-swift's own parser on the words of its commands: run by agree/framework_parsers.py, with the checkout's folder.

Run are the dataclasses of `megatron sft`, `pt` and `rlhf` and transformers' HfArgumentParser, as swift/utils/utils.py
`parse_args` does, up to the namespace: `__post_init__` would load the model's config.json. The parts of ms-swift that
say nothing of its arguments (models, templates, data sets, engines) are replaced, and packages that this machine lacks.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any, List, Optional, Union  # noqa: UP035

from stand_ins import stand_in_for

_APART = "dataset hub infer_engine model pipelines rewards rlhf_trainers template trainers tuner_plugin tuners"
_MISSING = (
    "PIL accelerate addict aiohttp attrdict dacite datasets fastapi gradio json_repair mcore_bridge modelscope openai "
    "oss2 pandas peft requests sentencepiece six tensorboard tiktoken triton trl urllib3 uvicorn zstandard"
)


class MsSwift:
    """The parsers of the three commands, each built once."""

    def __init__(self, checkout: str) -> None:
        sys.path.insert(0, checkout)
        import torch._inductor.compile_fx  # before the stand-ins: torch itself asks for triton there
        import torch.utils.flop_counter  # noqa: F401
        import transformers

        stand_in_for(*_MISSING.split(), *(f"swift.{name}" for name in _APART.split()))
        sys.meta_path.insert(0, sys.meta_path.pop())  # ms-swift's own folders come after their stand-ins
        from swift.megatron import arguments
        from swift.utils import utils
        from swift.version import __version__

        self.version: str = __version__
        kinds = {"sft": "Sft", "pt": "Pretrain", "rlhf": "RLHF"}
        with utils._patch_get_type_hints(), _readable_unions():
            self.parsers = {
                name: transformers.HfArgumentParser([getattr(arguments, f"Megatron{kind}Arguments")])
                for name, kind in kinds.items()
            }

    def values(self, program: str, words: list[str]) -> dict[str, Any]:
        """The value of every argument, by its option without dashes."""
        parser = self.parsers[program]
        namespace, _ = parser.parse_known_args(words)
        return {
            option.lstrip("-").replace("-", "_"): getattr(namespace, action.dest)
            for action in parser._actions
            for option in action.option_strings
            if hasattr(namespace, action.dest)
        }


@contextlib.contextmanager
def _readable_unions() -> Iterator[None]:
    """Has HfArgumentParser take `Optional[Union[str, List[str]]]` for the list: it asks isinstance(None, List[str])."""
    from transformers import hf_argparser

    texts = Union[str, List[str], None]  # noqa: UP006, UP007 - compared with upstream's annotation
    hints = hf_argparser.get_type_hints

    def readable(*args: Any, **kwargs: Any) -> dict[str, Any]:
        found = hints(*args, **kwargs)
        return {name: Optional[List[str]] if kind == texts else kind for name, kind in found.items()}  # noqa: UP006, UP045

    hf_argparser.get_type_hints = readable
    try:
        yield
    finally:
        hf_argparser.get_type_hints = hints


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what upstream prints is no answer
    warnings.simplefilter("ignore")
    upstream = MsSwift(sys.argv[1])
    print(json.dumps({"version": upstream.version}), file=answers, flush=True)
    for line in sys.stdin:
        question = json.loads(line)
        said = io.StringIO()
        answer: dict[str, Any] = {}
        try:
            with contextlib.redirect_stderr(said):
                answer["values"] = upstream.values(question["program"], question["words"])
        except SystemExit:
            answer["refusal"] = said.getvalue().strip().rpartition("\n")[2]
        print(json.dumps(answer, default=str), file=answers, flush=True)


if __name__ == "__main__":
    main()
