"""Small pieces of messages that several rooms share."""

__all__ = ["SIDES", "agreeing", "counted", "first_line"]

SIDES = {"x": "outputs", "t": "prompts"}
"""What the two sides of a pair are called, by the names of their arguments."""


def counted(count: int, singular: str, plural: str) -> str:
    """Return a count with the words that agree with it.

    >>> counted(1, "file is", "files are"), counted(1200, "file is", "files are")
    ('1 file is', '1,200 files are')
    """
    return f"{count:,} {agreeing(count, singular, plural)}"


def agreeing(count: int, singular: str, plural: str) -> str:
    """Return the words that agree with a count.

    >>> f"1 of 3 files {agreeing(1, 'is', 'are')} unused"
    '1 of 3 files is unused'
    """
    if count == 1:
        return singular
    return plural


def first_line(error: BaseException) -> str:
    r"""Return the first line of an error without its full stop, or the name of its class.

    >>> first_line(ValueError("bad header.\nsecond line")), first_line(EOFError())
    ('bad header', 'EOFError')
    """
    lines = str(error).splitlines()
    if not lines or not lines[0]:
        return type(error).__name__
    return lines[0].rstrip(".")
