"""Columns of text that fit their terminal: by leaving columns out, never by wrapping them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from voicebench.words import NOTHING

MARK = "*"
"""May follow a value; the digits of its column stay below each other."""
GAP = 2
NARROW, NARROWEST = 24, 4
"""So far names in the first column are cut before a column goes; and if that is not enough."""
Cell = str | Text


@dataclass(frozen=True, slots=True)
class Column:
    """`rank`: columns of the highest rank go first when the terminal is too narrow for all; 0 stays."""

    group: str
    name: str
    rank: int = 0
    left: bool = False


def print_grid(out: Console, columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> None:
    """Rows under their columns' names: as many columns as fit, none of a rank that would hold dashes only.

    A row of one cell is a heading among rows. What still does not fit is taken from the first column.
    """
    texts = [[Text(cell) if isinstance(cell, str) else cell for cell in row] for row in rows]
    full = [row for row in texts if len(row) == len(columns)]
    kept = _chosen(columns, full, out.width)
    filled = [
        _column(columns, n, full, grouped=before is None or columns[before].group != columns[n].group)
        for before, n in zip([None, *kept], kept, strict=False)
    ]
    widths = [max(cell.cell_len for cell in cells) for cells in filled]
    over = _total(widths) - out.width
    if over > 0:
        widths[0] = max(NARROWEST, widths[0] - over)
    groups, names, *lines = (
        _line([columns[n].left for n in kept], widths, cells) for cells in zip(*filled, strict=True)
    )
    for header in (groups, names):
        if header.plain:
            out.print(header)
    following = iter(lines)
    for row in texts:
        out.print(next(following) if len(row) == len(columns) else Text(" ") + row[0])


def _chosen(columns: Sequence[Column], full: Sequence[Sequence[Text]], width: int) -> list[int]:
    def wide(n: int) -> int:
        widest = max(cell.cell_len for cell in _column(columns, n, full, grouped=True))
        return widest if n else min(widest, NARROW)

    shown = [n for n, column in enumerate(columns) if not column.rank or any(row[n].plain != NOTHING for row in full)]
    while _total([wide(n) for n in shown]) > width and any(columns[n].rank for n in shown):
        shown.remove(max(shown, key=lambda n: columns[n].rank))
    return shown


def _column(columns: Sequence[Column], n: int, full: Sequence[Sequence[Text]], *, grouped: bool) -> list[Text]:
    """The group's name, the column's and its values, with room for a mark behind each if one of them has one."""
    header = [Text(columns[n].group if grouped else "", "bold"), Text(columns[n].name, "bold")]
    cells = [*header, *(row[n] for row in full)]
    marked = not columns[n].left and any(cell.plain.endswith(MARK) for cell in cells)
    return [cell + Text(" ") if marked and not cell.plain.endswith(MARK) else cell for cell in cells]


def _total(widths: Sequence[int]) -> int:
    return 1 + sum(widths) + GAP * (len(widths) - 1)


def _line(left: Sequence[bool], widths: Sequence[int], cells: Sequence[Text]) -> Text:
    line = Text(" ")
    for leftmost, width, cell in zip(left, widths, cells, strict=True):
        shown = cell.copy()
        shown.truncate(width, overflow="ellipsis")
        room = " " * (width - shown.cell_len)
        line.append_text(Text.assemble(shown, room) if leftmost else Text.assemble(room, shown))
        line.append(" " * GAP)
    line.rstrip()
    return line
