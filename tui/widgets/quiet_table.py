"""QuietTable: a DataTable by rows that keeps its cursor on the same row when it is filled again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import DataTable
from textual.widgets.data_table import RowDoesNotExist

Row = tuple[str, Sequence[Text]]


class QuietTable(DataTable[Text]):
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("home,g", "scroll_top", "Top", show=False),
        Binding("end,G", "scroll_bottom", "Bottom", show=False),
    ]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(cursor_type="row", cell_padding=1, cursor_foreground_priority="renderable", **kwargs)
        self._columns_shown: tuple[str, ...] = ()
        self._rows_shown: list[tuple[str, tuple[str, ...]]] = []

    @property
    def cursor_key(self) -> str | None:
        """The key of the row under the cursor; None in an empty table."""
        if not self.row_count:
            return None
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value

    def fill(self, columns: Sequence[str], rows: Sequence[Row]) -> None:
        """Show these rows; nothing happens when they are the ones shown already."""
        plain = [(key, tuple(cell.markup for cell in cells)) for key, cells in rows]
        if plain == self._rows_shown and tuple(columns) == self._columns_shown:
            return
        key, top = self.cursor_key, self.cursor_row == 0
        scroll = self.scroll_y
        self.clear(columns=True)
        for column in columns:
            self.add_column(Text(column.strip(), justify="right" if column.startswith(" ") else "left"), key=column)
        for row_key, cells in rows:
            self.add_row(*cells, key=row_key)
        self._columns_shown, self._rows_shown = tuple(columns), plain
        # A cursor that was moved stays on its row; one at the top keeps showing what is newest.
        if key is not None and not top:
            try:
                self.move_cursor(row=self.get_row_index(key), scroll=False)
                self.scroll_to(y=scroll, animate=False)
            except RowDoesNotExist:
                self.move_cursor(row=0)
