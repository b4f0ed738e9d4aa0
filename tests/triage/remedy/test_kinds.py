"""What each kind of failure asks for: the step names the part that is wrong, and no other."""

import pytest

from megatron_hcp.triage.is_cp_on import CpPlan
from megatron_hcp.triage.read import triage
from megatron_hcp.triage.report import diagnosis_json
from support.logs import write_logs

HEAD = "Traceback (most recent call last):\n"


def _frame(path, line, name, code):
    return f'  File "{path}", line {line}, in {name}\n    {code}\n'


OWN = _frame("/srv/u/run/train.py", 12, "main", "fit(model, batch)")
YAML = OWN + _frame("/v/site-packages/yaml/scanner.py", 579, "fetch_value", "self.get_mark())")
TRITON = OWN + _frame("/v/site-packages/triton/runtime/cache.py", 116, "put", "with open(temp_path, mode) as f:")
SAVE = OWN + _frame("/v/site-packages/torch/serialization.py", 850, "_save", "zip_file.write_record(name, s, n)")
STACK = OWN + _frame("/v/site-packages/torch/utils/data/_utils/collate.py", 272, "f", "return torch.stack(batch, 0)")


def _told(tmp_path, log):
    document = diagnosis_json(triage(write_logs(tmp_path, a_log=log), CpPlan()), None)
    return document["recommendation"]["action"], document["first_failure"]["next"]


