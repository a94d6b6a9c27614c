"""A form that answers have in common when they are plainly the same."""

from rostra.tasks.answers import LONGEST, items, read_answer, strange_words
from rostra.tasks.grading import plain, whole_number
from rostra.tasks.numbers import number


def canonical(answer: str) -> str:
    """Whole numbers as digits, fractions and decimals in lowest terms, other mathematics in one
    spelling, all without units; words without blanks. It is for counting answers, not for grading
    them."""
    whole = whole_number(answer)
    if whole is not None:
        return str(whole)
    bare = "".join(plain(answer).split())
    # Answers are counted that nobody graded, so of any length.
    if len(answer) > LONGEST:
        return bare
    read = read_answer(answer)
    if read.verbal:
        return ",".join(items(read.words)) or bare
    value = number(read.tight)
    if value is not None:
        return str(value)
    if not read.tight or strange_words(read.text):
        return bare
    # The two halves of a day are no unit that may be left out.
    return read.tight.casefold() + "".join(sorted(read.units & {"am", "pm"}))
