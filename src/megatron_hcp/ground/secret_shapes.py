"""The shapes of secrets, whatever their name is: tokens as their issuers document them, headers, signed URLs, keys."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

_BEGINNINGS = (
    "sk- gho_ ghp_ ghr_ ghs_ ghu_ github_pat_ glpat- glrt- gldt- glcbt- glptt- glft- glsoat- dckr_pat_ pypi- PMAK- "
    "nvapi- wandb_v1_ hf_oauth_ xai- pplx- lsv2_pt_ lsv2_sk_ hvs. hvb. ya29. GOCSPX- doo_v1_ dop_v1_ dor_v1_ dp.pt. "
    "dp.st. dp.ct. dp.sa. tskey- HRKU- pscale_tkn_ dt0c01. xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- "
    "xapp- ATATT glsa_ NRAK- sk_live_ sk_test_ rk_live_ rk_test_ sq0atp- "
    "cfk_ cfut_ cfat_ sb_secret_ tgp_v1_ KGAT_ aph0_ dckr_oat_ CCIPAT_ bkua_ pcsk_ CFPAT- ATCTT xwfp- glffct- glimt- "
    "glagent- gloas- GR1348941 glc_ sntryu_ shippo_live_ shippo_test_ duffel_live_ duffel_test_ sm_aat_ sm_pat_ "
    "sm_sat_ pscale_oauth_ rdme_ xkeysib- FLWSECK_ FLWSECK- fm2_ fio-u- sk_prod_ rk_prod_ "
    "NRII- NRIQ- shltm_ ak_live_ pat-na1- pat-eu1- ramp_sec_ salad_cloud_ sq0csp- sq0idp- 3MVG9 5AEP861"
).split()
"""How long tokens begin, as their issuers document them."""
_COMMON = (
    "npm_ rubygems_ pul- gsk_ r8_ csk- rpa_ fw_ sbp_ nfp_ lin_api_ ntn_ secret_ figd_ whsec_ shpat_ shppa_ key- "
    "vcp_ vci_ vca_ vcr_ vck_ shpca_ shpss_ pnu_ pnb_ jina_ tvly-dev- tvly- llx- tfp_ napi_ api_org_ "
    "CLOJARS_ EZAK EZTK AKLT AKID aio_ flb_live_ rootly_ slk_"
).split()
"""As other names begin too: after these are 20 letters and digits without a separator."""
_TOKENS = {
    **{start: start.replace(".", "[.]") + r"[\w-]{16,}[\w+/=-]*(?:\.[\w.-]{8,})?" for start in _BEGINNINGS},
    **{start: start + r"[0-9A-Za-z]{20,}[\w-]*" for start in _COMMON},
    **{start: start + r"[0-9A-Z]{16}" for start in ("AKIA", "ASIA", "ABIA", "ACCA")},
    **{
        start: rf"{start}-[0-9A-Za-z]{{8}}(?:-[0-9A-Za-z]{{4}}){{3}}-[0-9A-Za-z]{{8,12}}" for start in ("rh-api", "sdk")
    },
    **{f"{kind}-s4t2": rf"{kind}-s4t2(?:ud|af)-[0-9a-f]{{16,}}" for kind in "su"},
    "1//0": r"1//0[\w-]{30,}",  # Google's refresh tokens
    "ABSK": r"ABSK[\w+/=-]{30,}",  # Amazon Bedrock
    "AGE-": r"AGE-SECRET-KEY-1[0-9A-Z]{20,}",
    "AIza": r"AIza[0-9A-Za-z_-]{35}",  # Google
    "ALTAK-": r"ALTAK-\w{21}/[0-9a-f]{40}",  # Baidu
    "API-": r"API-[0-9A-Z]{26}",  # Octopus Deploy
    "SG.": r"SG\.[\w=-]{16,32}\.[\w=.-]{10,64}",
    "bedrock-api-key-": r"bedrock-api-key-[\w+/=-]{20,}",
    "bb_": r"bb_(?:pr|ma)_[0-9a-f]{30}",
    "ddp_": r"ddp_[0-9A-Za-z]{36}",  # Deno
    "ddw_": r"ddw_[0-9A-Za-z]{36}",
    "dapi": r"dapi[0-9a-f]{32}",
    "eyJ": r"eyJ[\w-]{8,2000}\.eyJ[\w-]{8,9000}(?:\.[\w-]*)?",
    "BBDC-": r"BBDC-[\w+/@-]{20,}",  # Bitbucket
    "LTAI": r"LTAI[0-9A-Za-z]{12,}",  # Alibaba
    "NF-": r"NF-[0-9A-Za-z]{32}",  # Nightfall
    "VF.": r"VF\.(?:[DW][MS]\.)?[0-9a-fA-F]{24}\.[0-9A-Za-z]{16}",  # Voiceflow
    "ak-": r"ak-[0-9A-Za-z]{22}",  # Modal
    "as-": r"as-[0-9A-Za-z]{22}",
    "figp_": r"figp_[\w=-]{30,}",  # Figma
    "fc-": r"fc-[0-9a-f]{32}",  # Firecrawl
    "ico-": r"ico-[0-9A-Za-z]{32}",  # Infracost
    "p8e-": r"p8e-[0-9a-z]{32}",  # Adobe
    "sk_": r"sk_[0-9a-f]{32,}",  # ElevenLabs
    "tk-us-": r"tk-us-[\w-]{32,}",  # Scalingo
    "v1.0-": r"v1\.0-[0-9a-f]{24}-[0-9a-f]{8,}",  # Cloudflare
    "fo1_": r"fo1_[\w-]{20,}",  # Fly
    "fm1": r"fm1[ar]_[\w+/=-]{60,}",  # Fly
    "ms-": r"ms-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",  # ModelScope
    "ops_": r"ops_eyJ[\w+/=-]{20,}",  # 1Password
    "phx_": r"phx_[0-9A-Za-z_]{33,}",  # PostHog
    "pk_": r"pk_(?:[0-9A-Za-z]{6}_)?[0-9a-f]{28,34}",  # Klaviyo
    "pa-": r"pa-(?!pa-)[\w-]{43}",  # Voyage
    "pat": r"pat[0-9A-Za-z]{14}\.[0-9a-f]{16,}",  # Airtable
    "pscale_pw_": r"pscale_pw_[\w=.-]{10,}",
    "rzp_live_": r"rzp_live_[0-9A-Za-z]{14}",
    "sgp_": r"sgp_(?:[0-9a-fA-F]{16}_|local_)?[0-9A-Za-z]{16,}",  # Sourcegraph, Segment
    "sk.eyJ": r"sk\.eyJ[\w-]{20,}\.[\w-]{20,}",  # Mapbox
    "sntrys_": r"sntrys_[\w+/=-]{20,}",
    "v2.": r"v2\.(?:public|local)\.[\w-]{40,}(?:\.[\w-]+)?",  # PASETO
}
"""What each begins with, and its pattern."""
_TOKENS_WITH = {
    "-us": r"[0-9a-f]{32}-us\d{1,2}",  # Mailchimp
    ".": r"[0-9a-f]{32}\.[0-9A-Za-z]{16}",  # Zhipu
    ".acc": r"(?:sc|ext|scauth|authress)_[0-9a-z]{5,30}\.[0-9a-z]{4,6}\.acc[_-][0-9a-z-]{10,32}\.[\w+/=-]{30,120}",
    ".atlasv1.": r"[0-9A-Za-z]{14}\.atlasv1\.[\w=-]{60,}",  # Terraform
    "256~": r"sha256~[\w-]{20,}",  # OpenShift
    ":AA": r"(?:bot)?\d{8,10}:AA[\w-]{24,}",
    "A3-": r"A3(?:-[0-9A-Z]{5,11}){5,6}",  # 1Password
    "AZDO": r"[0-9A-Za-z]{76}AZDO[0-9A-Za-z]{4}",  # Azure DevOps
    "Q~": r"[\w~.-]{3}\dQ~[\w~.-]{31,34}",  # Microsoft Entra
    "SK": r"SK[0-9A-Za-z]{32}",  # Twilio
    "1000.": r"1000\.[0-9a-f]{32}\.[0-9a-f]{32}",  # Zoho
    "_mmk": r"[0-9A-Za-z]{6}_[0-9A-Za-z]{29}_mmk",  # MaxMind
    "at.": r"[ps]at\.[\w-]{22}\.[0-9A-Za-z]{24}\.[0-9A-Za-z]{20}",  # Harness
}
"""What each has anywhere, and its pattern."""
_MIXED = 3
"""Of 20 random letters and digits fewer than 1 in 10,000 have fewer capitals and digits; names of packages and settings
seldom have more."""
_SECRET_NAME = r"[\w.-]{0,24}(?i:token|key|secret|passw?d?|password|pwd|credentials?)"
_OPTIONS = r"(?:-[^\s;|&]{1,40} (?:[^\s;|&-][^\s;|&]{0,40} )?){0,2}?"
_HEADER = (
    r"(?i:\bauthorization[\"']?\s*[:=]\s*[\"']?(?:(?:basic|bearer|token)\s+)?)"
    r"((?!(?i:basic|bearer|token)\b)[\w.~+/=-]{6,})"
)
_QUERY = r"(?i:[?&](?:access_|auth_|id_|refresh_|private_)?token=)([^\s&\"'#<>]+)"
_VALUE = r"(?i:\b(?:token|auth)[\"']?[:=]\s?[\"']?)((?=\w*\d)(?=\w*[a-z])(?=\w*[A-Z])\w{24,}[=+/\w]*)"
_PIPED = (
    r"\b(?:echo|printf) (?:-n |%s )?[\"']?([^\s\"'|]+)[\"']? ?\| ?(?:sudo (?:-\S{1,20} ){0,3}-S\b|"
    r"(?!\w{0,9}grep |tee )[\w./-]{1,99} (?:[\w.-]{1,99} ){0,5}(?:login\b|--password-stdin\b))"
)
_PLACES = {
    "earer": r"(?i:\bbearer\s+)([\w.~+/=-]{16,})",
    "uthorization": _HEADER,
    "UTHORIZATION": _HEADER,
    "sshpass": r"\bsshpass\s{1,9}-p\s{0,9}[\"']?([^\s\"']+)",
    " login": rf"\b(?:docker|podman|az|acr|registry) login (?:[^\s;|&-]\S{{0,60}} )?{_OPTIONS}-p[ =][\"']?([^\s\"']+)",
    "b login -k": r"\bswanlab login -k (\w+)",
    "t login": r"\bvault login ([\w.-]{20,})",
    "b login": r"\bwandb login (?:--[a-z-]{1,20}(?:[ =]https?:\S{0,99})? ){0,2}(\w{32,})",
    **dict.fromkeys(("sudo ", "login", "--password-stdin"), _PIPED),
    "login(": r"\blogin\((?:api_)?key=[\"'](\w+)",
    "dockerconfigjson": r"dockerconfigjson[\"']?: ?[\"']?([\w+/=]+)",
    "ssh-keygen": rf"\bssh-keygen {_OPTIONS}-N [\"']?([^\s\"']+)",
    " password": r"\b(?:machine\s{1,9}\S{1,200}|default)\s{1,9}login\s{1,9}\S{1,200}\s{1,9}password\s{1,9}(\S+)",
    "password ": r"(?m:^)[ \t]{0,40}password[ \t]{1,9}((?=\S*\d)\S{8,})(?m:$)",
    "configure set": rf"\bconfigure set {_SECRET_NAME}[\w.]{{0,20}} [\"']?([^\s\"']+)",
    "from-literal": rf"--from-literal[ =][\"']?(?=[\w.-]{{1,60}}=){_SECRET_NAME}=([^\s\"']+)",
    "mysql": rf"\bmysql\w{{0,20}} {_OPTIONS}-p([^\s\"']+)",
    "redis-cli": rf"\bredis-cli {_OPTIONS}-a [\"']?([^\s\"']+)",
    "ldap": rf"\bldap\w{{1,20}} {_OPTIONS}-w [\"']?([^\s\"']+)",
    " -U": r"\b(?:smb\w{1,20}|rpcclient|net|winexe|wmic) (?:[^\n;|&]{0,30} )?-U ?[\"']?[^\s%\"']{1,99}%([^\s\"']+)",
    " pass:": r"\s-pass(?:in|out)? pass:([^\s\"']+)",
    "mc ": r"\bmc (?:alias set|config host add)(?: \S{1,200}){3} (\S+)",
    "ookie": r"(?i:\bcookie: ?[\w.-]{1,99}=)([^\s\"';]{8,})",
    "App.token": r"App\.token[ =][\"']?([^\s\"']+)",
    "hook": r"(?:bot/v2/hook/|webhook/send\?key=|webhookb2/|hooks/catch/|\.tines\.com/webhook/)([\w@/-]+)",
    **dict.fromkeys((f"{name}{sign}" for name in ("oken", "uth") for sign in "=:\"'"), _VALUE),
    "oken =": r"(?i:\btoken = ?[\"'])((?=(?:[A-Za-z]*\d){2})[0-9A-Za-z]{20,})[\"']",
    "key=": r"[?&]key=([\w-]{20,})",
    "curl": r"(?<=\s)(?:-u|--user)[ =][\"']?[^\s:\"']{1,200}:([^\s\"']+)",
    "hooks.slack.com": r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/+-]+)",
    "api/webhooks": r"discord(?:app)?\.com/api/webhooks/([\w/-]+)",
    "PRIVATE KEY": r"-----BEGIN (?:[A-Z]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----\s*([^-\s](?:[^-]*[^-\s])?)",
    "token=": _QUERY,
    "sig": r"(?i:[?&;](?:sig|signature)=)([^\s&\"'#<>]+)",
    "-Signature": r"(?i:\bX-(?:Amz|Goog|Oss|Cos)-Signature[\"']?\s*[=:]\s*[\"']?)([\w%+/=-]+)",
    "-Security-Token": r"(?i:\bX-(?:Amz|Goog)-Security-Token[\"']?\s*[=:]\s*[\"']?)([\w%+/=.-]+)",
}
"""What a text has that shows where a secret stands, and the pattern of the place; its one group is the secret."""
_MARKS = {
    "TOKEN": ("oken=", "oken:", "oken'", 'oken"', "token=", "oken =", "App.token", "-Security-Token"),
    "PASS": ("sshpass", " password", "password ", " pass:", "--password-stdin"),
    "AUTH": ("uthorization", "UTHORIZATION", "uth=", "uth:", "uth'", 'uth"'),
    "SIG": ("sig", "-Signature"),
    "OOK": ("ookie", "hook", "hooks.slack.com", "api/webhooks"),
    "EARER": ("earer",),
    "KEY": ("PRIVATE KEY", "key="),
    "OGIN": (" login", "b login -k", "t login", "b login", "login", "login("),
    " -": (" -U", "curl", "from-literal", "ldap", "mysql", "redis-cli", "ssh-keygen", "sudo "),
    "CONFIGURE SET": ("configure set",),
    "DOCKERCONFIGJSON": ("dockerconfigjson",),
    "MC ": ("mc ",),
}
"""The marks of places by what they have in common, in capitals: most texts have none of it."""
_AREAS = (*_MARKS, "SECRET", "CREDENTIAL", "_PW", "_PAT")
OF_NAMES = frozenset(("TOKEN", "KEY", "SECRET", "PASS", "CREDENTIAL", "_PW", "_PAT", "SIG", "OOK", "EARER"))
"""The name of each credential has one of these."""
_LONG = r"\b[\w~-]{14}"
"""What each token and each line of a key has: without it none is looked for."""
_BASE64 = r"[0-9A-Za-z+/]{30,}"
_RUN = r"[0-9A-Za-z]{30,}"
"""What may be a token without a known beginning."""
_HEAD = r"(?=([0-9A-Za-z][\w/-][\w./-]))[0-9A-Za-z]+"
_HEADS: dict[str, list[str]] = {}
"""The marks of tokens by their first three characters: in few lines a word begins so."""
for _mark in _TOKENS:
    _HEADS.setdefault(_mark[:3], []).append(_mark)
_KINDS = str.maketrans(
    {
        **dict.fromkeys(map(chr, range(48, 58)), "0"),
        **dict.fromkeys(map(chr, range(65, 91)), "A"),
        **dict.fromkeys(map(chr, range(97, 123)), "a"),
    }
)
_CASES, _CHANGES = 0.1, 0.45
"""Of 100 random letters and digits, 18 are capitals after a small letter and 62 of another kind than the one before.
Names of models, kernels and runs are words with few of the first (`TP8PP4CP2GBS1024`) or few changes."""
_SYMBOL = r"(?<!\w)_Z\w{0,999}$"
"""What stands before a run in a C++ symbol."""
_KEY_LINES = (64, 70)
"""A whole line of a private key's body as OpenSSL and OpenSSH write it, also after a log's own words."""
_BESIDE = frozenset("_.-")
"""Where one of these stands beside it, it is no whole line, or a path."""
_LETTERS, _DIGITS, _SLASHES = 10, 3, 6
"""Of 64 random base64 characters, 26 are capitals, 26 small, 10 digits, 1 a slash; fewer than 1 in 1,000 such lines
have fewer letters or digits, or more slashes. Digests have no capitals, and paths more slashes and fewer digits."""


def areas_of(text: str) -> list[str]:
    """What the text has of what stands beside secrets, for `secret_spans`; in capitals."""
    capitals = text.upper()
    return [area for area in _AREAS if area in capitals]


def secret_spans(text: str, areas: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Where secrets stand in a text, told by their shape; spans may overlap."""
    if _compiled(_LONG).search(text):
        yield from _tokens(text)
    for area in areas:
        for mark in _MARKS.get(area, ()):
            if mark in text:
                yield from (match.span(1) for match in _compiled(_PLACES[mark]).finditer(text))