@pytest.mark.parametrize(
    ("frames", "said", "named", "unnamed"),
    [
        (
            YAML,
            'yaml.scanner.ScannerError: mapping values are not allowed here\n  in "conf/run.yml", line 32, column 15',
            ["conf/run.yml at line 32"],
            ["--help", "fetch_value"],
        ),
        (
            OWN,
            "requests.exceptions.SSLError: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max "
            "retries exceeded with url: /a (Caused by SSLError(SSLCertVerificationError(1, '[SSL: "
            "CERTIFICATE_VERIFY_FAILED] certificate verify failed: unable to get local issuer certificate')))\"))",
            ["REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"],
            ["a gated model"],
        ),
        (
            OWN,
            "ImportError: /lib64/libstdc++.so.6: version `GLIBCXX_3.4.29' not found (required by /v/flash_attn_2.so)",
            ["GLIBCXX_3.4.29", "newer image"],
            ["for this PyTorch"],
        ),
        (
            OWN,
            "ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header",
            ["numpy<2"],
            ["for this PyTorch"],
        ),
        (OWN, "TypeError: Object of type Tensor is not JSON serializable", ["writes a Tensor as JSON"], ["the data"]),
        (TRITON, "OSError: [Errno 122] Disk quota exceeded", ["TRITON_CACHE_DIR"], ["checkpoint"]),
        (OWN, "OSError: [Errno 28] No space left on device: '/ck/run/a.pt'", ["folder of /ck/run/a.pt"], ["NODE"]),
        (
            SAVE,
            "RuntimeError: [enforce fail at inline_container.cc:424] . unexpected pos 137502848 vs 137502740",
            ["df -h", "checkpoint folder"],
            ["Git LFS"],
        ),
        (
            _frame("/srv/t.py", 3, "main", "print(cfg.launcher.log_dir)"),
            "omegaconf.errors.ConfigAttributeError: Key 'launcher' is not in struct\n    full_key: launcher",
            ["asks for launcher", "--config-name"],
            ["does this version have the key"],
        ),
        (OWN, "AttributeError: module 'hydra' has no attribute 'main'", ["hydra-core"], ["pip show"]),
        (OWN, "RuntimeError: CUDA error: invalid device ordinal", ["as many ranks on a node as it has GPUs"], []),
        (
            OWN,
            "UnicodeDecodeError: 'ascii' codec can't decode byte 0xe2 in position 812: ordinal not in range(128)",
            ["as ascii", "byte 812 (0xe2)", "train.py:12"],
            ["Git LFS"],
        ),
        (
            OWN,
            "json.decoder.JSONDecodeError: Expecting ',' delimiter: line 14 column 5 (char 401)",
            ["line 14, column 5", "Expecting ',' delimiter"],
            ["Git LFS"],
        ),
        (OWN, "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", ["is empty"], ["line 1,"]),
        (
            OWN,
            "RuntimeError: [enforce fail at gloo/transport/tcp/address.cc:62] ss1.ss_family == ss2.ss_family. 2 vs 10",
            ["IPv4", "MASTER_ADDR"],
            ["parallel sizes"],
        ),
        (
            _frame("/srv/t.py", 3, "<module>", "def fit(x: int | None = None):"),
            "TypeError: unsupported operand type(s) for |: 'type' and 'NoneType'",
            ["newer Python"],
            ["is None"],
        ),
        (
            OWN,
            "ImportError: \nATokenizer requires the SentencePiece library but it was not found in your environment.",
            ["pip install SentencePiece"],
            ["the trainer"],
        ),
        (
            OWN,
            "ValueError: No valid checkpoint found in output directory (out/run7)",
            ["nothing to resume from", "out/run7"],
            ["choose one"],
        ),
        (
            OWN,
            "ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
            ["the optimizer's state is of other parameters"],
            ["is the file complete"],
        ),
        (
            OWN,
            "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: "
            "https://huggingface.co/meta-llama/Llama-3.1-8B/resolve/main/config.json",
            ["terms of meta-llama/Llama-3.1-8B", "HF_TOKEN"],
            ["proxy"],
        ),
        (
            OWN,
            "pyarrow.lib.ArrowInvalid: JSON parse error: Column(/output) changed from string to number in row 12",
            ["Column(/output)", "of one type"],
            ["Git LFS"],
        ),
        (
            OWN,
            "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32",
            ["torch.bfloat16 and torch.float32", "in one type"],
            ["hcp check"],
        ),
        (
            OWN,
            "ValueError: Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`",
            ["use_orig_params=True"],
            ["hcp check"],
        ),
        (
            STACK,
            "RuntimeError: stack expects each tensor to be equal size, but got [512] at entry 0 and [498] at entry 3",
            ["[512] at entry 0 and [498]", "collate_fn"],
            [],
        ),
        (
            OWN,
            "deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded used a DP world size of 8 "
            "but the current world size is 4. Automatic adjustment is not supported.",
            ["of 8 ranks, and 4 run now"],
            [],
        ),
        (OWN, "botocore.exceptions.NoCredentialsError: Unable to locate credentials", ["the credentials"], ["values"]),
        (
            OWN,
            "pydantic_core._pydantic_core.ValidationError: 1 validation error for TrainCfg\nlr\n  Input should be a "
            "number [type=float_parsing, input_value='1e-4x', input_type=str]",
            ["correct lr", "TrainCfg", "should be a number"],
            ["input_value", "lr lr"],
        ),
        (
            _frame("/v/site-packages/torch/optim/adamw.py", 40, "__init__", "if not 0.0 <= lr:"),
            "TypeError: '<=' not supported between instances of 'float' and 'str'",
            ["1.0e-4"],
            ["the optimizer:"],
        ),
        (
            OWN,
            "ValueError: num_samples should be a positive integer value, but got num_samples=0",
            ["are empty"],
            ["so that this holds"],
        ),
        (OWN, "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 16.0 GiB", ["more memory"], ["values"]),
        (OWN, "gzip.BadGzipFile: Not a gzipped file (b'{}')", ["of another kind", "train.py:12"], ["values"]),
        (OWN, "tarfile.ReadError: file could not be opened successfully: method gz", ["of another kind"], ["values"]),
        (
            OWN,
            "FileNotFoundError: [Errno 2] No such file or directory: '/ck/run/.metadata'",
            ["nothing to resume from", "/ck/run/.metadata"],
            ["ls -ld"],
        ),
        (
            OWN + _frame("/usr/lib/python3.11/subprocess.py", 1950, "_execute_child", "raise e(n, m)"),
            "FileNotFoundError: [Errno 2] No such file or directory: 'nvidia-smi'",
            ["the program nvidia-smi is not found", "PATH"],
            ["working directory", "mounted"],
        ),
        (OWN, "ValueError: invalid literal for int() with base 10: '12L'", ["'12L' is no int"], ["refuses"]),
        (OWN, "ValueError: could not convert string to float: 'n/a'", ["'n/a' is no float"], ["refuses"]),
        (OWN, "ValueError: 'adamw' is not a valid Opt", ["'adamw' is none of the values of Opt"], ["refuses"]),
        (
            STACK,
            "TypeError: default_collate: batch must contain tensors, numbers, dicts or lists; found <class 'NoneType'>",
            ["a sample of the data has a NoneType"],
            ["state the option"],
        ),
        (
            OWN,
            "KeyError: \"Override 'local-rank' not found in: ['seed', 'output_folder']\"",
            ["Override 'local-rank' not found in"],
            ["has the key"],
        ),
        (
            OWN,
            "AssertionError: Index file doesn't match expected format. Make sure that --dataset-impl is right.",
            ["Make sure that --dataset-impl is right"],
            ["so that this holds"],
        ),
        (
            OWN
            + _frame("/v/pytorch/callbacks/model_checkpoint.py", 368, "_save", "raise MisconfigurationException(m)"),
            "lightning.MisconfigurationException: could not find the key. HINT: Did you call `log('val_loss')`?",
            ["Did you call `log('val_loss')`"],
            ["the checkpoint's folder"],
        ),
        (OWN, "RuntimeError: CUDA error: out of memory", ["does another process"], ["hcp plan"]),
        (OWN, "RuntimeError: Parent directory /none/ck does not exist.", ["mkdir -p /none/ck"], ["refuses"]),
        (
            OWN,
            "AttributeError: 'DistributedDataParallel' object has no attribute 'config'",
            [".module.config"],
            ["another release"],
        ),
        (OWN, "ValueError: too many values to unpack (expected 2)", ["another number of parts"], ["its values"]),
        (OWN, "RuntimeError: CUDA error: no kernel image is available for execution", ["get_arch_list"], []),
    ],
)
def test_a_step_names_the_part_that_is_wrong_and_the_action_is_stop(tmp_path, frames, said, named, unnamed):
    action, steps = _told(tmp_path, f"{HEAD}{frames}{said}\n")
    told = " / ".join(steps)
    assert action == "stop"
    assert [name for name in named if name not in told] == [], told
    assert [name for name in unnamed if name in told] == [], told


