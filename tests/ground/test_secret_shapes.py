"""Secrets are told by their own shape and by where they stand, and ordinary words are none."""

from __future__ import annotations

import string
from random import Random

import pytest

from megatron_hcp.ground.secrets import without_secrets

A = "aB3" * 20
"""Of secrets, which are put together here so that no scanner sees one."""
SHAPES = [
    "AKIA" + "ABCD1234" * 2,
    "AIza" + A[:35],
    "xoxb-" + "1234567890-" + A[:24],
    "npm_" + A[:36],
    "nvapi-" + A,
    "pypi-" + "AgEIcHlwaS5vcmc" + A,
    "sk_live_" + A[:24],
    "SG." + A[:22] + "." + A[:43],
    "dapi" + "0123abcd" * 4,
    "eyJ" + A[:20] + ".eyJ" + A[:30] + "." + A[:43],
    "ya29." + A[:40],
    "ghp_" + A[:36],
    "ghp_" + "aBcD" * 9,  # one in 500 has no digit
    "glpat-" + "aBcDeFgH" * 2 + "ijkl",  # one in 30
    "ghr_" + A[:36],
    "doo_v1_" + "0123abcd" * 8,
    "dckr_pat_" + A[:27],
    "hvs." + A,
    "r8_" + A[:37],
    "xapp-1-A0123ABCD-1234567890-" + A,
    "hf_" + A[:34],
    "sk-ant-" + A,
    "glpat-" + A[:20],
    "GOCSPX-" + A[:28],
    "gsk_" + A[:52],
    "xai-" + A[:30] + A[:50],
    "wandb_v1_" + A,
    "lsv2_pt_" + "0123abcd" * 4 + "_" + "0123abcd01",
    "tskey-auth-k" + A[:10] + "CNTRL-" + A[:24],
    "dp.pt." + A[:43],
    "lin_api_" + A[:40],
    "AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MU" * 2,
    "1234567890:AA" + A[:33],
    "bot1234567890:AA" + A[:33],
    *(start + A[:36] for start in ("glrt-", "hf_oauth_", "pplx-", "rpa_", "secret_", "ATATT", "glsa_", "sntrys_")),
    *(start + "0123abcd" * 5 for start in ("shpat_", "rubygems_", "key-", "sgp_", "HRKU-")),
    "dt0c01." + "ABCDEFGH" * 3 + "." + A[:50].upper(),
    "SK" + "0123abcd" * 4,
    "0123abcd" * 4 + "-us12",
    A[:14] + ".atlasv1." + A[:60],
    "a.~8Q~" + A[:34],
    "ms-01234567-89ab-cdef-0123-456789abcdef",
    *(
        start + "0123abcd" * 5
        for start in (
            "bkua_ KGAT_ sntryu_ shippo_live_ shpca_ shpss_ sgp_ sgp_0123456789abcdef_ xkeysib- napi_ CLOJARS_ rdme_"
        ).split()
    ),
    *(
        start + "aBcD-f12_h" * 5
        for start in "tgp_v1_ CFPAT- gloas- glagent- glimt- glffct- fio-u- duffel_live_ pscale_oauth_ 1//0".split()
    ),
    *(
        start + A[:44]
        for start in (
            "cfk_ cfut_ cfat_ vcp_ vci_ vca_ vcr_ vck_ sb_secret_ jina_ aph0_ pnu_ pnb_ dckr_oat_ pcsk_ llx- tfp_ "
            "ATCTT api_org_ glc_ ABSK" + A[:20] + " tvly- LTAI AKLT AKID EZAK fm2_ xwfp-1-2- CCIPAT_"
        ).split()
    ),
    "ABIA" + "ABCD1234" * 2,
    "A3-ABC123-DEF456-GHJKL-MNPQR-STUVW-XYZ12",
    *(start + "0123abcd" * 4 for start in ("fc-", "p8e-", "ico-")),
    "ak-" + A[:22],
    "sk_" + "0123abcd" * 6,
    "tk-us-" + "aBcD-f12" * 6,
    "v1.0-" + "0123abcd" * 3 + "-" + "0123abcd" * 18 + "ab",
    "fo1_" + "aBcD-f12_h" * 4 + "xYz",
    "0123abcd" * 4 + "." + A[:16],
    "ops_eyJ" + A,
    "bedrock-api-key-" + A,
    "API-" + "ABC1" * 6 + "XY",
    "ALTAK-" + A[:21] + "/" + "0123abcd" * 5,
    A[:6] + "_" + A[:29] + "_mmk",
    "pat" + A[:14] + "." + "0123abcd" * 8,
    "pat." + A[:22] + "." + A[:24] + "." + A[:20],
    "sha256~" + A[:43],
    "s-s4t2ud-" + "0123abcd" * 8,
    "sc_abc123.ab12.acc_abcdef123456." + A[:40],
    "v2.public." + A,
    A + A[:16] + "AZDO" + A[:4],
    "sk.eyJ" + A[:40] + "." + A[:22],
    "pa-" + "aBcD-f12_h" * 4 + "xYz",
    "pscale_pw_aB1.-_" + A[:40],
    "sntrys_eyJpYXQi+/" + A + "_" + A[:43],
    "sm_pat_" + A[:16],
    "GR1348941" + A[:20],
    *(start + A[:44] for start in "aio_ flb_live_ ak_live_ figp_ phx_ ramp_sec_ 3MVG9 5AEP861 sgp_ sgp_local_".split()),
    *(start + "0123abcd" * 8 for start in "rootly_ slk_ u-s4t2af-".split()),
    *(start + "aB3f-0123-4bcd-8e9f-" * 2 for start in "FLWSECK- NRII- NRIQ- salad_cloud_x_ sq0csp- sq0idp-".split()),
    *(start + "0123aBcd-4e5f-6a7B-8c9d-0123abcd4e5f" for start in ("pat-na1-", "pat-eu1-", "rh-api-", "sdk-")),
    "LTAI" + A[:12],
    "BBDC-" + A[:41] + "+/@",
    "NF-" + A[:32],
    "SK" + A[:32],
    "VF." + "0123aBcd" * 3 + "." + A[:16],
    "VF.DM." + "0123aBcd" * 3 + "." + A[:16],
    "bb_pr_" + "0123abcd" * 3 + "012abc",
    "bb_ma_" + "0123abcd" * 3 + "012abc",
    "ddp_" + A[:36],
    "ddw_" + A[:36],
    "pk_" + "0123abcd" * 4 + "ab",
    "pk_aB3cD4_" + "0123abcd" * 4 + "ab",
    "rzp_live_" + A[:14],
    "1000." + "0123abcd" * 4 + "." + "4567cdef" * 4,
    "7gKq2pVx9Lw0ZrT4mYc8NbHd3JfSe5QaUo1Wi6Gu",  # 40 random letters and digits, after no known beginning
    A[:30] + A[:30].swapcase() + "+/0Z",  # a line of a private key
    A[:30] + A[:30].swapcase() + "+/0ZaB3aB3",  # of OpenSSH's
]
PLACES = [
    "curl -H 'Authorization: Bearer {}' https://host",
    "authorization: Basic {}",
    "Bearer {}",
    "curl -s -u me:{} https://host",
    "https://hooks.slack.com/services/{}",
    "https://host/x?token={}&a=1",
    "https://host/x?a=1&access_token={}",
    "https://host/x?sv=1&sig={}",
    "s3://bucket/x?X-Amz-Signature={}",
    "DB_PASS={}",
    "export LDAP_PWD={}",
    "AWS_ACCESS_KEY_ID={}",
    "SLACK_WEBHOOK_URL={}",
    "+ sshpass -p {} ssh host",
    "+ docker login -u x -p {} nvcr.io",
    "+ wandb login --relogin {}" + "0123abcd" * 2,
    "wandb login --host https://wandb.host {}" + "0123abcd" * 2,
    "wandb.login(key='{}')",
    "vault login {}",
    "swanlab login -k {}",
    "echo {} | docker login nvcr.io --password-stdin",
    "printf %s '{}' | wandb login",
    "machine host login user password {}",
    "machine host\nlogin user\npassword {}",
    "password {}",
    "aws configure set aws_secret_access_key {}",
    "kubectl create secret generic x --from-literal=db-password={}",
    "- name: DB_PASSWORD\n  value: {}",
    '{{"name": "HF_TOKEN", "value": "{}"}}',
    "- name: AWS_SECRET_ACCESS_KEY\n  value: {}",
    "- name: HUGGING_FACE_HUB_TOKEN\n  value: {}",
    "- name: token\n  value: {}",
    "echo {} | sudo -S mount /data",
    "default login anonymous password {}",
    '{{".dockerconfigjson": "{}"}}',
    "mysql -u root -p{} db",
    "redis-cli -h host -a {} ping",
    "ldapsearch -x -D cn=a -w {}",
    "smbclient //host/x -U user%{}",
    "ssh-keygen -f k -N {}",
    "openssl rsa -passin pass:{}",
    "az login --service-principal -u x -p {}",
    "mc alias set m http://host:9000 minioadm {}",
    "curl -H 'Cookie: session={}' https://host",
    "jupyter lab --ServerApp.token={}",
    "https://open.feishu.cn/open-apis/bot/v2/hook/{}",
    "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key={}",
    "https://x.webhook.office.com/webhookb2/{}",
    "https://hooks.zapier.com/hooks/catch/{}",
    "https://x.tines.com/webhook/{}",
    "https://host/x?a=1&key={}",
    "token = '{}'",
    'Token = "{}"  # of the tracker',
    "stringData: {{token: {}Aa1}}",
    "SMTP_PW={}",
    "-----BEGIN RSA PRIVATE KEY-----\n{}\n-----END RSA PRIVATE KEY-----",
]
PLAIN = [
    "The basic training loop is a bearer of news",
    "git checkout 0123456789abcdef0123456789abcdef01234567",
    "sha256:" + "0123456789abcdef" * 4,
    "0123456789abcdef" * 4,
    "--load /lustre/team/models/Meta-Llama-3-70B-Instruct-checkpoint-with-a-long-name-and-0123456789",
    "nvcr.io/nvidia/nemo:26.04 nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "PWD=/work OLDPWD=/tmp",
    "python -m torch.distributed.run --nproc-per-node 8 -u pretrain_gpt.py",
    "docker run -u 1000:1000 image",
    "/Lustre/Team7/Models/MetaLlama3/70B/Instruct/Run12/Step5/Optimizer",
    "NvteFlashAttentionWithContextParallelAndSlidingWindowBackendSM90",
    "Qwen3VLMoeForConditionalGeneration DeepSeekV3MoE671BA37BFP8GRPOTP8PP16EP32 Llama70bTP8PP4CP2Seq8kGBS512Run12",
    "AttentionKernelSm90Fp8E4m3HeadDim128Causal cutlass3xSm90TensorOpGemmE4m3E4m3F32Bf16128x128x64",
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EEEEviT0_T1_",
    "jina_embeddings_v3_base_2024_large vca_1 pa-loader-version-2-of-the-data-loader-for-training-at-scale-0-1-2 fc-1",
    "build v1.0-linux-x86_64-20241128-cuda12 on tk-us-east-1-cluster-002-node-0017 run-as-Qwen3MoeForCausalLM30BA3BX",
    "sdk-cuda-12.8-toolkit-2025 ddp_bucket_size_in_mb_200_overlap_1 pk_layernorm_2 NF-4bit VF.1 rh-api-v2 1000.5"
    " aio_pool_1",
    "sgp_region_cluster_17 slk_1 phx_array_of_shards_0123456789 bb_pr_branch rootly_incident_2024 pat-na1-node-0001",
    "token = 'BeginningOfSequenceToken1' key = 'x' https://host/x?key=name-of-3 token = pad[0] token = '<|end|>'",
    "API-KEY-MANAGEMENT-OF-THE-CLUSTER-2 pattern.of.a.long.name.with.many.parts.and.numbers.2024.11.28",
    "https://host/x?page=2&sort=token",
    "moe_token_dispatcher_type=alltoall token=1",
    "skip_token sk_ eyJ AKIA npm_config_cache=/tmp/npm",
    "PASS=1 N_PASS 3 tests PASSED",
    "docker login nvcr.io; docker run -p 8080:80 image",
    "wandb login failed for the entity of this project",
    "npm_config_cache_of_long_names_2 secret_sauce_for_training_1 key-value-memory-network-2 fw_bw_overlap_schedule_1",
    "password authentication is disabled; login node 1; cookie: monster; auth: none; user%04d; pass:fail",
    "echo done | tee out.txt; srun -p gpu -w node1; mkdir -p a; mysql is not here; redis-cli ping; name: a, value: 8",
    "token: Qwen3-30B-A3B-Instruct-2507 key: value auth=train-job-0123456789-abcdefgh",
    "xai-explainability-toolkit-v2 pplx-kernels-benchmark-all-to-all-16 pypi-mirror-cache-proxy-v2-internal",
    "dp.pt.model_parallel_size_8_context sk-learn-extension-module-0.3 secret_managerhandlerconfiguration1",
    "NoCredentialsError: Unable to locate credentials",
    "echo done | sort -S 2G; echo starting | srun -S 2 run; echo hello | grep login; echo x1 | tee a login",
    "GPU memory -U 95%available; git push -U a%percent",
    "login failed password incorrect; ssh login node01 password required",
    "- name: prompt_key\n  value: question\n- name: eos_token\n  value: end",
    'Error: secret "wandb-key" not found; --tokenizer-type Llama2Tokenizer token_count: 5 max_tokens: 4096',
    "12:34:56:AAAA gsk_ xai-org/grok-1 lsv2_ dp.pt.train tskey-",
]


