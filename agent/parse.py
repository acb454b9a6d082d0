"""Read what a model answered: fenced blocks first, then anything that looks like code. Tolerant by design."""

from __future__ import annotations

import re

_FENCE = re.compile(r"```[ \t]*([\w+-]*)[ \t]*\r?\n(.*?)(?:```|\Z)", re.DOTALL)
_THINKING = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_CODE_TAGS = ("cpp", "c++", "cc", "c", "cxx")


def strip_reasoning(answer: str) -> str:
    """Return `answer` without its reasoning blocks, closed or cut off."""
    return _THINKING.sub("", answer)


def extract_source(answer: str) -> str:
    """Return the C++ source in `answer`: the longest block fenced as C++, else the longest fence, else the whole text.

    The whole text is returned rather than an error: it is then judged like any other candidate and fails to compile,
    and the attempt is counted.
    """
    text = strip_reasoning(answer)
    blocks = [(tag.lower(), body) for tag, body in _FENCE.findall(text)]
    tagged = [body for tag, body in blocks if tag in _CODE_TAGS]
    pool = tagged or [body for _, body in blocks]
    return max(pool, key=len).strip("\n") + "\n" if pool else text.strip() + "\n"


def plan_line(answer: str) -> str:
    """Return the first line of prose, cut to 200 characters: what the model says it is doing."""
    for line in strip_reasoning(answer).splitlines():
        words = line.strip().strip("#*` ")
        if words:
            return words[:200]
    return ""
