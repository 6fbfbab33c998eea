"""The bottom layer: a callback of one's own sees every function that is called, and may give it other code."""

from __future__ import annotations

from torchdynamo.eval_frame import GuardedCode, cache_entries, set_eval_frame


def area(width, height):
    return width * height


def area_with_print(width, height):
    print("area of", width, "by", height)
    return width * height


def callback(frame, cache_entry, frame_state):
    """Let `area` say what it does, but only for squares."""
    if frame.f_code is not area.__code__ or frame.f_locals["width"] != frame.f_locals["height"]:
        return None
    print("first square:", frame.f_locals)
    return GuardedCode(area_with_print.__code__, lambda f_locals: f_locals["width"] == f_locals["height"])


if __name__ == "__main__":
    prior = set_eval_frame(callback)
    try:
        results = [area(3, 4), area(3, 3), area(5, 5), area(2, 6)]
    finally:
        set_eval_frame(prior)
    print(results, "and", len(cache_entries(area)), "entry")