@pytest.mark.parametrize(
    ("log", "named"),
    [
        (
            "  Warning  FailedScheduling  61s  default-scheduler  0/12 nodes are available: 12 Insufficient "
            "nvidia.com/gpu. preemption: 0/12 nodes are available: 12 No preemption victims found.\n",
            "12 Insufficient nvidia.com/gpu: the pod starts by itself",
        ),
        (
            '  Warning  FailedMount  9s (x6)  kubelet  MountVolume.SetUp failed for volume "wb" : configmap "wb" not '
            "found\n",
            'configmap "wb" not found',
        ),
        (
            "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n",
            "resources.limits.memory",
        ),
        (
            "srun: error: Unable to create step for job 91823: Invalid generic resource (gres) specification\n",
            "(Invalid generic resource (gres) specification): sinfo",
        ),
    ],
)
def test_what_a_scheduler_cannot_give_is_named_and_a_restart_is_not_advised(tmp_path, log, named):
    action, steps = _told(tmp_path, log)
    assert action == "stop"
    assert len(steps) == 1
    assert named in steps[0]


def test_gpu_memory_that_ran_out_is_not_the_hosts(tmp_path):
    said = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
    assert not any("--mem=0" in step for step in _told(tmp_path, f"{HEAD}{OWN}{said}\n")[1])


def test_an_address_is_no_file_and_a_store_that_does_not_answer_may_do_so_later(tmp_path):
    said = 'EndpointConnectionError: Could not connect to the endpoint URL: "https://s3.example.com/b/shard-12.tar"'
    log = "".join(f"step {step} loss 2.{step}\n" for step in range(1, 9))
    action, steps = _told(tmp_path, f"{log}{HEAD}{OWN}botocore.exceptions.{said}\n")
    assert action == "restart"
    assert not any("//s3" in step for step in steps)


def test_a_sentence_goes_on_behind_an_abbreviation_in_brackets(tmp_path):
    said = "ValueError: No token. Please select one as `pad` `(tok.pad = tok.eos e.g.)` or add one via `tok.add()`."
    assert any(step.endswith("via `tok.add()`") for step in _told(tmp_path, f"{HEAD}{OWN}{said}\n")[1])
