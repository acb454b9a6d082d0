"""Replace what a trace must not give away: credentials, users, hosts."""

from __future__ import annotations

import re

_CREDENTIALS = re.compile(
    r"""
      \b(?:hf|ghp|gho|ghs|ghu|github_pat|glpat|pypi|npm|dckr_pat)[_-][A-Za-z0-9_-]{16,}
    | \bsk-[A-Za-z0-9_-]{16,}                               # OpenAI and Anthropic
    | \b(?:AKIA|ASIA)[A-Z0-9]{16}\b                         # AWS
    | \bAIza[A-Za-z0-9_-]{30,}                              # Google
    | \bxox[abprs]-[A-Za-z0-9-]{10,}                        # Slack
    | \beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}(?:\.[A-Za-z0-9_-]*)?   # JSON web token
    | -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----
    """,
    re.VERBOSE,
)
_ASSIGNED = re.compile(
    r"""\b((?:[A-Z0-9]+_)*(?:TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|ACCESS_KEY|KEY_ID|CREDENTIALS?)["']?\s*[=:]\s*)
        (?!\d+\b)("[^"]*"|'[^']*'|[^\s,;]{6,})""",
    re.VERBOSE | re.IGNORECASE,
)
_BEARER = re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9._~+/=-]{12,}", re.IGNORECASE)
_LOGIN = re.compile(r"\b([a-z][a-z0-9+.-]*://)[^\s/@]+@", re.IGNORECASE)
_HOME = re.compile(r"((?:^|(?<=[\s\"'(=:]))(?:/home|/Users|[A-Za-z]:[\\/]+Users)[\\/]+)(?!user[\\/])[^\\/\s\"':]+")


def redact(text: str) -> str:
    """Return `text` with tokens, passwords, logins in addresses and names of home folders replaced."""
    text = _CREDENTIALS.sub("[credential]", text)
    if "=" in text or ":" in text:
        text = _LOGIN.sub(r"\1[login]@", _ASSIGNED.sub(r"\1[credential]", text))
    if "earer" in text or "asic " in text:
        text = _BEARER.sub(r"\1 [credential]", text)
    return _HOME.sub(r"\1user", text) if "/home" in text or "Users" in text else text
