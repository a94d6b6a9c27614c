"""Rows of files: where they stand, and what is wrong with them."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rostra.errors import DataError
from rostra.tasks.rows import Row, read_rows


def written(folder: Path, text: str | bytes, name: str = "train.jsonl") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def complaint(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        list(read_rows(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_rows_know_their_file_and_line(tmp_path: Path) -> None:
    rows = list(read_rows(written(tmp_path, '{"a": 1}\n\n{"a": 2}\n')))
    assert [(row.place, row.id, row.values) for row in rows] == [
        ("train.jsonl, line 1", "train-1", {"a": 1}),
        ("train.jsonl, line 3", "train-3", {"a": 2}),
    ]


@pytest.mark.parametrize(
    "text",
    [
        b'\xef\xbb\xbf{"a": "\xc3\xa9"}\n',
        b'{"a": "\xc3\xa9"}\r\n\r\n   \r\n',
        b'\n\n{"a": "\xc3\xa9"}',
        b'{"a": "\\u00e9"}\n',
    ],
    ids=["byte order mark", "windows lines", "no last newline", "escaped"],
)
def test_files_of_any_editor_are_read(text: bytes, tmp_path: Path) -> None:
    assert [row.values for row in read_rows(written(tmp_path, text))] == [{"a": "é"}]


def test_an_empty_file_has_no_rows(tmp_path: Path) -> None:
    assert list(read_rows(written(tmp_path, ""))) == []


def test_a_torn_last_line_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, '{"a": 1}\n{"a": "hal')
    assert complaint(path) == "train.jsonl, line 2: is cut short: the file ends inside of a row"


def test_a_line_that_is_torn_inside_of_a_character_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, b'{"a": 1}\n{"a": "\xc3')
    assert "train.jsonl, line 2: is cut short" in complaint(path)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{'a': 1}", "not valid JSON"),
        ("[1, 2]", "must be an object with named fields"),
        ("3", "must be an object"),
        ("null", "must be an object"),
        ("[" * 100_000, "not valid JSON"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
    ],
)
def test_a_bad_row_is_named_with_its_line(line: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, f'{{"a": 1}}\n\n{line}\n{{"a": 2}}\n')
    assert complaint(path).startswith(f"train.jsonl, line 3: {said}")


def test_bytes_that_are_no_text_are_named_with_their_line(tmp_path: Path) -> None:
    assert complaint(written(tmp_path, b'{"a": "\xff\xfe"}\n')).startswith("train.jsonl, line 1: ")


def test_rows_are_read_one_at_a_time(tmp_path: Path) -> None:
    rows = read_rows(written(tmp_path, '{"a": 1}\n{"a": 2}\nbroken\n'))
    assert [next(rows).values["a"], next(rows).values["a"]] == [1, 2]
    with pytest.raises(DataError, match="line 3"):
        next(rows)


def test_packed_files_are_read(tmp_path: Path) -> None:
    packed = gzip.compress(b'{"a": 1}\n{"a": 2}\n')
    rows = list(read_rows(written(tmp_path, packed, "test.jsonl.gz")))
    assert [(row.id, row.values["a"]) for row in rows] == [("test-1", 1), ("test-2", 2)]


@pytest.mark.parametrize("end", [-1, -4, 12])
def test_a_packed_file_that_is_cut_short_is_named(end: int, tmp_path: Path) -> None:
    packed = gzip.compress(b'{"a": 1}\n' * 2000)[:end]
    assert complaint(written(tmp_path, packed, "x.jsonl.gz")).startswith("x.jsonl.gz")


def test_a_file_that_only_says_it_is_packed_is_named(tmp_path: Path) -> None:
    assert "cannot be unpacked" in complaint(written(tmp_path, '{"a": 1}\n', "x.jsonl.gz"))


def test_a_list_in_a_json_file_is_its_rows(tmp_path: Path) -> None:
    rows = list(read_rows(written(tmp_path, '\ufeff[{"a": 1}, {"a": 2}]', "data.json")))
    assert [(row.place, row.id) for row in rows] == [
        ("data.json, row 1", "data-1"),
        ("data.json, row 2", "data-2"),
    ]


def test_a_lone_object_in_a_json_file_is_a_row(tmp_path: Path) -> None:
    assert [r.values for r in read_rows(written(tmp_path, '{"a": 1}', "1.json"))] == [{"a": 1}]


@pytest.mark.parametrize("text", ["3", "[1]", '[{"a": 1}', ""])
def test_a_json_file_of_anything_else_is_refused(text: str, tmp_path: Path) -> None:
    assert complaint(written(tmp_path, text, "data.json")).startswith("data.json")


def test_a_parquet_file_is_read(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    path = tmp_path / "data.parquet"
    datasets.Dataset.from_list([{"a": "x", "n": 1}, {"a": "y", "n": 2}]).to_parquet(str(path))
    rows = list(read_rows(path))
    assert [(row.place, row.values) for row in rows] == [
        ("data.parquet, row 1", {"a": "x", "n": 1}),
        ("data.parquet, row 2", {"a": "y", "n": 2}),
    ]


def test_a_broken_parquet_file_is_named(tmp_path: Path) -> None:
    assert complaint(written(tmp_path, "PAR1 nothing", "x.parquet")).startswith("x.parquet: ")


def test_another_kind_of_file_is_refused_with_the_kinds_there_are(tmp_path: Path) -> None:
    assert ".jsonl, .jsonl.gz, .json, .parquet" in complaint(written(tmp_path, "a,b", "x.csv"))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "cannot be read: No such file" in complaint(tmp_path / "x.jsonl")


@settings(max_examples=60, deadline=None)
@given(st.lists(st.dictionaries(st.text(max_size=5), st.text(max_size=9)), max_size=6))
def test_what_was_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]]
) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    path = written(tmp_path_factory.mktemp("rows"), text)
    assert [row.values for row in read_rows(path)] == rows


# Fields


def test_texts_of_a_list_are_named_by_their_place() -> None:
    assert row().texts("option", ["a", 2]) == ["a", "2"]
    for values in (["a", None], ["a", ["b"]], ["a", {"b": 1}], ["a", True]):
        with pytest.raises(DataError, match="^train.jsonl, line 17: 'option 2' "):
            row().texts("option", values)


def row(**values: object) -> Row:
    return Row("train.jsonl", 17, values)


def test_the_first_field_that_is_there_is_taken() -> None:
    assert row(question="q", problem=None).text("problem", "question") == "q"
    assert row(answer=42).text("answer") == "42"
    assert row(answer=0.5).text("answer") == "0.5"


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"qestion": "?"}, "no field 'question', did you mean 'qestion'?"),
        ({"text": "?", "label": 1}, "no field 'question' (there are: text, label)"),
        ({}, "no field 'question' (there are: none)"),
        ({"question": None}, "'question' is null, and must be a text or a number"),
        ({"question": ["a"]}, "'question' must be a text or a number"),
        ({"question": True}, "'question' must be a text or a number"),
        ({"question": "\ud800"}, "the text of 'question' holds half a character"),
        ({"question": " \n"}, "the question is empty"),
    ],
)
def test_a_field_that_cannot_be_used_is_named_with_its_line(
    values: dict[str, object], said: str
) -> None:
    with pytest.raises(DataError) as caught:
        row(**values).prompt("question")
    assert str(caught.value) == f"train.jsonl, line 17: {said}"
