"""The shapes of secrets, whatever their name is: tokens as their issuers document them, headers, signed URLs, keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

_BEGINNINGS = (
    "sk- gho_ ghp_ ghr_ ghs_ ghu_ github_pat_ glpat- glrt- gldt- glcbt- glptt- glft- glsoat- dckr_pat_ pypi- PMAK- "
    "nvapi- wandb_v1_ hf_oauth_ xai- pplx- lsv2_pt_ lsv2_sk_ hvs. hvb. ya29. GOCSPX- doo_v1_ dop_v1_ dor_v1_ dp.pt. "
    "dp.st. dp.ct. dp.sa. tskey- HRKU- pscale_tkn_ pscale_pw_ dt0c01. xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- "
    "xapp- ATATT glsa_ NRAK- sntrys_ sk_live_ sk_test_ rk_live_ rk_test_ sq0atp-"
).split()
"""How long tokens begin, as their issuers document them."""
_COMMON = (
    "npm_ rubygems_ pul- sgp_ gsk_ r8_ csk- rpa_ fw_ sbp_ nfp_ lin_api_ ntn_ secret_ figd_ whsec_ shpat_ shppa_ key-"
).split()
"""As other names begin too: after these are 20 letters and digits without a separator."""
_TOKENS = {
    ":AA": r"(?:bot)?\d{8,10}:AA[\w-]{33}",
    "AGE-": r"AGE-SECRET-KEY-1[0-9A-Z]{58}",
    "AIza": r"AIza[0-9A-Za-z_-]{35}",  # Google
    "AKIA": r"AKIA[0-9A-Z]{16}",
    "ASIA": r"ASIA[0-9A-Z]{16}",
    "SG.": r"SG\.[\w-]{16,32}\.[\w-]{16,64}",
    "SK": r"SK[0-9a-f]{32}",  # Twilio
    "-us": r"[0-9a-f]{32}-us\d{1,2}",  # Mailchimp
    ".atlasv1.": r"[0-9A-Za-z]{14}\.atlasv1\.[\w-]{60,}",  # Terraform
    "Q~": r"[\w~.-]{3}\dQ~[\w~.-]{31,34}",  # Microsoft Entra
    "dapi": r"dapi[0-9a-f]{32}",
    "eyJ": r"eyJ[\w-]{8,2000}\.eyJ[\w-]{8,9000}\.[\w-]*",
    "ms-": r"ms-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",  # ModelScope
}
_TOKENS.update({start: start.replace(".", "[.]") + r"[\w-]{16,}(?:\.[\w-]{16,})?" for start in _BEGINNINGS})
_TOKENS.update({start: start + r"[0-9A-Za-z]{20,}[\w-]*" for start in _COMMON})
"""What each begins with, or has, and its pattern: searched for only where the text has that."""
_SHORTEST = 20
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
    "hook": r"(?:bot/v2/hook/|webhook/send\?key=|webhookb2/)([\w@/-]+)",
    **dict.fromkeys((f"{name}{sign}" for name in ("oken", "uth") for sign in "=:\"'"), _VALUE),
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
_KEY_LINE = r"(?<![\w+/.-])(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{70})(?![\w+/=.-])"
"""A whole line of a private key's body as OpenSSL and OpenSSH write it, also after a log's own words."""
_LETTERS, _DIGITS, _SLASHES = 10, 3, 6
"""Of 64 random base64 characters, 26 are capitals, 26 small, 10 digits, 1 a slash; fewer than 1 in 1,000 such lines
have fewer letters or digits, or more slashes. Digests have no capitals, and paths more slashes and fewer digits."""


def secret_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where secrets stand in a text, told by their shape; spans may overlap."""
    if len(text) >= 64:
        yield from (match.span() for match in _compiled(_KEY_LINE).finditer(text) if _is_random(match[0]))
    for mark, pattern in _TOKENS.items() if len(text) >= _SHORTEST else ():
        if mark in text:
            found = _compiled(rf"(?<![0-9A-Za-z]){pattern}(?![0-9A-Za-z])").finditer(text)
            yield from (match.span() for match in found if _is_mixed(match[0]))
    for mark, pattern in _PLACES.items():
        if mark in text:
            yield from (match.span(1) for match in _compiled(pattern).finditer(text))


def _is_mixed(token: str) -> bool:
    """Whether this may be random letters and digits, not words: `pplx-kernels-all-to-all-16`."""
    return sum(map(str.isdigit, token)) + sum(map(str.isupper, token)) >= _MIXED


def _is_random(line: str) -> bool:
    """Whether the characters are mixed as in random base64."""
    capitals, small = sum(map(str.isupper, line)), sum(map(str.islower, line))
    digits, slashes = sum(map(str.isdigit, line)), line.count("/")
    return min(capitals, small) >= _LETTERS and digits >= _DIGITS and slashes <= _SLASHES


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
