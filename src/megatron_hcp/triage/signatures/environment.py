"""What a program says whose packages, options or variables do not fit: it would fail the same way again."""

from __future__ import annotations

from megatron_hcp.triage.signatures.row import ERROR, Signature, fault

_FACTS = "hcp facts on {node}, inside the container of the job"

CONDA = "conda-shell"
"""Of a script, which goes on: whatever follows counts before it."""

ENVIRONMENT: tuple[Signature, ...] = (
    fault(
        CONDA,
        r"^CommandNotFoundError: Your shell has not been properly configured",
        "`conda activate` failed in the script, which ran on with the Python that it had",
        'source "$(conda info --base)/etc/profile.d/conda.sh" before `conda activate`',
        role="general",
    ),
    fault(
        "bad-option",
        r"^(?:\S{1,200}: |[A-Z][\w ]{1,60}: )?[Ee]rror: (?P<text>unrecognized arguments?: .*|"
        r"argument \S.*|ambiguous option: .*|"
        r"the following arguments are required: .*|one of the arguments .*|[Nn]o such option.*|"
        r"Invalid value for .*|Missing (?:option|argument) .*)$",
        "the program does not accept these options: {text}",
        "hcp check {launch}",
        "PROGRAM --help lists the options of this release",
    ),
    fault(
        "bad-override",
        r"^Could not override (?P<text>.*)|^Error merging (?P<text2>.*)|"
        r"^Key (?P<text3>'[^']{1,200}' (?:is )?not in .*)|^(?:hydra|omegaconf)\.errors\.\w+: (?P<text4>.*)|"
        r"^(?P<text5>Error parsing override .*|"
        r"Missing mandatory value: .*|Could not (?:find|load) '[^']{1,200}'.*|"
        r"Cannot find primary config .*|Multiple values for .*|You must specify '.*|Interpolation key .* not found)|"
        r"^\w{1,40}ValidationError: (?P<text6>\d+ validation errors? for .*)|"
        r"^ValueError: (?P<text7>Some (?:specified arguments|keys) are not used by .*)",
        "the configuration does not accept this setting: {text}{text2}{text3}{text4}{text5}{text6}{text7}",
        "hcp check {launch}",
        "Hydra takes +KEY=VALUE for a key that the configuration lacks; does this version have the key?",
        tokens=(
            ERROR,
            b"ould not override",
            b"not in struct",
            b"primary config",
            b"Multiple values for",
            b"must specify '",
        ),
    ),
    fault(
        "torch-lacks",
        r"was requested but PyTorch was built without (?P<part>\w{1,30})|doesn't have (?P<part2>\w{1,30}) built in|"
        r"but (?P<part3>\w{1,30}) support is not compiled",
        "this PyTorch is built without {part}{part2}{part3}",
        "install a build that has it; without libuv, USE_LIBUV=0 does",
    ),
    fault(
        "abi-mismatch",
        r"^(?:[A-Za-z][\w.]*Error: |/)(?:(?!undefined symbol: ).){0,500}?undefined symbol: |symbol lookup error: |"
        r"version `(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+' not found|"
        r"^\w{1,40}Error: .{0,100}(?:detected CUDA version .{1,80} mismatches|numpy\.\w+ size changed)",
        "a package was built for another version of PyTorch, CUDA or the system's C library than the one on this node",
        "build that package again for this torch, CUDA and system, or take a wheel that is built for them",
        _FACTS,
        tokens=(ERROR, b"undefined symbol: "),
    ),
    fault(
        "library-missing",
        r"^(?:ImportError|OSError|RuntimeError): (?P<name>\S{1,200}): cannot open shared object file|"
        r"error while loading shared libraries: (?P<name2>\S{1,200})|"
        r"^\w{1,40}Error: Could not find shared object file|Unable to load any of {?libcudnn|"
        r"^Could not load library (?P<name3>\S{1,200})\. Error|"
        r"^(?:Invalid handle\. )?Cannot load symbol (?P<name4>\w{1,200})",
        "a shared library was not found on this node, or not in the version that is needed: "
        "{name}{name2}{name3}{name4}",
        "was the package built for the container's CUDA? is the library's folder in LD_LIBRARY_PATH?",
        _FACTS,
        tokens=(ERROR, b"Cannot load symbol"),
    ),
    fault(
        "module-missing",
        r"^(?:ModuleNotFoundError: No module named|ImportError: cannot import name|"
        r"(?:importlib\.metadata\.)?PackageNotFoundError: )|"
        r"^(?:/\S{1,200})?python\S{0,20}: (?:No module named |Error while finding module specification |"
        r"can't find '__main__' module in )",
        "a Python package is missing on this node, or has another version",
        _FACTS,
        tokens=(ERROR, b"o module named", b"'__main__' module"),
    ),
    fault(
        "import-failed",
        r"^(?:RuntimeError: )?Failed to import (?P<text>\S{1,200}) because of the following error",
        "a package could not be imported: {text}; the line below says why",
        _FACTS,
        tokens=(b"Failed to import",),
        role="general",
    ),
    fault(
        "process-limit",
        r"can't start new thread|pthread_create failed|[Tt]hread creation failed|"
        r"(?:thread|fork|Cannot fork|vfork): (?:retry: )?Resource temporarily unavailable|"
        r"BlockingIOError: \[Errno 11\]|^RuntimeError: Resource temporarily",
        "a process reached its limit of processes and threads (ulimit -u, or the container's pids limit)",
        "ulimit -u 65536 before the launch; docker run --pids-limit -1; give Ray the CPUs that the job has "
        "(--num-cpus), and OMP_NUM_THREADS and the data loader fewer threads",
        tokens=(ERROR, b"pthread_create", b"start new thread", b"temporarily unavailable"),
    ),
    fault(
        "rank-variables",
        r"environment variable (?P<name>\w{1,40}) expected, but not set|"
        r"^KeyError: '(?P<name2>RANK|WORLD_SIZE|LOCAL_RANK|MASTER_ADDR|MASTER_PORT|LOCAL_WORLD_SIZE)'",
        "{name}{name2} is not set: the program was started without torchrun, or srun's variables were not passed on",
        "hcp check {launch} --select SLURM",
    ),
    fault(
        "rate-limit",
        r"^(?:[A-Za-z_]\w*\.)*\w{1,40}(?:Error|Exception|Exceeded|Exhausted|TooManyRequests): .{0,300}?"
        r"(?P<text>\b429\b.{0,20}(?:Client Error|Too Many)|[Tt]oo [Mm]any [Rr]equests|"
        r"[Rr]ate[- ]?[Ll]imit(?:ed| exceeded| reached| hit)?\b)",
        "a server refused to answer, since too many requests reach it at once ({text})",
        "let one rank, or a step before the job, fetch it once into a shared cache, and start with HF_HUB_OFFLINE=1",
        "log in: a server allows an account more than an address that many jobs share; then wait, and start again",
        tokens=(ERROR, b"xception: ", b"TooManyRequests: ", b"Exceeded: ", b"Exhausted: "),
        again="chance",
    ),
    fault(
        "hub",
        r"^(?:[A-Za-z_]\w*\.)*(?:OfflineModeIsEnabled|LocalEntryNotFoundError|GatedRepoError|RepositoryNotFoundError|"
        r"RevisionNotFoundError|HfHubHTTPError|HFValidationError)\b|"
        r"^(?:[A-Za-z_]\w*\.)*\w{1,40}Error: .{0,200}(?:couldn't connect to '|"
        r"HTTPSConnectionPool\(host=(?!['\"]api\.wandb)|"
        r"Can't load (?:the )?(?:tokenizer|config|model|image processor|feature extractor|processor|weights)|"
        r"is not a (?:valid model identifier|local folder and is not)|does not appear to have (?:a |any )?files? named|"
        r"Couldn't reach '?\S{1,80} on the Hub)|"
        r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w{1,40}: .{0,200}HTTPSConnectionPool\(host='[\w.-]{0,60}"
        r"(?:huggingface\.co|hf\.co|hf-mirror\.com|modelscope\.\w{1,4})'",
        "a model, tokenizer or data set could not be downloaded: the node cannot reach the hub, access is "
        "denied, or the cache has no such name",
        "download it once into a shared HF_HOME, on a node with network access, and start with "
        "HF_HUB_OFFLINE=1; a gated model needs HF_TOKEN",
        tokens=(ERROR, b"OfflineModeIsEnabled"),
        again="chance",
    ),
    fault(
        "tracker",
        r"^wandb\.(?:errors|sdk)[\w.]{0,80}(?:Error|Abort)\b|api_key not configured|host='api\.wandb\.ai'",
        "the experiment tracker (Weights & Biases) could not log in or connect",
        "WANDB_MODE=offline lets the training run without it; otherwise set WANDB_API_KEY",
    ),
    fault(
        "hub-name",
        r"^[\w.]{0,80}(?:Connect\w{0,20}Error|gaierror): .{0,80}(?:Name or service not known|name resolution)",
        "this node cannot resolve the hub's name",
        context=r"thrown while requesting [A-Z]{3,6} https?://",
    ),
    fault(
        "host-name",
        r"gaierror: |Name or service not known|[Tt]emporary failure in name resolution|Could not resolve host",
        "this node cannot resolve a host name",
        "getent hosts NAME on {node}: is it right (the first node's, a service's)? does DNS work in the container?",
        tokens=(ERROR, b"ould not resolve host", b"name resolution"),
    ),
    fault(
        "build-tool",
        r"fatal error: (?P<name>[\w./-]{1,80}\.h): No such file|Failed to find C compiler|"
        r"Ninja is required to load C\+\+|Error building extension|"
        r"Could not find (?:nvcc|ninja|a CUDA)|nvcc (?:fatal|was not found)|CUDA_HOME environment variable is not set|"
        r"^\S{0,20}CalledProcessError: Command .{0,100}?\b(?:gcc|g\+\+|cc|c\+\+|clang|nvcc|ninja|cmake)\b",
        "a kernel could not be built on this node: a compiler, a header or a CUDA tool is missing {name}",
        "the first line above with error: or FAILED: says what the compiler lacks or refuses; use an image with "
        "PyTorch's CUDA toolkit, a gcc that it takes, ninja and python3-dev, or build the extension before the job",
        tokens=(ERROR,),
    ),
    fault(
        "command-failed",
        r"^(?:subprocess\.)?CalledProcessError: Command (?P<command>(?!.{0,300}(?:python|torchrun)).{1,300}?) "
        r"(?:returned|died)",
        "a command that the program ran failed: {command}",
        "run the command by hand on {node}, inside the container",
        role="general",
    ),
)
