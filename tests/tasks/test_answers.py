"""Answers in the ways that models write them: reference, then answers that are right and wrong."""

import time
from collections.abc import Iterator

import pytest

from rostra.tasks.answers import LONGEST, compared
from rostra.tasks.mathgrader import MathGrader
from rostra.tasks.question import Question
from rostra.tasks.spelling import spelt
from rostra.tasks.workers import Workers

SETS = [
    (r"\{x\mid x>0\}", [r"\{x\mid x>0\}", r"\{x : 0<x\}", "x>0", r"(0,\infty)"], ["x<0", "y>0"]),
    (
        r"(0,\infty)",
        [r"\{x: x>0\}", r"\{x \in \mathbb{R} \mid x>0\}", r"\left\{x\mid x>0\right\}", "(x>0)"],
        [r"\{x\mid x\ge0\}", r"\{x\mid x<0\}", r"\{y\mid x>0\}", r"\{x\mid x>0"],
    ),
    (r"[0,\infty)", [r"\{x\mid x\geq0\}"], [r"\{x\mid x>0\}"]),
    ("(2,5)", [r"\{x\mid 5>x>2\}"], [r"\{x\mid 5\ge x>2\}", r"\{x\mid 2>x>5\}"]),
    (
        r"(-\infty,-\frac12)\cup(-\frac12,\infty)",
        [r"x\ne-\frac12", r"x\neq -0.5", r"\{x\mid x\ne-\frac12\}"],
        [r"x\ne\frac12", r"x=-\frac12", r"\ne-\frac12"],
    ),
    (
        r"\{-1\} \cup [0,7)",
        [r"x=-1 \text{ or } 0\le x<7"],
        [r"x=1 \text{ or } 0\le x<7", r"0\le x<7", r"y=-1 \text{ or } 0\le x<7"],
    ),
    (r"\left\{x>0\right.", [r"\left\{x>0\right."], [r"\left\{x>1\right."]),
]
NAMES = [
    ("(2,3)", ["(m,b)=(2,3)", "m=2,b=3", "(k,h)=(2,3)", "y=3,x=2"], ["(m,b)=(3,2)", "m=3,b=2"]),
    (
        r"(3,\frac{\pi}{2})",
        [r"(r,\theta)=(3,\frac{\pi}{2})", r"r=3,\theta=\frac{\pi}{2}"],
        [r"(r,\theta)=(\frac{\pi}{2},3)", r"r=\frac{\pi}{2},\theta=3"],
    ),
    ("m=2,b=3", ["b=3,m=2", "(m,b)=(2,3)", "(2,3)"], ["b=2,m=3", "(3,2)"]),
]
BASES = [
    ("52", [], ["x=52_8", "N = 52_{8}", "{52}_8", r"\text{52}_8"]),
    ("-52", [], ["-52_8"]),
    ("x=5", [], ["x=5_7"]),
    (
        "10",
        [],
        ["+10_2", "10_b", "10_{(2)}", "10_2+0", r"1\cdot10_2", r"\frac{10_2}{1}", "10_{987}"],
    ),
    ("1,2", [], ["1,2_3", "1_2,2_3"]),
    ("(1,2)", [], ["(1,2)_3", "(1_3,2_3)"]),
    (
        "1101_2, 1110_2",
        [r"1110_{2}\text{ and }1101_{2}"],
        ["1101, 1110", "1101_3, 1110_3", "1101_2, 1110_3"],
    ),
    ("-12_3", ["-12_{3}"], ["-12", "12_3", "-12_4"]),
    ("52_8", ["N=52_8", "x = 52_{8}", "{52}_8", r"\text{52}_8", "052_8"], ["N=52", "N=52_9", "42"]),
    ("3_7+4_7", ["4_7+3_7"], ["3+4", "7"]),
    ("2x_1", [r"x_1\cdot2"], ["2x_2"]),
]
POWERS = [
    ("72", ["2³3²", "2^3 3^2"], []),
    ("5^2 10", ["5²10"], ["5^{210}"]),
    ("2^{33}", ["2^{33}"], ["2³3"]),
    (r"440\text{ cm}^2", [r"440\text{ cm²}"], []),
]
LINES = [
    ("5", ["5"], ["9\n-4", "3\n+2", "9\\\\ -4"]),
    ("1.25", ["\n1.25\n"], ["987\n1.25", "1.25\n987", "1\\\\1.25", "1\\\\\n1.25", "1.25\n1.25"]),
    (r"\frac12", ["\\frac{1}\n{2}", "\\frac{1\n}{2}"], ["$\\frac13$\n$\\frac12$", "\\frac12\n5"]),
    ("(2,3)", ["(2,\n3)", "x=2\ny=3", "x = 2 \\\\ y = 3"], ["3\n2", "y=2\nx=3"]),
    ("x^2+1", ["x^2\n+1"], ["x^2\n1"]),
    (
        r"\begin{pmatrix} 1 \\ 7 \end{pmatrix}",
        ["\\begin{pmatrix}\n1\\\\\n7\n\\end{pmatrix}"],
        ["1\n7"],
    ),
]
NEAR = [
    (r"\pi r^2", [r"\pi r^2 \approx 3.14r^2"], [r"\pi r^2 \approx 5r^2"]),
    (r"5\text{ cm}", [r"5\text{ cm}\approx 5\text{ cm}"], [r"5\text{ cm}\approx 5\text{ km}"]),
    ("5", ["5", r"5\approx5.0"], [r"5 \approx 6", "5≈6", r"5\approx", r"\approx5", r"6\approx5"]),
    ("42", [], [r"42\approx 987", r"42\approx-42", r"42\approx x"]),
    ("1030", [r"1030\approx1.03\times10^3"], [r"1030\approx987"]),
    (
        r"\sqrt2",
        [r"\sqrt2\approx1.414", r"$\sqrt2\approx1.4$", r"x=\sqrt{2}≈1.41", r"\sqrt2\approx 1.4 cm"],
        [r"\sqrt2\approx5", r"\sqrt2\approx1.5", "1.414", r"1.414\approx\sqrt2"],
    ),
    (r"\frac13", [r"\frac13\approx0.33", r"2/6\approx0.333\approx0.3333"], [r"\frac13\approx33"]),
]
SIGNS = [
    ("(3,-3)", ["(3,-3)"], [r"\pm 3"]),
    ("[3,-3]", [], [r"\pm 3"]),
    (r"\{3,-3\}", [r"\pm 3"], []),
    (
        r"\frac{-3\pm\sqrt{17}}{4}",
        [
            r"\frac{-3+\sqrt{17}}{4},\frac{-3-\sqrt{17}}{4}",
            r"-\frac34\pm\frac{\sqrt{17}}{4}",
            r"x=\frac{-3\pm\sqrt{17}}{4}",
            r"\left\{\frac{-3\pm\sqrt{17}}{4}\right\}",
        ],
        [
            r"\frac{-3+\sqrt{17}}{4}",
            r"\frac{3\pm\sqrt{17}}{4}",
            r"\frac{-3+\sqrt{17}}{4},\frac{3-\sqrt{17}}{4}",
        ],
    ),
    (r"1\pm\frac{\sqrt2}{2}", [r"\frac{2\pm\sqrt2}{2}"], [r"\frac{1\pm\sqrt2}{2}"]),
    (r"2(1\pm\sqrt3)", [r"2\pm2\sqrt3"], [r"2\pm\sqrt3", r"2+2\sqrt3"]),
    (r"\sqrt7", [], [r"\pm\sqrt7", r"\sqrt7,-\sqrt7"]),
]
THOUSANDS = [
    ("58,500", ["x=58,500", "x = 58500", r"\boxed{58,500}"], ["x=58, 500", "(58,500)"]),
    (r"1000\pi", [r"1,000\pi"], [r"1,00\pi", r"1, 000\pi"]),
    (r"2000\sqrt3", [r"2,000\sqrt3"], [r"2,\sqrt3"]),
    (r"\frac{1000}{3}", [r"\frac{1,000}{3}"], [r"\frac{1,00}{3}"]),
    ("1000, 2000", ["1,000, 2,000", "1,000 and 2,000", r"\$1,000, \$2,000"], ["1,000, 2,0"]),
    ("100, 200, 300", ["100,200, 300", "100,200,300"], ["100200, 300"]),
    ("1,200", ["1200"], ["1, 200", "(1,200)"]),
    ("(1,200)", ["(1, 200)"], ["1200", "(1200)"]),
    (r"\$15,\!000", [r"\$15,000", "15,000"], ["15, 000"]),
    ("18", [], ["0,018"]),
]
UNITS = [
    (
        r"45^\circ, 135^\circ",
        [r"45\text{ degrees}, 135\text{ degrees}", "45 degrees and 135 degrees", "135, 45"],
        [r"45\text{ cm}, 135\text{ cm}", "45 degrees and 13 degrees", "45 degrees"],
    ),
    (
        "5,6",
        [r"5\text{ cm}, 6\text{ cm}", r"5\text{ cm and }6\text{ cm}", "5 cm and 6 cm"],
        [r"5\text{ cm}, 7\text{ cm}", r"5\text{ feet and }6\text{ inches}", "5 million, 6 million"],
    ),
    (
        r"10\text{ feet}, 12\text{ feet}",
        ["10, 12", r"12\text{ ft}, 10\text{ ft}"],
        ["10", r"10\text{ cm}, 12\text{ cm}"],
    ),
    (
        r"\$10\text{ and }\$12",
        [r"\$10, \$12", "10, 12", "$10 and $12", r"\$12 \text{ and } \$10"],
        [r"\$10", r"\$10, \$13", r"10\text{ cm}, 12\text{ cm}"],
    ),
    ("10", [], [r"10\text{ cm or }12\text{ cm}"]),
    (r"5\text{ gallons}", [r"5\text{ gal}"], [r"5\text{ qt}"]),
    (r"5\text{ quarts}", [r"5\text{ qt}"], [r"5\text{ gal}"]),
    (r"5\text{ yards}", [r"5\text{ yds}"], [r"5\text{ ft}"]),
    (r"440\text{ cm}^2", [r"440\text{ cm²}", "440 cm²"], [r"440\text{ cm³}", "440²"]),
]
RATIOS = [
    ("6:08", ["6:08"], ["6 to 8"]),
    ("12:05", [], ["12 to 5"]),
    ("1:2", [r"1\text{ to }2", "1 to 2", "1{:}2", r"1 \colon 2"], ["2 to 1", "12", "1 or 2"]),
    (r"2\text{ to }3", ["2:3"], ["3:2"]),
    (r"\text{4:30 p.m.}", ["04:30 p.m.", "4:30 PM"], ["04:30 a.m.", "14:30 p.m.", "4:03 p.m."]),
]
MARKUP = [
    (
        r"\frac{14}{3}",
        [r"\mathbf{\frac{14}{3}}", r"\textstyle\frac{14}3"],
        [r"\mathbf{\frac{3}{14}}"],
    ),
    ("3", [r"\boldsymbol{3}", r"\underline{3}", "3rd", r"3^{\text{rd}}"], ["3^{3}", "{3,4}"]),
    ("21", ["21st", r"21^{\text{st}}", r"21^\text{st}", r"21\text{st}"], ["21s", "21t", "21^{s}"]),
    ("10", [], [r"10\text{th root}", r"10^{t}"]),
    (r"3\sqrt2", [r"\text{$3\sqrt{2}$}"], [r"\text{$2\sqrt{3}$}"]),
    ("(-2,1)", ["{(-2,1)}", r"\mathbf{(-2,1)}"], ["{(1,-2)}", "{-2,1}"]),
    ("4210_5", [r"\mathbf{4210_{5}}"], [r"\mathbf{4210}"]),
    (
        r"48^\circ",
        [r"48{}^\circ", r"48{^\circ}", r"48{^{\circ}}", "48º", r"48\textdegree"],
        [r"48^{0}", "48{}^2"],
    ),
    (r"\sqrt[3]{4}", [r"\sqrt[3]4"], [r"\sqrt4", r"\sqrt[4]3"]),
    (r"\infty", [r"\text{infinity}", "infinity"], [r"-\infty", r"\text{finite}"]),
    (r"5\ne 6", [r"5\neq6"], ["5!=6"]),
    ("120", ["5!=120", r"{10 \choose 3}"], ["5!=12", r"{10 \choose 2}"]),
]
TABLES = {
    "sets": SETS,
    "names": NAMES,
    "bases": BASES,
    "powers": POWERS,
    "lines": LINES,
    "near": NEAR,
    "signs": SIGNS,
    "thousands": THOUSANDS,
    "units": UNITS,
    "ratios": RATIOS,
    "markup": MARKUP,
}


