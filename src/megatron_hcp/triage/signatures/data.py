"""What a program says that does not find its data, or runs out of open files while it reads them."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import ERROR, Signature, fault

DATA: tuple[Signature, ...] = (
    fault(
        "data-index",
        r"No such file or directory: '(?P<file>[^']{1,300}(?:_index\.npy|_idx\.npy|index-cache[^']{0,200}|"
        r"GPTDataset_indices[^']{0,200}))'",
        "the dataset index, which one rank builds, is not on this node: its cache folder is not shared: {file}",
        "put --data-cache-path on a file system that all nodes share, or build the index once on every node",
    ),
    fault(
        "data-missing",
        r"One or both of the \.idx and \.bin files cannot be found|^Dataset does not exist: |DatasetNotFoundError|"
        r"EmptyDatasetError|No such file or directory: '[^']{1,300}\.(?:idx|bin|jsonl?|parquet|arrow|tar)(?:\.gz)?'|"
        r"Couldn't find (?:a dataset script|any data file|file) at",
        "the data set is not on this node",
        "Megatron's data path is the name before .idx and .bin; is the folder mounted in the container, on every node?",
        tokens=(ERROR, b"Dataset does not exist"),
    ),
    fault(
        "cache-race",
        r"^FileNotFoundError: (?:\[Errno 2\] )?No such file or directory: (?P<file>'[^']{1,300}\.(?:incomplete|lock)')",
        "two processes wrote the same file of a cache at once: {file} was gone",
        "download once before the job starts, or let one rank download while the others wait",
        again="chance",
    ),
    fault(
        "file-missing",
        r"^FileNotFoundError: (?:\[Errno 2\] )?No such file or directory: (?P<file>.{1,300})$",
        "a file does not exist on this node: {file}",
        "is the folder mounted in the container, and shared by all nodes?",
        role="general",
    ),
    fault(
        "open-files",
        r"Too many open files|received \d+ items of ancdata|"
        r"unable to open shared memory object \S{1,120} in read-write mode(?!: (?:No space|Cannot alloc))",
        "a process reached its limit of open files (ulimit -n): data loaders pass each tensor as an open file",
        "ulimit -n 65536 before the launch, fewer data loader workers, or "
        "torch.multiprocessing.set_sharing_strategy('file_system')",
        tokens=(ERROR, b"open files"),
    ),
    fault(
        "data-worker",
        r"subprocesses has abruptly died during map operation|process pool was terminated abruptly",
        "a helper process (of a data set's map, or of a pool) ended without a word: usually the node's memory is full",
        "fewer processes (num_proc, preprocessing_num_workers); with one, the process's own error is shown",
        "dmesg -T on {node} shows whether the kernel killed it because memory ran out",
        tokens=(ERROR, b"BrokenProcessPool"),
    ),
    fault(
        "data-corrupt",
        r"^(?P<text>(?:[a-z_]\w*\.)*(?:Arrow\w{1,20}|JSONDecodeError|DatasetGeneration\w{0,30}Error|ParserError|"
        r"DatasetGenerationCastError|UnicodeDecodeError|CastError): .*)$",
        "a data or configuration file cannot be read, or has other columns than expected: {text}",
        "which file is it (the traceback, and the lines above)? a file of a few hundred bytes may be a Git LFS pointer "
        "or an error page: download it again",
        tokens=(ERROR, b"Arrow"),
        role="general",
    ),
)
