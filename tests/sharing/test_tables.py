"""Tables as files: CSV that a spreadsheet can't run, several in a zip, texts left out."""

from __future__ import annotations

import io
import zipfile

import pandas as pd

from opbench.sharing.sheet import Chart, Column, Data, Sheet
from opbench.sharing.tables import csv_bytes, csv_files, no_formulas, tables_of


def table(name: str, texts: tuple[str, ...] = ()) -> Data:
    frame = pd.DataFrame({"question": ["=1+1", "plain"], "score": [0.25, float("nan")]})
    return Data(name, frame, {"question": Column("question")}, frame, texts)


def test_a_cell_or_head_that_begins_like_a_formula_gets_an_apostrophe() -> None:
    frame = pd.DataFrame({"@sum": ["=1+1", "+2", "-3", "@x", "\tx", "x=1"], "n": [-1.5] * 6})
    lines = csv_bytes(frame).decode().splitlines()
    assert lines[0] == "'@sum,n"
    assert lines[1:] == ["'=1+1,-1.5", "'+2,-1.5", "'-3,-1.5", "'@x,-1.5", "'\tx,-1.5", "x=1,-1.5"]


def test_one_table_is_a_csv_and_several_are_a_zip() -> None:
    ranges = pd.DataFrame({"span": ["+17.0 to +23.0", "+3 to \u22124.5", "+1.5", "+1 to cmd|calc", "+1+2", "-1 to =2"]})
    changes = pd.DataFrame({"change": ["+0.1 points", "+0.1 points+1"]})
    assert no_formulas(changes)["change"].tolist() == ["+0.1 points", "'+0.1 points+1"]
    assert no_formulas(ranges)["span"].tolist() == [
        *("+17.0 to +23.0", "+3 to \u22124.5"),
        *("'+1.5", "'+1 to cmd|calc", "'+1+2", "'-1 to =2"),
    ]
    assert csv_files([table("op")]) == ("op.csv", b"question,score\n'=1+1,0.25\nplain,\n")
    name, packed = csv_files([table("op"), table("locomo")])
    assert name == "tables.zip"
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert archive.namelist() == ["op.csv", "locomo.csv"]
        assert archive.read("locomo.csv") == b"question,score\n'=1+1,0.25\nplain,\n"


def test_a_files_rows_carry_the_views_marks() -> None:
    marks = ["run abc", "not comparable with the paper"]
    told = b"run abc; not comparable with the paper"
    assert (
        csv_files([table("op")], marks)[1] == b"question,score,marks\n'=1+1,0.25," + told + b"\nplain,," + told + b"\n"
    )
    assert csv_bytes(table("op").whole, ["=1+1"]).endswith(b",'=1+1\n"), "what a bundle says is no formula either"


def test_texts_are_left_out_of_the_files_too() -> None:
    sheet = Sheet("p", blocks=[table("op", ("question",))])
    assert csv_files(tables_of(sheet, with_texts=False))[1] == b'score\n0.25\n""\n'
    assert b"plain" in csv_files(tables_of(sheet, with_texts=True))[1]
    assert not [block for block in sheet.blocks if isinstance(block, Chart)]