@pytest.fixture(scope="module")
def grader() -> Iterator[MathGrader]:
    workers = Workers("rostra.tasks.algebra", count=1)
    yield MathGrader(workers)
    workers.close()


@pytest.mark.parametrize("about", TABLES)
def test_answers_are_marked_as_the_tables_say(grader: MathGrader, about: str) -> None:
    rows = [(gold, said, True) for gold, right, _ in TABLES[about] for said in (gold, *right)]
    rows += [(gold, said, False) for gold, _, wrong in TABLES[about] for said in wrong]
    marks = grader.grade([(said, Question("q", "?", gold)) for gold, said, _ in rows])
    assert [row for row, mark in zip(rows, marks, strict=True) if mark != row[2]] == []


def test_a_reference_is_its_own_right_answer_without_algebra() -> None:
    golds = [gold for table in TABLES.values() for gold, _, _ in table]
    assert [gold for gold in golds if compared(gold, gold) is not True] == []


def test_long_answers_are_spelt_and_compared_in_no_time() -> None:
    pieces = (
        *(
            "1,000",
            "1,",
            "5_",
            "(1)_2",
            "{",
            "{}",
            "\n",
            "1\n",
            " ",
            "\\\\ ",
            "\\pm",
            "\\text{ and }",
        ),
        *(
            "\\approx",
            "\\mathbf{",
            "\\sqrt",
            "x=1 or ",
            "x\\ne",
            "1 cm,",
            "^{\\text{",
            "0:0",
            "(x>",
        ),
    )
    began = time.process_time()
    for piece in pieces:
        spelt(piece * 5000)
        for end in ("", "x", "7"):
            compared((piece * LONGEST)[:LONGEST] + end, "1, 2")
    assert time.process_time() - began < 5