def _tokens(text: str) -> Iterator[tuple[int, int]]:
    """Where what is a secret by its own letters stands, in a text that has a long word."""
    patterns = [pattern for mark, pattern in _TOKENS_WITH.items() if mark in text]
    for head in _HEADS.keys() & _compiled(_HEAD).findall(text):
        patterns += [_TOKENS[mark] for mark in _HEADS[head] if mark in text]
    for pattern in patterns:
        found = _compiled(rf"(?<![0-9A-Za-z]){pattern}(?![0-9A-Za-z])").finditer(text)
        yield from (match.span() for match in found if _is_mixed(match[0]))
    for match in _compiled(_BASE64).finditer(text):
        start, end = match.span()
        is_whole = _BESIDE.isdisjoint((text[max(0, start - 1)], text[end : end + 1]))
        if end - start in _KEY_LINES and is_whole and _is_random_line(match[0]):
            yield start, end
            continue
        for run in _compiled(_RUN).finditer(text, start, end):
            if _is_random(run[0]) and not _compiled(_SYMBOL).search(text[max(0, start - 999) : run.start() + 1]):
                # After the letter of an option, as in `-pSECRET`.
                yield run.start() + text.endswith(" -", 0, run.start()), run.end()


def _is_mixed(token: str) -> bool:
    """Whether this may be random letters and digits, not words: `pplx-kernels-all-to-all-16`."""
    return sum(map(str.isdigit, token)) + sum(map(str.isupper, token)) >= _MIXED


def _is_random(run: str) -> bool:
    """Whether letters and digits change as in a random text, and unlike `Qwen3VLMoeForConditionalGeneration`."""
    kinds = run.translate(_KINDS)
    changes = sum(map(str.__ne__, kinds, kinds[1:]))
    return kinds.count("aA") >= _CASES * len(kinds) and kinds.count("0") >= _MIXED and changes >= _CHANGES * len(kinds)


def _is_random_line(line: str) -> bool:
    """Whether the characters are mixed as in random base64."""
    capitals, small = sum(map(str.isupper, line)), sum(map(str.islower, line))
    digits, slashes = sum(map(str.isdigit, line)), line.count("/")
    return min(capitals, small) >= _LETTERS and digits >= _DIGITS and slashes <= _SLASHES


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