@pytest.mark.parametrize("secret", SHAPES)
def test_a_secret_is_told_by_its_shape(secret: str) -> None:
    for text in (secret, f"--run {secret}", f"x={secret},", f'"{secret}"', f"x/{secret}/x", f"a-{secret}"):
        assert secret not in without_secrets(text) and secret[10:] not in without_secrets(text), text


WHOLE = (".atlasv1.", "0123abcd.aB3", "ALTAK-", "pat.aB3", ".acc_", "pa-", "VF.", "1000.")
"""Those that are told only when they are whole."""


@pytest.mark.parametrize("secret", [one for one in SHAPES if len(one) > 40 and not any(part in one for part in WHOLE)])
def test_a_secret_is_told_where_a_message_cut_it(secret: str) -> None:
    cut = secret[:40]
    assert cut[10:] not in without_secrets(f"it has {cut}, x, y")


def test_nine_of_ten_random_texts_of_forty_letters_and_digits_are_hidden() -> None:
    random = Random(40)
    tokens = ["".join(random.choices(string.ascii_letters + string.digits, k=40)) for _ in range(1000)]
    assert sum(without_secrets(f"used {token} here") == "used *** here" for token in tokens) >= 900


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_is_told_by_where_it_stands(place: str) -> None:
    secret = "hunter2" + A[:20]
    shown = without_secrets(place.format(secret))
    assert "hunter2" not in shown and shown.startswith(place.format("\n").partition("\n")[0])
    assert without_secrets(place.format("${SECRET}")) == place.format("${SECRET}")


def test_a_line_of_a_key_needs_no_long_run_of_letters_and_digits() -> None:
    line = "aB3cD4eF5gH6iJ7kL8mN9oP/" * 2 + "qR1sT2uV3wX4yZ5a"
    assert [without_secrets(f"x{sign}{line}") for sign in " ="] == ["x ***", "x=***"]


def test_two_places_of_one_secret_hide_it_whole() -> None:
    assert without_secrets("sshpass -p sk-" + A[:20] + "%hunter2 ssh host") == "sshpass -p *** ssh host"


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    assert without_secrets(text) == text
