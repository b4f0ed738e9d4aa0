"""The shapes of secrets, whatever their name is: tokens as their issuers document them, headers, signed URLs, keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

_TOKENS = {
    ":AA": r"\d{8,10}:AA[\w-]{33}",  # Telegram
    "AGE-": r"AGE-SECRET-KEY-1[0-9A-Z]{58}",  # age
    "AIza": r"AIza[0-9A-Za-z_-]{35}",  # Google
    "AKIA": r"AKIA[0-9A-Z]{16}",  # AWS
    "ASIA": r"ASIA[0-9A-Z]{16}",
    "GOCSPX-": r"GOCSPX-[\w-]{28}",  # Google
    "SG.": r"SG\.[\w-]{16,32}\.[\w-]{16,64}",  # SendGrid
    "dapi": r"dapi[0-9a-f]{32}",  # Databricks
    "_v1_": r"do[opr]_v1_[0-9a-f]{64}",  # DigitalOcean
    "dckr_pat_": r"dckr_pat_[\w-]{20,}",  # Docker
    "dp.": r"dp\.(?:pt|st|ct|sa)\.[0-9A-Za-z]{40,44}",  # Doppler
    "eyJ": r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*",  # JSON Web Token
    "gsk_": r"gsk_[0-9A-Za-z]{40,}",  # Groq
    "hvs.": r"hvs\.[\w-]{24,}",  # HashiCorp Vault
    "lin_api_": r"lin_api_[0-9A-Za-z]{40}",  # Linear
    "lsv2_": r"lsv2_[ps][tk]_[0-9a-f]{32}_[0-9a-f]{10}",  # LangSmith
    "npm_": r"npm_[0-9A-Za-z]{30,}",
    "nvapi-": r"nvapi-[\w-]{20,}",  # NVIDIA
    "pypi-": r"pypi-[\w-]{40,}",
    "r8_": r"r8_[0-9A-Za-z]{37}",  # Replicate
    "rk_": r"rk_(?:live|test)_[0-9A-Za-z]{16,}",  # Stripe
    "sk_": r"sk_(?:live|test)_[0-9A-Za-z]{16,}",
    "tskey-": r"tskey-[a-z]+-[0-9A-Za-z-]{16,}",  # Tailscale
    "wandb_v1_": r"wandb_v1_\w{40,}",  # Weights & Biases
    "xai-": r"xai-[\w-]{60,}",  # xAI
    "xapp-": r"xapp-\d-[0-9A-Z]+-\d+-[0-9A-Za-z]{10,}",  # Slack
    "xox": r"xox[abeoprs]-[0-9A-Za-z-]{10,}",
    "ya29.": r"ya29\.[\w-]{20,}",  # Google OAuth
}
"""What each begins with, and its pattern: searched for only where the text has the beginning."""
_HEADER = (
    r"(?i:\bauthorization[\"']?\s*[:=]\s*[\"']?(?:(?:basic|bearer|token)\s+)?)"
    r"(?P<{}>(?!(?i:basic|bearer|token)\b)[\w.~+/=-]{{6,}})"
)
_QUERY = r"(?i:[?&](?:access_|auth_|id_|refresh_|private_)?token=)(?P<{}>[^\s&\"'#<>]+)"
_PLACES = {
    "earer": r"(?i:\bbearer\s+)(?P<{}>[\w.~+/=-]{{16,}})",
    "uthorization": _HEADER,
    "UTHORIZATION": _HEADER,
    "sshpass": r"\bsshpass\s{{1,9}}-p\s{{0,9}}[\"']?(?P<{}>[^\s\"']+)",
    " login ": r"\b(?:docker|podman) login (?:[^\s;|&]{{1,99}} ){{0,3}}?-p[ =][\"']?(?P<{}>[^\s\"']+)",
    "wandb login": r"\bwandb login (?:--relogin )?(?P<{}>\w{{40,}})",
    "curl": r"(?<=\s)(?:-u|--user)[ =][\"']?[^\s:\"']{{1,200}}:(?P<{}>[^\s\"']+)",
    "hooks.slack.com": r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<{}>[\w/+-]+)",
    "api/webhooks": r"discord(?:app)?\.com/api/webhooks/(?P<{}>[\w/-]+)",
    "PRIVATE KEY": r"-----BEGIN (?:[A-Z]+ ){{0,3}}PRIVATE KEY(?: BLOCK)?-----\s*(?P<{}>[^-\s](?:[^-]*[^-\s])?)",
    "token=": _QUERY,
    "sig": r"(?i:[?&;](?:sig|signature)=)(?P<{}>[^\s&\"'#<>]+)",
    "-Signature": r"(?i:\bX-(?:Amz|Goog|Oss|Cos)-Signature[\"']?\s*[=:]\s*[\"']?)(?P<{}>[\w%+/=-]+)",
    "-Security-Token": r"(?i:\bX-(?:Amz|Goog)-Security-Token[\"']?\s*[=:]\s*[\"']?)(?P<{}>[\w%+/=.-]+)",
}
"""What a text has that shows where a secret stands, and the pattern of the place; its group is the secret."""
_KEY_LINE = r"(?<![\w+/.-])(?:[A-Za-z0-9+/]{64}|[A-Za-z0-9+/]{70})(?![\w+/=.-])"
"""A whole line of a private key's body as OpenSSL and OpenSSH write it, also after a log's own words."""
_LETTERS, _DIGITS, _SLASHES = 10, 3, 6
"""Of 64 random base64 characters, 26 are capitals, 26 small, 10 digits, 1 a slash; fewer than 1 in 1,000 such lines
have fewer letters or digits, or more slashes. Digests have no capitals, and paths more slashes and fewer digits."""


def secret_spans(text: str) -> Iterator[tuple[int, int]]:
    """Where secrets stand in a text, told by their shape; spans may overlap."""
    if len(text) >= 64:
        yield from (match.span() for match in _compiled(_KEY_LINE).finditer(text) if _is_random(match[0]))
    for mark, pattern in _TOKENS.items():
        if mark in text:
            yield from (
                match.span() for match in _compiled(rf"(?<![0-9A-Za-z]){pattern}(?![0-9A-Za-z])").finditer(text)
            )
    for mark, pattern in _PLACES.items():
        if mark in text:
            yield from (match.span("found") for match in _compiled(pattern.format("found")).finditer(text))


def _is_random(line: str) -> bool:
    """Whether the characters are mixed as in random base64."""
    capitals, small = sum(map(str.isupper, line)), sum(map(str.islower, line))
    digits, slashes = sum(map(str.isdigit, line)), line.count("/")
    return min(capitals, small) >= _LETTERS and digits >= _DIGITS and slashes <= _SLASHES


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)
