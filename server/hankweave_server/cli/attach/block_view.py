"""The widget that shows blocks, with a cursor that goes from one to the next.

Lines are drawn when they are first needed for a width and kept until their block changes, so that a
long transcript costs what is new in it. The view follows the end until the reader goes back.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import ClassVar

from rich.console import RenderableType
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from hankweave_server.cli.attach.drawing import drawn
from hankweave_server.cli.attach.transcript import Block

_CURSOR = Segment("▌", Style(color="cyan"))
_NO_CURSOR = Segment(" ")
_FOUND = Style(reverse=True)
_NEAR = 5
"""Lines from the top at which older blocks are asked for."""


class BlockView(ScrollView, can_focus=True):
    """Blocks below each other, separated by empty lines."""

    DEFAULT_CSS = """
    BlockView { background: $background; scrollbar-size-vertical: 1; overflow-x: hidden; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "go(-1)", "previous block", show=False),
        Binding("down,j", "go(1)", "next block", show=False),
        Binding("pageup", "page(-1)", "page up", show=False),
        Binding("pagedown,space", "page(1)", "page down", show=False),
        Binding("home,g", "first", "beginning", show=False),
        Binding("end,G", "last", "end", show=False),
        Binding("enter,o", "open", "open or close", show=False),
    ]

    class ViewMessage(Message):
        """A message of a view."""

        def __init__(self, view: BlockView) -> None:
            super().__init__()
            self._view = view

        @property
        def control(self) -> BlockView:
            return self._view

    class TopReached(ViewMessage):
        """The reader has come near the first block."""

    class Opened(ViewMessage):
        """A block was opened, or opened again."""

        def __init__(self, view: BlockView, block: Block) -> None:
            super().__init__(view)
            self.block = block

    def __init__(self, *, id: str | None = None, follows: bool = False) -> None:
        """Create an empty view; one that `follows` shows its end until the reader goes back."""
        super().__init__(id=id)
        self.follows = follows
        self.at = 0
        """The block with the cursor."""
        self._blocks: Sequence[Block] = ()
        self._root = ""
        self._open: set[int] = set()
        """The keys of open blocks."""
        self._lines: dict[int, tuple[tuple[object, ...], list[Strip]]] = {}
        """The lines of each block by its key, with what they were drawn from."""
        self._ends: list[int] = []
        """For each block, the number of the line after it."""
        self._needle = ""

    # --- contents ----------------------------------------------------------------------------

    def show(self, blocks: Sequence[Block], *, root: str = "", starts: bool = False) -> None:
        """Show blocks in place of those before; with `starts`, forget where the reader was.

        Otherwise the reader stays where they were, also if older blocks were put before.
        """
        if starts:
            self._open.clear()
            self._lines.clear()
            self.at, self._blocks, self._ends = 0, (), []

        key, offset = self._anchor()
        self._blocks, self._root = list(blocks), root
        self._draw_all()
        if self.follows:
            self.at = max(0, len(self._blocks) - 1)
            self.scroll_end(animate=False, force=True, immediate=True)
        elif key is not None:
            self.at = self._number_of(key) or 0
            self._scroll(self._begin(self.at) + offset)
        else:
            self._scroll(0)

        self.refresh()

    def mark_text(self, needle: str) -> None:
        """Mark a text wherever it is shown."""
        self._needle = needle
        self.refresh()

    def select(self, block: Block) -> None:
        """Open a block and move the cursor to it."""
        self.follows = False
        self._open.add(block.key)
        self._draw_all()
        number = self._number_of(block.key)
        if number is not None:
            self.at = number
            self._show_found()

        self.refresh()

    def open_all(self) -> None:
        self._open |= {block.key for block in self._blocks}
        self._draw_all()

    @property
    def current(self) -> Block | None:
        return self._blocks[self.at] if self.at < len(self._blocks) else None

    # --- keys and mouse ----------------------------------------------------------------------

    def action_go(self, by: int) -> None:
        """Move the cursor; within a block that is longer than the view, move the view."""
        self.follows = False
        top, height = self.scroll_offset.y, self.scrollable_content_region.height
        begin, end = self._begin(self.at), self._begin(self.at + 1)
        is_longer = begin < top if by < 0 else end > top + height
        is_seen = begin < top + height and end > top
        if is_longer and is_seen:
            step = max(1, height // 2)
            self._scroll(max(top - step, begin) if by < 0 else min(top + step, end - height))
        else:
            self.at = min(max(self.at + by, 0), max(0, len(self._blocks) - 1))
            self._show_cursor()

        self._note_end()

    def action_page(self, by: int) -> None:
        self.follows = False
        height = self.scrollable_content_region.height
        self._scroll(self.scroll_offset.y + by * max(1, height - 1))
        self.at = self._number_at(self.scroll_offset.y + (0 if by < 0 else height // 2))
        self._note_end()

    def action_first(self) -> None:
        self.follows, self.at = False, 0
        self._scroll(0)

    def action_last(self) -> None:
        self.at = max(0, len(self._blocks) - 1)
        self.scroll_end(animate=False, force=True, immediate=True)
        self._note_end()
        self.refresh()

    def action_open(self) -> None:
        """Open or close the block with the cursor."""
        block = self.current
        if block is None:
            return

        self.follows = False
        if block.key not in self._open or _has_more(block):
            self._open.add(block.key)
            self.post_message(self.Opened(self, block))
        else:
            self._open.remove(block.key)

        self._draw_all()
        self._show_cursor()

    def on_click(self, event: events.Click) -> None:
        number = self._number_at(self.scroll_offset.y + event.y)
        is_again = number == self.at
        self.follows, self.at = False, number
        if is_again or event.chain > 1:
            self.action_open()

        self.refresh()

    def on_mouse_scroll_up(self, _event: events.MouseScrollUp) -> None:
        self.follows = False

    def on_resize(self) -> None:
        self.show(self._blocks, root=self._root)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if new_value < old_value and new_value <= _NEAR:
            self.post_message(self.TopReached(self))

    def _note_end(self) -> None:
        """Follow again once the reader has come to the last block."""
        is_last = self.at >= len(self._blocks) - 1
        self.follows = is_last and self.scroll_offset.y >= self.max_scroll_y
        self.refresh()
        if self.at == 0:
            self.post_message(self.TopReached(self))

    def _scroll(self, line: int) -> None:
        self.scroll_to(y=line, animate=False, force=True, immediate=True)
        self.refresh()

    def _show_cursor(self) -> None:
        begin, end = self._begin(self.at), self._begin(self.at + 1)
        self.scroll_to_region(
            Region(0, begin, 1, max(1, end - begin)), animate=False, force=True, immediate=True
        )
        self.refresh()

    def _show_found(self) -> None:
        """Show the first line of the block with what is looked for."""
        lines = self._lines_of(self._blocks[self.at])
        found = (i for i, line in enumerate(lines) if self._needle.lower() in line.text.lower())
        line = self._begin(self.at) + next(found, 0)
        self._scroll(max(0, line - self.scrollable_content_region.height // 3))

    # --- lines -------------------------------------------------------------------------------

    def _anchor(self) -> tuple[int | None, int]:
        """Return the block with the cursor, and how far above its beginning the view begins."""
        block = self.current
        return (
            (None, 0)
            if block is None
            else (
                block.key,
                self.scroll_offset.y - self._begin(self.at),
            )
        )

    def _number_of(self, key: int) -> int | None:
        return next((i for i, block in enumerate(self._blocks) if block.key == key), None)

    def _number_at(self, line: int) -> int:
        return min(bisect_right(self._ends, max(0, line)), max(0, len(self._blocks) - 1))

    def _begin(self, number: int) -> int:
        return self._ends[min(number, len(self._ends)) - 1] if number > 0 and self._ends else 0

    def _draw_all(self) -> None:
        width = self.scrollable_content_region.width
        heights = (len(self._lines_of(block)) + 1 for block in self._blocks) if width else ()
        self._ends = list(accumulate(heights))
        # The last block needs no empty line after it.
        self.virtual_size = Size(width, max(0, self._begin(len(self._ends)) - 1))

    def _lines_of(self, block: Block) -> list[Strip]:
        width = max(2, self.scrollable_content_region.width) - 1
        is_open = block.key in self._open
        made_of = (block.stamp, is_open, width, self._root, id(block))
        known = self._lines.get(block.key)
        if known is None or known[0] != made_of:
            what = drawn(block, root=self._root, is_open=is_open)
            known = made_of, list(self._rendered(what, width))
            self._lines[block.key] = known

        return known[1]

    def _rendered(self, what: RenderableType, width: int) -> Iterator[Strip]:
        console = self.app.console
        options = console.options.update(width=width, height=None, highlight=False)
        for line in console.render_lines(what, options, pad=False):
            yield Strip(line)

    def render_line(self, y: int) -> Strip:
        width = self.scrollable_content_region.width
        line = self.scroll_offset.y + y
        number = bisect_right(self._ends, line)
        if number >= len(self._blocks):
            return Strip.blank(width, self.rich_style)

        lines = self._lines_of(self._blocks[number])
        row = line - self._begin(number)
        found = lines[row] if row < len(lines) else Strip([])
        has_cursor = self.has_focus and number == self.at and row < len(lines)
        marked = _marked(found, self._needle) if self._needle else found
        strip = Strip([_CURSOR if has_cursor else _NO_CURSOR, *marked])
        return strip.extend_cell_length(width).crop(0, width).apply_style(self.rich_style)


def _has_more(block: Block) -> bool:
    """Return whether an open block can still be made whole."""
    return any(
        call.whole is None and call.result is not None and call.result.truncated
        for call in block.calls
    )


def _marked(strip: Strip, needle: str) -> Strip:
    """Return a line with every place of a text in reverse."""
    places = [match.span() for match in re.finditer(re.escape(needle), strip.text, re.IGNORECASE)]
    if not places:
        return strip

    parts: list[Segment] = []
    at = 0
    for segment in strip:
        text, style = segment.text, segment.style
        cuts = sorted({0, len(text), *(cut - at for place in places for cut in place)})
        for begin, end in pairwise(cuts):
            if 0 <= begin < end <= len(text):
                is_found = any(a <= at + begin and at + end <= b for a, b in places)
                shown = _FOUND if style is None else style + _FOUND
                parts.append(Segment(text[begin:end], shown if is_found else style))

        at += len(text)

    return Strip(parts)
